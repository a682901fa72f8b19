"""Reads the inputs of decisions from the broker: the entries of a replay's log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import BinaryIO

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus, Stored
from penstock.bus.saved_log import Entry, entry, line, outside
from penstock.bus.since import first_since
from penstock.decider.publishing.recorder import CHECKPOINT_SECONDS
from penstock.events.record import RECORDS, CheckpointTaken, RoundDecided
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects

Key = tuple[int, int]
"""Epoch and number of a round."""
Progress = Callable[[float], None]

_LOOK_BACK = timedelta(seconds=CHECKPOINT_SECONDS + 5)
_MOST_ROUNDS = 10_000
"""Rounds that are searched for a decision's own: more than can be in flight at a time."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the log; None is its beginning, its end, any pool."""

    since: datetime | None = None
    until: datetime | None = None
    pool: str | None = None


async def save(bus: Bus, subjects: Subjects, span: Span, file: BinaryIO, progress: Progress) -> int:
    """Writes a part of the log to a file.

    Args:
        bus: a connection.
        subjects: of the installation.
        span: the part to write.
        file: is written at its present position.
        progress: called with the share that is done.

    Returns:
        The number of rounds in this part.
    """
    rounds = 0
    async with aclosing(_entries(bus, subjects, span, progress)) as entries:
        async for entry in entries:
            rounds += entry.subject.endswith(RoundDecided.__name__)
            file.write(line(entry))
    return rounds


async def entries_of(bus: Bus, subjects: Subjects, made: ScalingDecisionMade) -> list[Entry]:
    """The inputs of one decision; empty where the log does not reach back to them."""
    stream = subjects.snapshots_stream
    record = await _record(bus, subjects, made)
    if record is None:
        return []
    stored, decided = record
    start = await _start(bus, subjects, decided)
    entries = await settings_entries(bus, subjects)
    async for message in lookback.between(bus, stream, subjects.snapshots, start, stored.sequence):
        entries.append(entry(message))
    return entries


async def _record(
    bus: Bus, subjects: Subjects, made: ScalingDecisionMade
) -> tuple[Stored, RoundDecided] | None:
    """The record of a decision's round: one of the first behind its last snapshot."""
    stream, subject = subjects.snapshots_stream, subjects.round(RoundDecided.__name__)
    last = await bus.last(stream, subject)
    if last is None or not made.round:
        return None
    async for stored in lookback.between(bus, stream, subject, max(made.through, 1), last.sequence):
        decided = _round(stored)
        if decided and _key(decided) == (made.epoch, made.round):
            return stored, decided
        if decided and decided.through > made.through + _MOST_ROUNDS:
            break
    return None


async def _start(bus: Bus, subjects: Subjects, decided: RoundDecided) -> int:
    """The sequence of the first snapshot that the round's checkpoint had not read."""
    stream, subject = subjects.snapshots_stream, subjects.round(CheckpointTaken.__name__)
    begin = decided.checkpoint or decided.through
    stored = await bus.next(stream, subject, begin)
    checkpoint = RECORDS.decode(stored.body) if stored else None
    return min(begin, checkpoint.through + 1) if isinstance(checkpoint, CheckpointTaken) else begin


async def _entries(
    bus: Bus, subjects: Subjects, span: Span, progress: Progress
) -> AsyncGenerator[Entry, None]:
    """Settings, then the snapshots' stream in its order, decisions right before their round."""
    for adopted in await settings_entries(bus, subjects):
        yield adopted
    stream, every = subjects.snapshots_stream, subjects.snapshots
    start = await _begin(bus, stream, every, span)
    end = await _end(bus, stream, every, span)
    if not 0 < start <= end:
        return
    async with aclosing(_decisions(bus, subjects, span)) as decisions:
        waiting = await anext(decisions, None)
        async for stored in lookback.between(bus, stream, every, start, end):
            decided = _round(stored)
            while decided and waiting and (waiting[1] is None or _key(waiting[1]) <= _key(decided)):
                yield outside(entry(waiting[0]))
                waiting = await anext(decisions, None)
            yield entry(stored)
            progress((stored.sequence - start + 1) / (end - start + 1))


async def settings_entries(bus: Bus, subjects: Subjects) -> list[Entry]:
    """All settings that decisions were made under, as far as the log holds them."""
    stream, every = subjects.snapshots_stream, subjects.adopted_settings()
    return [outside(entry(stored)) for stored in await lookback.latest(bus, stream, every)]


async def _decisions(
    bus: Bus, subjects: Subjects, span: Span
) -> AsyncGenerator[tuple[Stored, ScalingDecisionMade | None], None]:
    """Stored decisions, decoded; None for one that cannot be read, which the replay reports."""
    stream = subjects.events_stream
    subject = subjects.events("pool", span.pool or "*", ScalingDecisionMade.__name__)
    start = await _begin(bus, stream, subject, span)
    end = await bus.last(stream, subject)
    if end is None or start > end.sequence:
        return
    async for stored in lookback.between(bus, stream, subject, start, end.sequence):
        try:
            yield stored, msgspec.json.decode(stored.body, type=ScalingDecisionMade)
        except ValueError:
            yield stored, None


async def _begin(bus: Bus, stream: str, subject: str, span: Span) -> int:
    """Early enough for a checkpoint."""
    if span.since is None:
        first = await bus.next(stream, subject, 1)
        return first.sequence if first else 0
    return await first_since(bus, stream, subject, span.since - _LOOK_BACK)


async def _end(bus: Bus, stream: str, subject: str, span: Span) -> int:
    last = await bus.last(stream, subject)
    if last is None:
        return 0
    if span.until is None or last.at <= span.until:
        return last.sequence
    return await first_since(bus, stream, subject, span.until)


def _round(stored: Stored) -> RoundDecided | None:
    if not stored.subject.endswith(RoundDecided.__name__):
        return None
    try:
        record = RECORDS.decode(stored.body)
    except ValueError:
        return None
    return record if isinstance(record, RoundDecided) else None


def _key(event: RoundDecided | ScalingDecisionMade) -> Key:
    return (event.epoch, event.number if isinstance(event, RoundDecided) else event.round)
