"""Policy `break-even`: removes a worker when keeping it has cost as much as a new start.

The rule of the ski rental: whatever comes, it costs at most twice what one would have paid knowing
the future (Karlin, Manasse, Rudolph, Sleator: Competitive snoopy caching, 1988).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.section import Section
from penstock.decider.core.policies.policy import Aftermath, Policy, Proposal, Result, Verdict
from penstock.measuring.assumed import UNKNOWN_SPAWN_SECONDS

_STEPS = 16
"""The past is kept in about so many steps of the time that counts."""


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        times: how often over a worker must have been unneeded for what starting one takes.
    """

    times: Annotated[float, Meta(gt=0, le=1000)] = 1.0


class Past(msgspec.Struct, frozen=True):
    """The needs of the recent past. Times are POSIX seconds of the broker's clock.

    Attributes:
        since: when the pool was first watched.
        needs: (when, how many) workers were needed, ever fewer: needs without a larger later one.
    """

    since: float
    needs: tuple[tuple[float, int], ...] = ()

    def most(self, after: float) -> int:
        """Workers that were needed at some time after this."""
        return max((count for at, count in self.needs if at > after), default=0)


def before(proposal: Proposal) -> Verdict | None:
    past, span = _recall(proposal.memory, proposal.now), _span_seconds(proposal)
    watched = past.since <= proposal.now - span
    needed = past.most(proposal.now - _kept_seconds(span)) if watched else proposal.current
    floor = min(needed, proposal.current)
    if proposal.workers >= floor:
        return None
    return Verdict(
        workers=floor,
        text=f"{floor} for now: so many were needed within the last {span:.3g} s, "
        "what starting one costs",
        values={"start_seconds": span},
    )


def after(proposal: Proposal, result: Result) -> Aftermath | None:
    """Notes what is needed now; where that is not known, what there is."""
    now, span = proposal.now, _span_seconds(proposal)
    past = _recall(proposal.memory, now)
    if any(at > now for at in (past.since, *(at for at, _ in past.needs))):  # the clock went back
        past = Past(now, ((now, past.most(0.0)),))
    needed = proposal.wanted if proposal.snapshot else proposal.current
    kept = now - _kept_seconds(span)
    needs = [[at, count] for at, count in past.needs if at > kept and count > needed]
    if not needs or now - needs[-1][0] >= span / _STEPS:
        needs.append([now, needed])
    return Aftermath(memory={"since": past.since, "needs": needs})


def _span_seconds(proposal: Proposal) -> float:
    measured = proposal.snapshot.spawn if proposal.snapshot else None
    seconds = measured.mean_seconds if measured else UNKNOWN_SPAWN_SECONDS
    times: float = proposal.options.times
    return seconds * times


def _kept_seconds(span: float) -> float:
    """A step longer, as what was needed shortly after a note was not noted by itself."""
    return span * (1 + 1 / _STEPS)


def _recall(memory: Mapping[str, Any], now: float) -> Past:
    return msgspec.convert(memory, Past) if memory else Past(since=now)


BREAK_EVEN = Policy(
    name="break-even",
    about="A worker is removed only after it was unneeded for longer than starting one takes, as "
    "measured. `deadline` does this by itself.",
    before=before,
    after=after,
    options=Options,
)
