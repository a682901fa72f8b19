"""Scaling decisions in the event log."""

from __future__ import annotations

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade
from penstock.events.subjects import Subjects


async def newest_decisions(
    bus: Bus, subjects: Subjects, pool: str | None, every: bool, limit: int
) -> list[ScalingDecisionMade]:
    """The last decisions, newest first.

    Args:
        bus: a connection.
        subjects: of the installation.
        pool: only of this pool; None for all.
        every: also decisions that changed no number.
        limit: at most so many.
    """
    decisions: list[ScalingDecisionMade] = []
    async for messages, _ in lookback.back(bus, subjects.events_stream, _subject(subjects, pool)):
        decoded = (SCALING_EVENTS.decode(stored.body) for stored in reversed(messages))
        decisions = [
            event
            for event in decoded
            if isinstance(event, ScalingDecisionMade) and (every or event.current != event.target)
        ]
        if len(decisions) >= limit:
            break
    return decisions[:limit]


async def find_decision(
    bus: Bus, subjects: Subjects, which: str, sequence: int | None = None
) -> tuple[ScalingDecisionMade, bytes] | None:
    """A decision, with its bytes as they are stored; None where the log holds none.

    Args:
        bus: a connection.
        subjects: of the installation.
        which: a pool, for its last decision, or the id of a decision.
        sequence: of the decision's event, where it is known; else only recent ones are searched.
    """
    if sequence is not None:
        stored = await bus.next(subjects.events_stream, _subject(subjects, None), sequence)
        if stored is None or stored.sequence != sequence:
            return None
        event = SCALING_EVENTS.decode(stored.body)
        if isinstance(event, ScalingDecisionMade) and event.id == which:
            return event, stored.body
        return None
    last = await bus.last(subjects.events_stream, _subject(subjects, which))
    if last is not None:
        event = SCALING_EVENTS.decode(last.body)
        return (event, last.body) if isinstance(event, ScalingDecisionMade) else None
    async for messages, _ in lookback.back(bus, subjects.events_stream, _subject(subjects, None)):
        for stored in messages:
            event = SCALING_EVENTS.decode(stored.body)
            if isinstance(event, ScalingDecisionMade) and event.id == which:
                return event, stored.body
    return None


def _subject(subjects: Subjects, pool: str | None) -> str:
    return subjects.events(noun="pool", key=pool or "*", name="ScalingDecisionMade")
