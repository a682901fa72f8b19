"""Policy `flap-budget`: at most so many reversals of direction an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.section import Section
from penstock.decider.core.policies.policy import Aftermath, Policy, Proposal, Result, Verdict

HOUR_SECONDS = 3600.0


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        reversals_per_hour: a step up after a step down is one, and the other way round.
    """

    reversals_per_hour: Annotated[int, Meta(ge=1, le=60)] = 6


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """``direction`` of the last step, and when the last reversals were, oldest first."""

    direction: int = 0
    reversals: tuple[float, ...] = ()

    def recent(self, now: float) -> int:
        return sum(0 <= now - at < HOUR_SECONDS for at in self.reversals)


def before(proposal: Proposal) -> Verdict | None:
    """Holds a reversal that is one too many; scaling up through a breach always passes."""
    direction = _sign(proposal.workers - proposal.current)
    past, most = _recall(proposal.memory), proposal.options.reversals_per_hour
    if direction * past.direction >= 0 or (direction > 0 and proposal.urgent):
        return None
    if past.recent(proposal.now) < most:
        return None
    return Verdict(
        workers=proposal.current,
        text=f"stays {proposal.current}: it reversed {past.recent(proposal.now)} times within "
        f"the hour, {most} are allowed",
        values={"reversals_per_hour": most},
    )


def after(proposal: Proposal, result: Result) -> Aftermath | None:
    """Notes a step that was made, whatever caused it."""
    direction = _sign(result.planned - proposal.current)
    past = _recall(proposal.memory)
    if not direction or (direction == past.direction and not past.reversals):
        return None
    turned = (proposal.now,) if direction * past.direction < 0 else ()
    kept = (*past.reversals, *turned)[-proposal.options.reversals_per_hour :]
    noted = Past(direction, tuple(at for at in kept if 0 <= proposal.now - at < HOUR_SECONDS))
    return Aftermath(memory=msgspec.to_builtins(noted))


def _sign(change: int) -> int:
    return (change > 0) - (change < 0)


def _recall(memory: Mapping[str, Any]) -> Past:
    return msgspec.convert(memory, Past) if memory else Past()


FLAP_BUDGET = Policy(
    name="flap-budget",
    about="At most so many reversals of direction an hour; scaling up through a breach always "
    "passes.",
    before=before,
    after=after,
    options=Options,
)
