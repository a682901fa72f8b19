"""Shortens the event log from its old end, and carries what lives past that end.

The broker discards nothing by itself. What leaves the log leaves it here, in this order, which can
be cut off anywhere and begun again with the log's first message:

1. the oldest messages are read;
2. for each job, batch and graph in them that has not ended, all that its events led to is stored as
   one event, by compare-and-set on its last one;
3. when all of these are stored, the messages are removed; those of a job that is too large to be
   stored as one event stay.

Of several orchestrators one does it, by a lease; two at once would do no harm.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from penstock.bus import streams
from penstock.bus.protocol import (
    Bus,
    BusError,
    Extent,
    Outgoing,
    Stored,
    StreamFull,
)
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.lifecycle import JobRecord
from penstock.orchestrator.core.logbook import Logbook, Pass
from penstock.orchestrator.core.pace import Pace
from penstock.orchestrator.retention import window
from penstock.orchestrator.retention.inbox_carrier import InboxCarrier
from penstock.orchestrator.retention.job_carrier import BESIDE_BYTES, JobCarrier
from penstock.orchestrator.retention.uncarried import Uncarried
from penstock.orchestrator.retention.unfinished_workflows import UnfinishedWorkflows
from penstock.orchestrator.retention.workflow_carrier import WorkflowCarrier
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.runtime.lease import Lease, Term
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_CHECK_SECONDS, _FAR_SECONDS = 0.5, 2.0
_LEASE_SECONDS = 3.0
_REPORT_SECONDS = 10.0
_PAGE = 1000
_MOST_MESSAGES = 50_000
_LEAST_WINDOW_BYTES, _MOST_WINDOW_BYTES = 250_000, 16_000_000
_DAY_SECONDS = 86_400.0
_EVERYTHING = ">"
_HEADERS_BYTES = 100
_MOST_RESERVES = 16
"""Limit of the log's growth, in reserves: other writers may fill each before a pass has ended."""


class Incomplete(BusError):
    """The messages could not be read completely now; it is tried again."""


