"""Policies: values with a name and one or two pure functions.

``before`` sees a change that is about to be made and may hold or limit it; ``after`` sees its
result, and returns a memory and the events to publish. Hard limits (bounds, capacity) stand
outside: no policy can lift them. One that raises is reported in the chain and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core.notices import Notice
from penstock.events.scaling import Reason
from penstock.events.snapshot import PoolSnapshot


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is about to be made.

    Attributes:
        current: workers planned now.
        wanted: what the strategy wants, within the bounds.
        workers: what is left of that after the policies so far.
        busy: workers that run a job now.
        urgent: a breach is there or near.
        up_at: the pool's last step up, POSIX seconds; None for never.
        down_at: the pool's last step down, POSIX seconds; None for never.
        snapshot: what was measured; None where that is stale or missing (only in ``after``).
        now: POSIX seconds, broker's clock.
        options: the pool's settings for this policy, as what its ``options`` declares.
        memory: what its last ``after`` for this pool gave it to remember.
    """

    pool: str
    profile: Profile
    current: int
    wanted: int
    workers: int
    now: float
    busy: int = 0
    urgent: bool = False
    up_at: float | None = None
    down_at: float | None = None
    snapshot: PoolSnapshot | None = None
    options: Any = None
    memory: Mapping[str, Any] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's answer to a proposal; ``workers`` equal to ``current`` is a veto."""

    workers: int
    text: str
    values: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a proposal.

    Attributes:
        target: the decision's number, by bounds, policies and capacity.
        planned: what is planned from now on: the target, or in advisor mode what it was.
        reasons: the whole chain.
        breached_at: since when the oldest job is late, POSIX seconds; None while the promise holds.
    """

    target: int
    planned: int
    reasons: tuple[Reason, ...]
    breached_at: float | None = None

    def spoke(self, policy: str) -> bool:
        """Whether a policy changed the number."""
        return any(reason.rule == policy for reason in self.reasons)


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's answer to a result.

    Attributes:
        memory: comes back with the next proposal; plain JSON values, few. It is kept in the
            decision, so that a new leader and a replay go on from it.
        notices: events to be published.
    """

    memory: Mapping[str, Any] = {}
    notices: tuple[Notice, ...] = ()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A named hook; add your own through the entry-point group ``penstock.policies``.

    Attributes:
        about: one sentence for people.
        before: None lets the proposal pass.
        after: None leaves the memory as it is.
        options: a Struct type, which ``[pools.NAME.policy_options.POLICY]`` is read as.
        step: how its reasons are marked.
        caps: asked after all others, so that none lifts what it limits.
    """

    name: str
    about: str = ""
    before: Callable[[Proposal], Verdict | None] | None = None
    after: Callable[[Proposal, Result], Aftermath | None] | None = None
    options: type[msgspec.Struct] | None = None
    step: str = "policy"
    caps: bool = False


Policies = Mapping[str, Policy]
