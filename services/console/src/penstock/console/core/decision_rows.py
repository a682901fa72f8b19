"""One row for each scaling decision. Pure."""

from __future__ import annotations

import msgspec

from penstock.console.core.log_entry import LogEntry, micros
from penstock.events.scaling import ScalingDecisionMade

MAX_REASON_LENGTH = 300


class DecisionRow(msgspec.Struct, frozen=True):
    """A decision as lists show it; its event, found by ``sequence``, has all reasons.

    Attributes:
        sequence: of its event in the log.
        is_change: whether the number of workers changed.
        rule: that settled the number.
        reason: its sentence.
        stored_us: when the broker stored it.
    """

    id: str
    pool: str
    sequence: int
    at_us: int
    current: int
    target: int
    is_change: bool
    strategy: str
    rule: str = ""
    reason: str = ""
    sla_seconds: float = 0.0
    predicted_pickup_seconds: float | None = None
    epoch: int = 0
    round: int = 0
    is_advice: bool = False
    stored_us: int = 0


def key_of(entry: LogEntry) -> str | None:
    """The decision's own id."""
    return entry.event.id if isinstance(entry.event, ScalingDecisionMade) else None


def advance(row: DecisionRow | None, entry: LogEntry) -> DecisionRow | None:
    """A decision is one event: the first with its id counts."""
    decision = entry.event
    if row is not None or not isinstance(decision, ScalingDecisionMade):
        return row
    last = decision.reasons[-1] if decision.reasons else None
    return DecisionRow(
        id=decision.id,
        pool=decision.pool,
        sequence=entry.sequence,
        at_us=micros(decision.at),
        current=decision.current,
        target=decision.target,
        is_change=decision.current != decision.target,
        strategy=decision.strategy,
        rule=last.rule if last else "",
        reason=last.text[:MAX_REASON_LENGTH] if last else "no reason was recorded",
        sla_seconds=decision.sla_seconds,
        predicted_pickup_seconds=decision.predicted_pickup_seconds,
        epoch=decision.epoch,
        round=decision.round,
        is_advice=decision.advice,
        stored_us=entry.stored_us or micros(decision.at),
    )