class History:
    """Keeps the log within its limit.

    Args:
        dead_letters_from: returns up to which event dead letters have been looked after.

    Attributes:
        removed: messages that left the log.
        book: what is reported of the log.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        source: str,
        workflows: WorkflowTracker,
        dead_letters_from: Callable[[], int],
    ) -> None:
        self._bus, self._source, self._workflows = bus, source, workflows
        self._subjects = Subjects(settings.prefix)
        self._stream = self._subjects.events_stream
        self._dead_letters_from = dead_letters_from
        limit = settings.streams.events_max_bytes
        self._reserve = streams.events_reserve(limit)
        accepted = streams.dispatch_limit(limit + self._reserve)
        max_age_seconds = settings.streams.events_max_age_days * _DAY_SECONDS
        self._pace = Pace(limit, max_age_seconds, accepted)
        self._jobs = JobCarrier(bus, self._subjects, source)
        self._workflow_carrier = WorkflowCarrier(bus, self._subjects, source, workflows)
        self._inbox_carrier = InboxCarrier(bus, self._subjects, source)
        self._unfinished = UnfinishedWorkflows(bus, self._subjects)
        subject = self._subjects.state("cursor", "history")
        self.uncarried = Uncarried(bus, self._subjects, source, self._reserve // 2)
        self._lease = Lease(bus, self._subjects.state_stream, subject, source, _LEASE_SECONDS)
        self.book = Logbook(limit)
        self._report_subject = self._subjects.state("cursor", "log")
        self._reported_at = float("-inf")
        self._removed_bytes = 0  # of the pass that is going on
        self._ahead: list[Stored] = []
        self.removed = 0
        self.leads = self._is_ready = self._is_far = False
        self._extra = 0

    async def run(self, running: Service) -> None:
        """Until the service ends."""
        while not running.stopping.is_set():
            # Given up also when a pass failed: another orchestrator takes over at once.
            async with self._lease.holding() as term:
                try:
                    await self._lead(running, term)
                finally:
                    self.leads = False

    async def _lead(self, running: Service, term: Term) -> None:
        self.leads, self._is_ready, trouble = True, False, ""
        while term.held and await running.pause(_FAR_SECONDS if self._is_far else _CHECK_SECONDS):
            try:
                if not self._is_ready:
                    await self._workflows.look_for_gap()
                    await self._bus.adapt_streams()
                    self._is_ready = True
                await self.shorten(lambda: term.held and not running.stopping.is_set())
                trouble = ""
            except StreamFull as error:
                log.warning("the event log is enlarged, to carry what has not ended: %s", error)
                await self._widen()
            except BusError as error:
                if str(error) != trouble:
                    log.warning("the event log is not shortened: %s", error)
                trouble = str(error)

    async def _widen(self) -> None:
        """Gives the log one more reserve, until a pass has freed space.

        Others store events, too, and may fill that before the pass has carried what lives: then the
        next call adds another. A pass needs far less than one reserve at a time.
        """
        self._extra = min(self._extra + self._reserve, _MOST_RESERVES * self._reserve)
        try:
            await self._bus.adapt_streams(self._extra)
            await self.shorten()
        except BusError as error:
            log.error("the event log is full, and no job can be carried: %s", error)
        else:
            self._extra, self._is_ready = 0, False

    @property
    def carried(self) -> int:
        """Jobs that were stored anew."""
        return self._jobs.carried

    # --- a pass -----------------------------------------------------------------------------------
    async def shorten(self, goes_on: Callable[[], bool] = lambda: True) -> int:
        """One pass, if it is time; returns how many messages left the log. Raises BusError."""
        extent = await self._bus.extent(self._stream)
        age = await self._age(extent, self.uncarried.begins)
        await self._report_state(extent, age)
        began = time.monotonic()
        self._is_far = self._pace.is_far(extent.bytes, age)
        if not extent.messages or not self._pace.is_due(extent.bytes, age, began):
            return 0
        frees_space = self._pace.needs_space(extent.bytes, began)
        before, end = self.removed, extent.last
        self._removed_bytes = 0
        self._jobs.begin()
        self.uncarried.begin()
        self._ahead = []
        is_enough, begins = False, extent.first
        while extent.messages and begins <= end and not is_enough and goes_on():
            kept_from = math.inf if frees_space else self._bus.now() - self._pace.kept_seconds
            begins = await self._shorten_once(extent, begins, kept_from)
            extent = await self._bus.extent(self._stream)
            frees_space = frees_space and not self._pace.has_space(extent.bytes)
            age = await self._age(extent, begins)
            is_enough = not frees_space and age <= self._pace.kept_seconds
        if is_enough or begins > end:  # else it was cut short, and goes on as soon as it can
            living = min(self._jobs.bytes + self.uncarried.bytes, extent.bytes)
            self._pace.passed(living, began, time.monotonic())
        if extent.max_bytes > self._pace.limit + self._reserve:
            self._is_ready = False  # the stream has more than it should; it may give it back now
        part = Pass(self._removed_bytes, self._jobs.bytes, self._jobs.oldest)
        self.book.passed(self._bus.now(), part, extent.bytes)
        return self.removed - before

    async def _report_state(self, extent: Extent, age_seconds: float) -> None:
        """Stores the state of the log for :mod:`penstock.health`, every few seconds."""
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            facts = replace(
                self.book.facts(self._bus.now(), extent.bytes, age_seconds),
                uncarried=len(self.uncarried.names),
                uncarried_bytes=self.uncarried.bytes,
                uncarried_name=" ".join(min(self.uncarried.names, default=())),
            )
            await self._bus.append(Outgoing(self._report_subject, msgspec.json.encode(facts)))
            self._reported_at = time.monotonic()

    async def _age(self, extent: Extent, begins: int) -> float:
        """Seconds since the first message was stored, of those from sequence ``begins`` on."""
        if not extent.messages:
            return 0.0
        first = await self._bus.next(self._stream, _EVERYTHING, max(extent.first, begins))
        return self._bus.now() - first.at.timestamp() if first else 0.0

    async def _shorten_once(self, extent: Extent, begins: int, kept_from: float) -> int:
        """Reads one window, carries what lives in it, removes it. Raises BusError.

        Args:
            begins: sequence at which the window begins; before it only uncarried jobs are left.
            kept_from: POSIX seconds; what was stored since stays.

        Returns:
            Where the next one begins.
        """
        begins = max(begins, extent.first)
        messages, following = await self._read(extent, begins, kept_from)
        part = window.read(messages)
        if not part.through and not self.uncarried.names:
            raise Incomplete(f"nothing of {self._stream} can be read from {begins} on")
        if not part.through:  # what was behind has left, too
            return extent.last + 1
        await self._workflow_carrier.catch_up(part)
        stay, through = set(self.uncarried.names), part.through
        ahead = window.read(following)
        await self._unfinished.look_up(part, ahead)
        living = window.living(part, ahead, stay, self._dead_letters_from(), self._is_needed)
        jobs = await self._unfinished.without_forgotten(living)
        workflows = [name for name in part.workflows if name not in stay]
        left = await self._jobs.carry(jobs, through)
        too_large = [("job", one.record.id) for one in left if self._is_kept(one.record)]
        await self._inbox_carrier.carry(part.inboxes, through)
        self.uncarried.keep(
            [*too_large, *await self._workflow_carrier.carry(workflows, through)], part
        )
        await self.uncarried.remove(self._stream, part)
        self.removed += part.through - begins + 1
        removed = part.sizes.keys() - self.uncarried.names
        removed_bytes = sum(part.sizes[name] for name in removed)
        self._removed_bytes += BESIDE_BYTES * len(messages) + removed_bytes
        return part.through + 1

    def _is_kept(self, record: JobRecord) -> bool:
        return window.is_kept(record, self._dead_letters_from(), self._is_needed)

    def _is_needed(self, job_id: str) -> bool:
        """Whether a graph or workflow that has not ended may still ask how this job ended."""
        step = derived_ids.step(job_id)
        if step is None:
            return False
        return ("graph", step[0]) in self._workflows.unfinished or self._unfinished.awaits(job_id)

    # --- reading ----------------------------------------------------------------------------------
    async def _read(
        self, extent: Extent, begins: int, kept_from: float
    ) -> tuple[list[Stored], list[Stored]]:
        """The log's oldest messages from a sequence on, none missing, and as many that follow.

        None that is to be kept, but for the first: the window is not empty. Each is read once a
        pass: what follows is kept for the next call. Raises BusError.
        """
        most = min(max(self._reserve // 8, _LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)
        messages = [one for one in self._ahead if one.sequence >= begins]
        if messages and messages[0].sequence != begins:
            messages = []  # something stays in between, or has left
        following = messages[-1].sequence + 1 if messages else begins
        await self._read_on(messages, following, extent.last, 2 * most)
        size = 0
        for index, one in enumerate(messages):
            is_young = index > 0 and one.at.timestamp() >= kept_from
            if size >= most or index >= _MOST_MESSAGES or is_young:
                self._ahead = messages[index:]
                return messages[:index], self._ahead
            size += _size(one)
        self._ahead = []
        return messages, []

    async def _read_on(self, messages: list[Stored], following: int, last: int, most: int) -> None:
        """Adds what follows, up to a size."""
        size = sum(map(_size, messages))
        while size < most and len(messages) < 2 * _MOST_MESSAGES and following <= last:
            page = await self._bus.history(self._stream, _EVERYTHING, _PAGE, following)
            for stored in page:
                if stored.sequence < following:
                    continue  # of a replica that lags behind the last removal
                if stored.sequence > last or size >= most:
                    return
                if stored.sequence != following:
                    await self._check_gap(following, stored.sequence)
                messages.append(stored)
                size += _size(stored)
                following = stored.sequence + 1
            if not page:
                break

    async def _check_gap(self, expected: int, sequence: int) -> None:
        """Direct reads are answered by any replica, which may lag behind: the leader decides."""
        following = await self._bus.next(self._stream, _EVERYTHING, expected)
        if following is None or following.sequence != sequence:
            raise Incomplete(f"a replica of {self._stream} lags behind at sequence {expected}")


def _size(stored: Stored) -> int:
    return len(stored.body) + len(stored.subject) + _HEADERS_BYTES
