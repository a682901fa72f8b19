"""Policies of scaling down: `conservative`, `aggressive`, `no-scale-down`, `keep-busy`."""

from __future__ import annotations

import math

from penstock.decider.core.policies.policy import Policy, Proposal, Verdict


def conservative(proposal: Proposal) -> Verdict | None:
    """At most ``scale_down_share`` of the planned workers go in one step, at least one."""
    most = max(1, math.floor(proposal.current * proposal.profile.scale_down_share))
    floor = proposal.current - most
    if proposal.workers >= floor:
        return None
    return Verdict(
        workers=floor,
        text=f"{floor} for now: at most {most} of {proposal.current} are removed in one step",
        values={"most_in_one_step": most},
    )


def aggressive(proposal: Proposal) -> Verdict | None:
    """A pool without any load goes to its minimum in one step, whatever was wanted."""
    snapshot, least = proposal.snapshot, proposal.profile.min_workers
    if snapshot is None or snapshot.waiting or snapshot.running:
        return None
    if snapshot.arrival_per_second != 0:
        return None
    if proposal.workers <= least or proposal.workers > proposal.current:
        return None
    text = f"{least}: no job waits, runs or arrives, so that all the others are removed at once"
    return Verdict(workers=least, text=text)


def no_scale_down(proposal: Proposal) -> Verdict | None:
    """A pool only grows."""
    if proposal.workers >= proposal.current:
        return None
    return Verdict(
        workers=proposal.current, text=f"stays {proposal.current}: this pool is not scaled down"
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


CONSERVATIVE = Policy(
    name="conservative",
    about="At most a quarter of the workers are removed in one step (`scale_down_share`), at least "
    "one.",
    before=conservative,
)
AGGRESSIVE = Policy(
    name="aggressive",
    about="A pool in which no job waits, runs or arrives goes to its minimum in one step. Choose "
    "it in the place of `cooldown` and `conservative`.",
    before=aggressive,
)
NO_SCALE_DOWN = Policy(name="no-scale-down", about="The pool only grows.", before=no_scale_down)
KEEP_BUSY = Policy(
    name="keep-busy",
    about="Only idle workers are removed, never one that runs a job.",
    before=keep_busy,
)
