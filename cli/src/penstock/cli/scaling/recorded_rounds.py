"""Reads from the broker what decisions can be recomputed from: the entries of a replay's log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import BinaryIO

import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.bus.since import first_since
from penstock.decider.publishing.recorder import CHECKPOINT_SECONDS
from penstock.decider.replay.entry import Entry, entry, line, outside
from penstock.events.record import RECORDS, CheckpointTaken, RoundDecided
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views import lookback

Key = tuple[int, int]
"""Epoch and number of a round."""
Progress = Callable[[float], None]

_LOOK_BACK = timedelta(seconds=CHECKPOINT_SECONDS + 5)
_MOST_ROUNDS = 10_000
"""Rounds to look through for a decision's own: as many as may be on the way at a time, and more."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the log; None is its beginning, its end, any pool."""

    since: datetime | None = None
    until: datetime | None = None
    pool: str | None = None


async def save(bus: Bus, subjects: Subjects, span: Span, file: BinaryIO, progress: Progress) -> int:
    """Writes a part of the log; how many rounds it holds."""
    rounds = 0
    async with aclosing(_entries(bus, subjects, span, progress)) as entries:
        async for one in entries:
            rounds += one.subject.endswith(RoundDecided.__name__)
            file.write(line(one))
    return rounds


async def entries_of(bus: Bus, subjects: Subjects, made: ScalingDecisionMade) -> list[Entry]:
    """What one decision can be recomputed from; empty where the log does not reach back to it."""
    stream = subjects.snapshots_stream
    record = await _record(bus, subjects, made)
    if record is None:
        return []
    stored, told = record
    start = await _start(bus, subjects, told)
    found = await _settings(bus, subjects)
    async for message in lookback.between(bus, stream, subjects.snapshots, start, stored.sequence):
        found.append(entry(message))
    return found


async def _record(
    bus: Bus, subjects: Subjects, made: ScalingDecisionMade
) -> tuple[Stored, RoundDecided] | None:
    """Its round's record: one of the first behind the last snapshot it had seen."""
    stream, subject = subjects.snapshots_stream, subjects.round(RoundDecided.__name__)
    last = await bus.last(stream, subject)
    if last is None or not made.round:
        return None
    async for stored in lookback.between(bus, stream, subject, max(made.through, 1), last.sequence):
        told = _round(stored)
        if told and _key(told) == (made.epoch, made.round):
            return stored, told
        if told and told.through > made.through + _MOST_ROUNDS:
            break
    return None


async def _start(bus: Bus, subjects: Subjects, told: RoundDecided) -> int:
    """Where the snapshots begin that its checkpoint, or its own, had not seen."""
    stream, subject = subjects.snapshots_stream, subjects.round(CheckpointTaken.__name__)
    begin = told.checkpoint or told.through
    stored = await bus.next(stream, subject, begin)
    checkpoint = RECORDS.decode(stored.body) if stored else None
    return min(begin, checkpoint.through + 1) if isinstance(checkpoint, CheckpointTaken) else begin


async def _entries(
    bus: Bus, subjects: Subjects, span: Span, progress: Progress
) -> AsyncGenerator[Entry, None]:
    """Settings, then the snapshots' stream in its order, decisions right before their round."""
    for one in await _settings(bus, subjects):
        yield one
    stream, every = subjects.snapshots_stream, subjects.snapshots
    start = await _begin(bus, stream, every, span)
    end = await _end(bus, stream, every, span)
    if not 0 < start <= end:
        return
    async with aclosing(_decisions(bus, subjects, span)) as decisions:
        waiting = await anext(decisions, None)
        async for stored in lookback.between(bus, stream, every, start, end):
            told = _round(stored)
            while told and waiting and (waiting[1] is None or _key(waiting[1]) <= _key(told)):
                yield outside(entry(waiting[0]))
                waiting = await anext(decisions, None)
            yield entry(stored)
            progress((stored.sequence - start + 1) / (end - start + 1))


async def _settings(bus: Bus, subjects: Subjects) -> list[Entry]:
    stream, every = subjects.snapshots_stream, subjects.adopted_settings()
    return [outside(entry(one)) for one in await lookback.latest(bus, stream, every)]


async def _decisions(
    bus: Bus, subjects: Subjects, span: Span
) -> AsyncGenerator[tuple[Stored, ScalingDecisionMade | None], None]:
    """Each with what it says; None where that cannot be read, which the replay will tell."""
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
        told = RECORDS.decode(stored.body)
    except ValueError:
        return None
    return told if isinstance(told, RoundDecided) else None


def _key(told: RoundDecided | ScalingDecisionMade) -> Key:
    return (told.epoch, told.number if isinstance(told, RoundDecided) else told.round)
