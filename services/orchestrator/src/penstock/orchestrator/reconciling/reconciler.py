"""One round of reconciling: looks up the messages of transitions, and stores those missing."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from penstock.bus.protocol import Bus, BusError, BusRefused, QueueDepth, Stored
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core import judge
from penstock.orchestrator.core.judge import Verdict
from penstock.orchestrator.core.unresolved import Awaits, Entry, Unresolved
from penstock.orchestrator.reconciling import unacknowledged
from penstock.orchestrator.reconciling.completion import TransitionCompleter
from penstock.runtime.poison_messages import note, skipping_poison

T = TypeVar("T")
log = logging.getLogger("penstock.orchestrator")

_JOBS_A_ROUND = 200
"""Jobs whose events are read in one round."""
_QUEUES_A_ROUND = 200
"""Queues whose first waiting message is requested in one round."""
_AT_ONCE = 20


class Reconciler:
    """Asks the broker for the messages that should exist; stores again what is missing."""

    def __init__(self, bus: Bus, subjects: Subjects, table: Unresolved) -> None:
        self.completer = TransitionCompleter(bus, subjects)
        self._bus = bus
        self._subjects = subjects
        self._table = table

    async def round(self, now: float) -> None:
        """1 dead letters, 2 schedules, 3 queue messages; 4 what is missing is stored again.

        Args:
            now: POSIX seconds.

        Raises:
            BusError: the broker did not answer; what was not looked at stays.
        """
        due = list(self._table.due(now))
        missing = await self._dead_letters(due)
        missing += await self._schedules(due, now)
        missing += await self._queue_messages(due, now)
        lost = self._table.shares.first(missing, _JOBS_A_ROUND)
        await _all(lambda entry: self._complete(entry, now), lost)

    async def _dead_letters(self, due: Iterable[Entry]) -> list[Entry]:
        awaited = (e for e in due if e.awaits is Awaits.DEAD_LETTER)
        letters = self._table.shares.first(awaited, _JOBS_A_ROUND)
        missing: list[Entry] = []

        async def look(entry: Entry) -> None:
            subject = self._subjects.dead(entry.queue, entry.job_id)
            if entry.queue and await self._bus.last(self._subjects.dead_stream, subject):
                self._table.resolve(entry)
            else:
                missing.append(entry)

        await _all(look, letters)
        return missing

    async def _schedules(self, due: Iterable[Entry], now: float) -> list[Entry]:
        awaited = (e for e in due if e.awaits is Awaits.SCHEDULE)
        delayed = self._table.shares.first(awaited, _JOBS_A_ROUND)
        missing: list[Entry] = []

        async def look(entry: Entry) -> None:
            if not await self._knows_queue(entry):
                return
            subject = self._subjects.schedule(entry.queue, entry.job_id)
            schedule = await self._bus.last(self._subjects.jobs_stream, subject)
            # Of a workflow that went on before its timer fired, an earlier schedule may be there.
            exists = schedule is not None and _is_of(schedule, entry)
            patience_seconds = self._table.patience_seconds
            verdict = judge.scheduled(entry, exists, now, patience_seconds)
            if verdict is Verdict.RESOLVED:
                self._table.resolve(entry)
            elif verdict is Verdict.LATER and exists:
                entry.check_at = now + patience_seconds
            elif verdict is Verdict.LATER or exists:
                judge.fired(entry, patience_seconds)
            if verdict is Verdict.MISSING:
                missing.append(entry)

        await _all(look, delayed)
        return missing

    async def _queue_messages(self, due: Iterable[Entry], now: float) -> list[Entry]:
        lines: dict[str, list[Entry]] = {}
        for entry in due:
            if entry.awaits is Awaits.QUEUE_MESSAGE:
                lines.setdefault(entry.queue, []).append(entry)
        # Those whose queue must first be read from their events are looked at in the next round.
        await _all(self._knows_queue, lines.pop("", [])[:_JOBS_A_ROUND])
        depths = await self._bus.depths() if lines else {}
        turns = self._table.shares.in_turn(line[0] for line in lines.values())
        heads = await self._heads([entry.queue for entry in islice(turns, _QUEUES_A_ROUND)], depths)
        missing: list[Entry] = []
        for queue, head_at in heads.items():
            lost = await self._lost(lines[queue], head_at, depths.get(queue))
            if head_at is not None:
                lost = await self._not_waiting(lost, head_at)
            missing += lost
            for entry in set(lines[queue]).difference(lost):
                entry.check_at = now + self._table.patience_seconds
        return missing

    async def _lost(
        self, entries: Sequence[Entry], head_at: float | None, depth: QueueDepth | None
    ) -> list[Entry]:
        """Those of a queue that have no message there, neither waiting nor claimed."""
        patience_seconds = self._table.patience_seconds
        lost = [
            entry
            for entry in entries
            if judge.in_line(entry, head_at, patience_seconds) is Verdict.MISSING
        ]
        # A claimed message does not wait in the queue, and the broker offers it again by itself: a
        # second one would only be work for a worker that drops it.
        if not lost or depth is None or not depth.claimed:
            return lost
        claimed = await unacknowledged.read(
            self._bus,
            self._subjects,
            depth.queue,
            min(entry.since for entry in lost) - patience_seconds,
            depth.delivered_sequence,
        )
        return [e for e in lost if not claimed.may_hold(e.job_id, e.since + patience_seconds)]

    async def _not_waiting(self, entries: Sequence[Entry], head_at: float) -> list[Entry]:
        """Those of a queue without a message that waits among its first ones.

        One that was stored again is younger than the event, and from now on expected where it is.
        """
        if not entries:
            return []
        waiting = await unacknowledged.read(
            self._bus, self._subjects, entries[0].queue, head_at, sys.maxsize
        )
        for entry in entries:
            entry.since = max(entry.since, waiting.jobs.get(entry.job_id, 0.0))
        return [entry for entry in entries if entry.job_id not in waiting.jobs]

    async def _heads(
        self, queues: Sequence[str], depths: Mapping[str, QueueDepth]
    ) -> dict[str, float | None]:
        """When the first waiting message of each queue was stored; None when none waits."""
        heads: dict[str, float | None] = {}

        async def look(queue: str) -> None:
            depth = depths.get(queue)
            if depth is not None and not depth.waiting:
                heads[queue] = None
                return
            after = depth.delivered_sequence if depth else 0
            head = await self._bus.next(
                self._subjects.jobs_stream, self._subjects.queue(queue), after + 1
            )
            heads[queue] = head.at.timestamp() if head else None

        await _all(look, queues)
        return heads

    async def _knows_queue(self, entry: Entry) -> bool:
        """Fills in what the event did not say; False when there is nothing left to look after."""
        if not entry.queue:
            record = await self.completer.record(entry.job_id)
            if record is None or record.changed_by > entry.sequence:
                self._table.resolve(entry)
                return False
            entry.queue = record.queue
            available_at = record.available_at.timestamp()
            if entry.awaits is Awaits.QUEUE_MESSAGE and available_at > self._bus.now():
                entry.awaits, entry.due_at = Awaits.SCHEDULE, available_at
        return True

    async def _is_postponed(self, entry: Entry, now: float) -> bool:
        """Whether a worker that could not run the job put its message off: it comes by itself.

        It lacked the job's key, or its code did not know the job.
        """
        subject = self._subjects.schedule(entry.queue, entry.job_id)
        schedule = await self._bus.last(self._subjects.jobs_stream, subject)
        due_at = queue_messages.due_at(schedule.headers) if schedule else None
        # One that is there long after its time will not fire, see `judge.scheduled`.
        return due_at is not None and due_at + self._table.patience_seconds >= now

    async def _complete(self, entry: Entry, now: float) -> None:
        is_stored = False
        if entry.awaits is Awaits.QUEUE_MESSAGE and await self._is_postponed(entry, now):
            self._table.wait_longer(entry, now)
            return
        record = await self.completer.record(entry.job_id)
        if record is not None and record.changed_by <= entry.sequence:
            try:
                is_stored = await self.completer.complete(record)
            except BusRefused as error:
                log.error("job %s cannot be reconciled now: %s", entry.job_id, error)
                entry.check_at += self._table.patience_seconds
                return
            except BusError:
                raise
            except Exception as error:  # it would be the same in each round
                note(f"job {entry.job_id}", error)
        if is_stored and entry.awaits is Awaits.QUEUE_MESSAGE:
            self._table.wait_longer(entry, now)  # a key that empties the queues can do so again
        else:
            self._table.resolve(entry)  # done, or a later step of the job has taken its place


def _is_of(schedule: Stored, entry: Entry) -> bool:
    """Whether a schedule was stored for this step, not for an earlier one of its job."""
    sequence = schedule.headers.get(queue_messages.SEQUENCE, "")
    return sequence.isdecimal() and int(sequence) >= entry.first_sequence


async def _one(work: Callable[[T], Awaitable[object]], item: T) -> None:
    with skipping_poison("a transition without its message"):
        await work(item)


async def _all(work: Callable[[T], Awaitable[object]], items: Sequence[T]) -> None:
    """A few at a time; raises the first error after the others of its group have ended."""
    for start in range(0, len(items), _AT_ONCE):
        group = (_one(work, item) for item in items[start : start + _AT_ONCE])
        for outcome in await asyncio.gather(*group, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
