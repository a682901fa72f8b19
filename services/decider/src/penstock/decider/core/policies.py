"""Policies: hooks between what a pool wants and what it gets. Each may hold the number or limit it.

A policy is a value with a name and one pure function; one that raises is reported in the chain and
skipped. Hard limits (bounds, capacity) stand outside: no policy can lift them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.config.settings import Profile
from penstock.decider.core.trail import Trail


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is about to be made.

    Attributes:
        current: workers planned now; workers: what is wanted after the steps so far.
        busy: workers that run a job now. urgent: a breach is there or near.
        up_at / down_at: the pool's last step in each direction, POSIX seconds; None for never.
    """

    pool: str
    profile: Profile
    current: int
    workers: int
    busy: int
    urgent: bool
    up_at: float | None
    down_at: float | None
    now: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy makes of a proposal; ``workers`` equal to ``current`` is a veto."""

    workers: int
    text: str
    values: dict[str, Any] = {}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A named hook; ``step`` is how its reasons are marked. None lets the proposal pass."""

    name: str
    before: Callable[[Proposal], Verdict | None]
    step: str = "policy"


def cooldown(proposal: Proposal) -> Verdict | None:
    """Least time between two steps in one direction; a step down also waits after a step up.

    Scaling up through a breach is never held back.
    """
    up = proposal.workers > proposal.current
    if proposal.workers == proposal.current or (up and proposal.urgent):
        return None
    left = _left_seconds(proposal, up)
    if left <= 0:
        return None
    return Verdict(
        workers=proposal.current,
        text=f"stays {proposal.current}: the next step {'up' if up else 'down'} "
        f"is {left:.1f} s of cooldown away",
        values={"left_seconds": left},
    )


def _left_seconds(proposal: Proposal, up: bool) -> float:
    profile = proposal.profile
    steps = (proposal.up_at,) if up else (proposal.up_at, proposal.down_at)
    last = max((at for at in steps if at is not None), default=None)
    wait = profile.scale_up_cooldown_seconds if up else profile.scale_down_cooldown_seconds
    return 0.0 if last is None else last + wait - proposal.now


def conservative(proposal: Proposal) -> Verdict | None:
    """At most ``scale_down_share`` of the planned workers go in one step, at least one."""
    most = max(1, math.floor(proposal.current * proposal.profile.scale_down_share))
    floor = proposal.current - most
    if proposal.workers >= floor:
        return None
    return Verdict(
        workers=floor,
        text=f"{floor} for now: at most {most} of {proposal.current} go in one step",
        values={"most_in_one_step": most},
    )


def keep_busy(proposal: Proposal) -> Verdict | None:
    """Only idle workers go: a worker that runs a job is not planned away."""
    floor = min(proposal.busy, proposal.current)
    if proposal.workers >= floor:
        return None
    return Verdict(
        workers=floor,
        text=f"{floor} stay: they are running a job",
        values={"busy_workers": proposal.busy},
    )


SHIPPED: tuple[Policy, ...] = (
    Policy(name="cooldown", before=cooldown, step="cooldown"),
    Policy(name="conservative", before=conservative),
    Policy(name="keep-busy", before=keep_busy),
)


def apply(proposal: Proposal, trail: Trail, policies: Sequence[Policy] = SHIPPED) -> None:
    """Asks each policy in order; what it changes goes on the trail."""
    for policy in policies:
        proposal = msgspec.structs.replace(proposal, workers=trail.workers)
        try:
            verdict = policy.before(proposal)
        except Exception as error:
            trail.say(
                policy.step,
                policy.name,
                trail.workers,
                f"{policy.name} raised {error!r} and was skipped",
            )
            continue
        if verdict is not None:
            trail.change(policy.step, policy.name, verdict.workers, verdict.text, **verdict.values)
