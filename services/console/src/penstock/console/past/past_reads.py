"""Answers for past moments: a bounded number of messages is read, and nothing of the fold waits."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import msgspec

from penstock.bus.protocol import Bus, BusUnavailable, Stored, broker_time
from penstock.config.serving import serving
from penstock.console.core import queue_rows
from penstock.console.core.queue_rows import QueueStateRow
from penstock.console.past.boards import board_at
from penstock.console.past.job_counts import JobCounts, counts_at, kept_counts
from penstock.console.past.moments import AsOf, NotKept, read_moment
from penstock.console.past.past import Past
from penstock.console.past.places import Place, last_until
from penstock.console.read_models.log_batches import entry
from penstock.console.read_models.present import Present
from penstock.console.read_models.projection import Projection, Standing
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import MalformedEvent
from penstock.events.queue import QueuePaused, QueueResumed
from penstock.events.record import RECORDS, RoundDecided
from penstock.events.subjects import Subjects
from penstock.jobs.event_store import event_log

T = TypeVar("T")

DECISIONS_KEPT, EVERY_DECISION_KEPT = timedelta(days=14), timedelta(days=1)
_AT_ONCE = 2
"""Moments that are read at the same time; further ones wait."""
_REMEMBERED = 32
_SETTLED = timedelta(seconds=10)
"""What is younger may be read from a replica that lags behind: it is not remembered."""
_FOLD_SECONDS = 2.0
_MOST_QUEUES = 2_000
_COUNTS_NOT_EXACT = "jobs are counted as of the time that is stated: too many events followed"
_NO_COUNTS = "how many jobs were in each state is not kept for that moment"
_OTHER_SETTINGS = "settings have changed since: promises, pools and queues are those of now"
_ALWAYS = (
    "reports of workers are not kept: there is no list of workers",
    "since when a queue's oldest job waited is not kept",
    "dead jobs that were run again since are not listed as dead",
)


class Reads(Protocol):
    """Runs a query of the database in a thread."""

    def __call__(self, query: Callable[[Snapshot], T]) -> Awaitable[T]: ...


class PastReads:
    """Reads what was at a moment, and remembers the last answers.

    Args:
        bus: a connection.
        subjects: of the installation.
        projection: of the rows.
        present: for the settings in force.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, projection: Projection, present: Present
    ) -> None:
        self._bus, self._subjects = bus, subjects
        self._projection, self._present = projection, present
        self._places: OrderedDict[datetime, Place] = OrderedDict()
        self._pasts: OrderedDict[datetime, Past] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def moment(self, text: str) -> datetime | None:
        """The moment that a request names; None for now. Raises BadMoment."""
        return read_moment(text, broker_time(self._bus)) if text.strip() else None

    async def place(self, moment: datetime) -> Place:
        """The last event by then, folded into the rows.

        Raises:
            NotKept: the event log begins later.
            BusError: the log cannot be read, or the console is behind it.
        """
        place = self._places.get(moment)
        if place is None:
            async with self._turns:
                place = await self._event_by(moment)
            self._remember(self._places, moment, place)
        if not await self._projection.reached(place.sequence, _FOLD_SECONDS):
            behind = self._projection.standing.behind_seconds
            raise BusUnavailable(
                f"the console is {behind:.0f} s behind the event log and has not read that moment "
                "yet; try again later"
            )
        return place

    def standing(self, rests_on: AsOf, position: int) -> Standing:
        """What an answer about a past moment says of how current it is.

        Args:
            rests_on: what it was made of.
            position: sequence of the last event that it counts.
        """
        return msgspec.structs.replace(
            self._projection.standing,
            position=position,
            as_of=rests_on.events_until or rests_on.moment,
            behind_seconds=0.0,
            rebuilding="",
            held_back=(),
            past=rests_on,
        )

    def standing_of_events(self, moment: datetime, place: Place) -> Standing:
        """The same of an answer that is made of events alone."""
        return self.standing(AsOf(moment=moment, events_until=place.at), place.sequence)

    def check_decisions(self, moment: datetime, every: bool = False) -> None:
        """Raises NotKept: decisions of then are not kept, or not ``every`` one."""
        standing, age = self._projection.standing, broker_time(self._bus) - moment
        kept = EVERY_DECISION_KEPT if every else DECISIONS_KEPT
        if age > kept:
            what = "every decision is" if every else "decisions are"
            raise NotKept(f"{what} kept for {kept.total_seconds() / 3600:.0f} hours")
        if standing.complete_since is not None and moment < standing.complete_since:
            raise _not_kept("the history of decisions", standing.complete_since)

    async def past(self, moment: datetime, reads: Reads) -> Past:
        """Everything that overview and pools show of then.

        Args:
            moment: by the broker's clock.
            reads: runs queries of the database.

        Raises:
            NotKept: the streams begin later.
            BusError: they cannot be read.
        """
        if (past := self._pasts.get(moment)) is not None:
            return past
        events = await self.place(moment)
        async with self._turns:
            past = await self._read(moment, events, reads)
        self._remember(self._pasts, moment, past)
        return past

    def _remember(self, answers: OrderedDict[datetime, T], moment: datetime, value: T) -> None:
        if broker_time(self._bus) - moment < _SETTLED:
            return
        answers[moment] = value
        while len(answers) > _REMEMBERED:
            answers.popitem(last=False)

    async def _read(self, moment: datetime, events: Place, reads: Reads) -> Past:
        bus, subjects, settings = self._bus, self._subjects, self._present.settings
        snapshots = await self._snapshot_by(moment)
        shown = await board_at(
            bus, subjects, sorted(self._present.pools), snapshots.sequence, events.sequence
        )
        kept = await reads(lambda rows: kept_counts(rows, events.sequence))
        jobs = await counts_at(bus, subjects, kept, events.sequence, events.at)
        owners = serving(settings).owners
        names = sorted({*owners, *(queue for queue, _ in jobs.counts)})[:_MOST_QUEUES]
        paused = await self._paused(names, events.sequence)
        notes = (*await self._notes(snapshots.sequence), *_of_counts(jobs), *_ALWAYS)
        rests_on = AsOf(
            moment=moment,
            events_until=events.at,
            snapshots_until=shown.newest_at,
            jobs_until=jobs.until,
            notes=notes,
        )
        return Past(
            moment=moment,
            events=events,
            board=shown.board,
            settings=settings,
            jobs=jobs,
            paused=paused,
            standing=self.standing(rests_on, events.sequence),
        )

    async def _event_by(self, moment: datetime) -> Place:
        stream, subject = self._subjects.events_stream, self._subjects.events()
        begins_at, since = await event_log.begins_at(self._bus, self._subjects)
        place = await last_until(self._bus, stream, subject, moment)
        if place is None or place.sequence < begins_at:
            raise _not_kept("the event log", since)
        return place

    async def _snapshot_by(self, moment: datetime) -> Place:
        stream, subject = self._subjects.snapshots_stream, self._subjects.snapshots
        place = await last_until(self._bus, stream, subject, moment)
        if place is None:
            first = await self._bus.next(stream, subject, 1)
            raise _not_kept("what was measured", first.at if first else None)
        return place

    async def _paused(self, queues: list[str], sequence: int) -> Mapping[str, QueueStateRow]:
        kinds = (QueuePaused.__name__, QueueResumed.__name__)
        wanted = [self._subjects.events("queue", queue, kind) for queue in queues for kind in kinds]
        stream = self._subjects.events_stream
        pauses = await self._bus.last_of(stream, wanted, before=sequence + 1)
        rows: dict[str, QueueStateRow] = {}
        for stored in sorted(pauses.values(), key=lambda one: one.sequence):
            logged = entry(stored)
            if (row := queue_rows.advance(rows.get(logged.key), logged)) is not None:
                rows[logged.key] = row
        return {queue: row for queue, row in rows.items() if row.is_paused}

    async def _notes(self, snapshot: int) -> tuple[str, ...]:
        """Whether decisions were made under other settings then than now."""
        stream, subject = (
            self._subjects.snapshots_stream,
            self._subjects.round(RoundDecided.__name__),
        )
        then = (await self._bus.last_of(stream, [subject], before=snapshot + 1)).get(subject)
        now = await self._bus.last(stream, subject)
        used = {decided.settings for one in (then, now) if one and (decided := _round(one))}
        return (_OTHER_SETTINGS,) if len(used) > 1 else ()


def _round(stored: Stored) -> RoundDecided | None:
    try:
        event = RECORDS.decode(stored.body)
    except MalformedEvent:
        return None
    return event if isinstance(event, RoundDecided) else None


def _of_counts(jobs: JobCounts) -> tuple[str, ...]:
    if jobs.until is None:
        return (_NO_COUNTS,)
    return () if jobs.is_exact else (_COUNTS_NOT_EXACT,)


def _not_kept(what: str, since: datetime | None) -> NotKept:
    if since is None:
        return NotKept(f"{what} of that moment is not kept: nothing is stored yet")
    kept = since.astimezone(UTC)
    return NotKept(
        f"{what} of that moment is not kept any more: it begins {kept:%Y-%m-%dT%H:%M:%SZ}"
    )
