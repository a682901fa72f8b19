"""Follows the event log into the database that serves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from penstock.bus.protocol import Bus, BusError, Stored
from penstock.console.core.folding import Changes
from penstock.console.core.shedding import TEXTS, held_back
from penstock.console.past.moments import AsOf
from penstock.console.read_models.broker_silence import BrokerSilence
from penstock.console.read_models.databases import Databases, is_whole, mark_whole
from penstock.console.read_models.log_batches import MOST_AT_ONCE, Pace, batches, entry
from penstock.console.read_models.log_start import LogStart
from penstock.console.read_models.rebuild import Rebuild, note_start
from penstock.console.read_models.searching.indexer import Indexer
from penstock.events.subjects import Subjects
from penstock.runtime.service import Service

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("penstock.console")

_RETRY_SECONDS = 1.0
_COMPARE_SECONDS = 1.0
_TRIM_SECONDS = 5.0
_TRIM_PAUSE_SECONDS = 0.1
"""Between two small transactions, so that the fold goes first."""
BEHIND_SECONDS = 5.0
"""Rows older than this are stated as not current."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How current the rows are.

    Attributes:
        position: sequence of the last event that was folded.
        as_of: when that event was stored; None before the first.
        behind_seconds: how much older the rows are than the end of the log; 0 where they are at it.
        gap: what of the history is missing, as a sentence; empty where nothing is.
        is_connected: whether the line to the broker stands, and the broker answers.
        silent_since: when the broker answered last, where it does no more although the line stands.
        complete_since: counts and lists are complete for what happened since; None where the whole
            history was read.
        rebuilding: why rows are made anew beside these, and how far that is; empty where they are
            not.
        held_back: what the console leaves out while it is behind, so that rows go first.
        past: what an answer about a past moment rests on; None for what is now.
    """

    position: int
    as_of: datetime | None
    behind_seconds: float
    gap: str
    is_connected: bool = True
    silent_since: datetime | None = None
    complete_since: datetime | None = None
    rebuilding: str = ""
    held_back: tuple[str, ...] = ()
    past: AsOf | None = None


class Projection:
    """Keeps the database that serves at the end of the event log.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        databases: the one that serves, and the one that is made anew beside it.
        changed: called after each transaction with what changed.
        hold_back: called with what is to be left out (:mod:`penstock.console.core.shedding`).
        has_viewers: whether pages are open that are sent changes.

    Attributes:
        folded: how many events this process has folded.
        pace: how soon events are folded.
        rebuild: makes the rows anew.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        databases: Databases,
        changed: Callable[[Changes], None],
        hold_back: Callable[[tuple[str, ...]], None] = lambda _: None,
        has_viewers: Callable[[], bool] = lambda: False,
    ) -> None:
        self._bus, self._subjects, self._changed = bus, subjects, changed
        self._databases, self._hold_back = databases, hold_back
        self.pace = Pace(has_viewers)
        self._position, self._gap, self._is_whole = 0, "", False
        self._complete_since: datetime | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="console-writer")
        self._indexer = Indexer(databases, self.in_writer)
        self.rebuild = Rebuild(bus, subjects, databases, self.in_writer, self._switched)
        self._start = LogStart(bus, subjects)
        self._silence = BrokerSilence(bus.now)
        self._as_of: datetime | None = None
        self._is_caught_up = False
        self._held_back: tuple[str, ...] = ()
        self._advanced, self._has_moved = asyncio.Event(), asyncio.Event()
        self.folded = 0
        self._read_facts()

    @property
    def standing(self) -> Standing:
        """How current the rows are now."""
        return Standing(
            position=self._position,
            as_of=self._as_of,
            behind_seconds=self._behind_seconds,
            gap=self._gap,
            is_connected=self._bus.connected and self._silence.since is None,
            silent_since=self._silence.since if self._bus.connected else None,
            complete_since=self._complete_since,
            rebuilding=self.rebuild.text,
            held_back=self._held_back,
        )

    @property
    def _behind_seconds(self) -> float:
        if self._is_caught_up or self._as_of is None:
            return 0.0
        return max(0.0, self._bus.now() - self._as_of.timestamp())

    async def reached(self, sequence: int, seconds: float) -> bool:
        """Waits until an event is folded, for the reader of its own write; False: not in time."""
        self.pace.watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._position < sequence:
                    self._advanced.clear()
                    await self._advanced.wait()
        return self._position >= sequence

    async def has_moved(self, seconds: float) -> None:
        """Waits until this process has stored a position that is further on than the one it found.

        A console that is killed as soon as it serves has then moved forward all the same. It does
        not wait where there is nothing to read, nor longer than so many seconds.
        """
        moves = [] if self._databases.is_frozen else [self._has_moved]
        if self._databases.next is not None:
            moves.append(self.rebuild.has_moved)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for move in moves:
                    await move.wait()

    async def run(self, service: Service) -> None:
        """Follows until the service stops; starts again where the broker is away."""
        service.spawn(self._trim(service), "retention")
        service.spawn(self._compare_with_end(service), "end of the log")
        service.spawn(self.rebuild.run(service), "rebuild")
        service.spawn(self._indexer.run(service), "index of texts")
        while not service.stopping.is_set():
            try:
                if not self._databases.is_frozen:
                    await self._follow()
            except BusError as error:
                log.warning("the event log cannot be followed, trying again: %s", error)
            await service.pause(_RETRY_SECONDS)

    def close(self) -> None:
        """Ends the writing threads, after what they do now."""
        self._indexer.close()
        self._writer.shutdown(wait=True)

    async def _follow(self) -> None:
        stream = self._subjects.events_stream
        if reason := await self._start.why_not_continued(self._position):
            await self._make_anew(reason)
            return
        await self.in_writer(note_start, self._databases.current, self._start)
        self._read_facts()
        messages = self._bus.follow(stream, [self._subjects.events()], self._position + 1)
        goal = await self._look_for_end()
        await self._note_whole(goal)
        if self._is_caught_up:
            self._has_moved.set()
        async for batch, is_last in batches(messages, MOST_AT_ONCE, self.pace):
            skipped = batch[-1].sequence - self._position - len(batch)
            if skipped > 0 and (reason := await self._start.why_not_continued(self._position)):
                await self._make_anew(reason)
                return
            changes = await self.in_writer(self._apply, batch)
            self._position = max(self._position, batch[-1].sequence)
            self._as_of = batch[-1].at
            self._is_caught_up = is_last
            self.folded += len(batch)
            self._advanced.set()
            self._has_moved.set()
            self._changed(changes)
            await self._note_whole(goal)

    def _apply(self, messages: list[Stored]) -> Changes:
        return self._databases.current.apply([entry(message) for message in messages])

    async def _make_anew(self, reason: str) -> None:
        """Where the log does not continue at the rows: these serve until there are new ones."""
        self._is_caught_up = False
        if self._is_whole:
            self._databases.is_frozen = True
            await self.rebuild.begin(reason, gap=reason)
            return
        log.warning("the rows are made anew from the event log: %s", reason)
        await self.in_writer(self._databases.current.begin_anew, reason)
        self._read_facts()

    def _switched(self) -> None:
        """Another database serves."""
        self._start = LogStart(self._bus, self._subjects)
        self._read_facts()
        self._advanced.set()
        self._changed(Changes({}, sequence=self._position))

    def _read_facts(self) -> None:
        current = self._databases.current
        with current.reading() as rows:
            self._position, self._gap = rows.position, rows.fact("gap") or ""
            since, as_of = rows.fact("complete_since"), rows.fact("as_of")
        self._as_of = datetime.fromisoformat(as_of) if as_of else None
        self._complete_since = datetime.fromisoformat(since) if since else None
        self._is_whole = is_whole(current)

    async def _note_whole(self, goal: int) -> None:
        if not self._is_whole and self._position >= goal:
            await self.in_writer(mark_whole, self._databases.current)
            self._is_whole = True

    async def _look_for_end(self) -> int:
        """Sequence of the last event that there is."""
        stream = self._subjects.events_stream
        end = (await self._bus.extent(stream)).last
        self._is_caught_up = end <= self._position
        return end

    async def _compare_with_end(self, service: Service) -> None:
        """Notes that the rows are behind, where the log has further events and none arrives.

        And that the broker does not answer, which a connection alone does not show.
        """
        while await service.pause(_COMPARE_SECONDS):
            position = self._position
            with self._silence.question():
                extent = await self._bus.extent(self._subjects.events_stream)
                is_stuck = extent.last > position == self._position
                self._is_caught_up = self._is_caught_up and not is_stuck
            self._shed()

    def _shed(self) -> None:
        texts = held_back(self._behind_seconds, self._held_back)
        if texts != self._held_back:
            shown = "; ".join(texts) or "nothing"
            log.warning("%.0f s behind the event log, held back: %s", self._behind_seconds, shown)
            self._held_back = texts
            self._indexer.is_held_back = TEXTS in texts
            self._hold_back(texts)

    async def _trim(self, service: Service) -> None:
        while await service.pause(_TRIM_SECONDS):
            trimmed = 1
            while trimmed:
                trimmed = await self.in_writer(self._trim_some)
                await asyncio.sleep(_TRIM_PAUSE_SECONDS)

    def _trim_some(self) -> int:
        stores = (self._databases.current, self._databases.next)
        now_us = round(time.time() * 1e6)
        return sum(store.trim(now_us) for store in stores if store is not None)

    async def in_writer(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Runs what writes to the database in the one thread that may."""
        call = partial(work, *arguments, **keywords)
        return await asyncio.get_running_loop().run_in_executor(self._writer, call)
