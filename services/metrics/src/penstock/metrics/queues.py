"""Looking at queues: all depths in a few requests, the heads of the lines that moved, old lines."""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
import time
from collections.abc import Callable, Iterable
from itertools import chain

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, QueueDepth, Stored
from penstock.events.subjects import Subjects
from penstock.jobs.queues.discovery import DISCOVER_SECONDS, MOST_QUEUES, QueueDiscovery
from penstock.jobs.queues.pauses import QueuePauses, Resumptions
from penstock.jobs.queues.queue_messages import JOB
from penstock.metrics.core.line import Spot, sequences
from penstock.metrics.core.queue import Head, Look, Queue

log = logging.getLogger("penstock.metrics")

LOOK_UPS_PER_SECOND = 200
LINES_PER_SECOND = 10
"""Old lines looked at, in four look-ups each."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AT_ONCE = 20
_REFUSED_SECONDS = 30.0
_DELAYED_SECONDS = 5.0
_NO_LINES_SECONDS = 0.5
_DELAYED_SHARE = 0.02
"""Counting schedules takes at most this share of the time, however many there are."""


class QueueWatch:
    """The configured queues as the broker sees them.

    Attributes:
        queues: by name.
        cost_seconds: what the last look at all of them took.
        has_new: the last look made queues that can be measured from the next on.
        discovered: queues of the default pool that were found and looked at since it was emptied.

    Args:
        discovery: finds queues that no pool names; None where no pool takes them.
        discovered_queue: makes one of these.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        queues: Iterable[Queue],
        discovery: QueueDiscovery | None = None,
        discovered_queue: Callable[[str], Queue] = Queue,
    ) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.cost_seconds = 0.0
        self.has_new = False
        self._bus = bus
        self._subjects = subjects
        self._allowance = float(LOOK_UPS_PER_SECOND)
        self._at = time.monotonic()
        self._strangers: set[str] = set()
        self._refused: dict[str, float] = {}
        self._discovery, self._discovered_queue = discovery, discovered_queue
        self._discover_at = 0.0
        self._discovered: set[str] = set()
        self._new: dict[str, Queue] = {}
        self.discovered: list[Queue] = []
        self._pausing = QueuePauses(bus, subjects, "metrics")
        self._resumptions = Resumptions()

    async def look(self) -> None:
        """Measures every queue; raises BusUnavailable or BusRefused and then changed nothing."""
        if self._discovery is not None:
            await self._discover(self._discovery)
        at = time.monotonic()
        depths = await self._bus.depths()
        self.cost_seconds = time.monotonic() - at
        if self._go_on(depths.values()):
            self._resumptions.note((await self._pausing.all()).values())
        for name, depth in depths.items():
            if queue := self.queues.get(name):
                queue.see(_look(depth, at))
                if new := self._new.pop(name, None):
                    self.discovered.append(new)
            else:
                self._stranger(name)
        await self._ensure(self.queues.keys() - depths.keys(), at)
        self._allowance = min(
            self._allowance + (at - self._at) * LOOK_UPS_PER_SECOND, LOOK_UPS_PER_SECOND
        )
        self._at = at

    async def _discover(self, discovery: QueueDiscovery) -> None:
        """Finds queues of the default pool. One stays known until this process ends."""
        now = time.monotonic()
        if now < self._discover_at:
            return
        for name in await discovery.queues():
            if name not in self.queues and len(self._discovered) < MOST_QUEUES:
                self._discovered.add(name)
                self.queues[name] = self._new[name] = self._discovered_queue(name)
                log.info("queue %s is in no pool: the default pool takes it", name)
        self._discover_at = now + DISCOVER_SECONDS

    def _go_on(self, depths: Iterable[QueueDepth]) -> bool:
        """Some were paused until now, or may have been before this process began."""
        for depth in depths:
            queue = self.queues.get(depth.queue)
            if queue and not depth.paused and (queue.look is None or queue.look.paused):
                return True
        return False

    async def look_up_heads(self) -> None:
        """When the first waiting jobs came: as many as may be asked now, longest ago first."""
        wanting = (queue for queue in self.queues.values() if queue.wants_head)
        turn = heapq.nsmallest(int(self._allowance), wanting, key=_looked_up_at)
        self._allowance -= len(turn)
        await bounded.gather(self._look_up, turn, _AT_ONCE)

    async def _look_up(self, queue: Queue) -> None:
        look = queue.look
        if look is None:
            return
        after = look.delivered_sequence
        subject = self._subjects.queue(queue.name)
        first = await self._bus.next(self._subjects.jobs_stream, subject, after + 1)
        came = self._came(queue.name, first.at.timestamp()) if first else None
        queue.head = Head(time.monotonic(), after, came, _job(first) if first else "")

    def _came(self, queue: str, stored_at: float) -> float:
        """When a job could first be had: what it waited in a paused queue is not counted."""
        return max(stored_at, self._resumptions.last(queue, self._bus.now()))

    async def look_up_lines(self) -> float:
        """How old the jobs of long or old lines are; returns after how many seconds to go on.

        Beside the measuring: it waits for none of this.
        """
        now, wall_now = time.monotonic(), time.time()
        wanting = (queue for queue in self.queues.values() if queue.wants_line(now, wall_now))
        turn = heapq.nsmallest(LINES_PER_SECOND, wanting, key=_line_looked_up_at)
        await asyncio.gather(*(self._look_up_line(queue) for queue in turn))
        return len(turn) / LINES_PER_SECOND or _NO_LINES_SECONDS

    async def _look_up_line(self, queue: Queue) -> None:
        look = queue.look
        queue.line.look_up(time.monotonic(), time.time())
        stream, subject = self._subjects.jobs_stream, self._subjects.queue(queue.name)
        last = await self._bus.last(stream, subject)
        if last is None or look is None:
            return
        samples = await asyncio.gather(
            *(
                self._bus.history(stream, subject, 1, sequence)
                for sequence in sequences(look.delivered_sequence, last.sequence)
            )
        )
        queue.line.spots = tuple(
            Spot(
                stored.sequence,
                self._came(queue.name, stored.at.timestamp()),
                stored.behind,
                _job(stored),
            )
            for stored in (*chain(*samples), replace(last, behind=0))
            if stored.behind is not None
        )

    async def count_delayed(self) -> float:
        """Counts the schedules of every queue; returns after how many seconds to count again."""
        start = time.monotonic()
        schedules = await self._bus.count(
            self._subjects.jobs_stream, self._subjects.schedule("*", "*")
        )
        counts = dict.fromkeys(self.queues, 0)
        for subject, count in schedules.items():
            name = subject.rsplit(".", 2)[-2]
            if name in counts:
                counts[name] += count
        for name, count in counts.items():
            self.queues[name].delayed = count
        return max(_DELAYED_SECONDS, (time.monotonic() - start) / _DELAYED_SHARE)

    async def _ensure(self, missing: Iterable[str], now: float) -> None:
        """A queue that was never used has no consumer, and would never be measured."""
        wanted = sorted(name for name in missing if self._refused.get(name, 0.0) <= now)
        answers = await bounded.gather(self._ensure_one, wanted, _AT_ONCE)
        refusals = [(name, error) for name, error in zip(wanted, answers, strict=True) if error]
        self.has_new = len(wanted) > len(refusals)
        if refusals:
            self._refused |= {name: now + _REFUSED_SECONDS for name, _ in refusals}
            name, error = refusals[0]
            log.warning("%d queues cannot be measured yet, e.g. %s: %s", len(refusals), name, error)

    async def _ensure_one(self, name: str) -> BusError | None:
        try:
            await self._bus.ensure_queue(name)
        except BusError as error:
            return error
        return None

    def _stranger(self, name: str) -> None:
        if name not in self._strangers:
            self._strangers.add(name)
            log.info("queue %s is in no pool (or excluded): it is not measured", name)


def _job(stored: Stored) -> str:
    """The id of a waiting job; empty for a header that cannot be one."""
    job = stored.headers.get(JOB, "")
    return job if _ID.fullmatch(job) else ""


def _look(depth: QueueDepth, at: float) -> Look:
    return Look(
        at=at,
        waiting=0 if depth.paused else depth.waiting,
        claimed=depth.claimed,
        delivered=depth.delivered,
        delivered_sequence=depth.delivered_sequence,
        redelivered=depth.redelivered,
        paused=depth.paused,
    )


def _line_looked_up_at(queue: Queue) -> float:
    return queue.line.looked_up_at or 0.0


def _looked_up_at(queue: Queue) -> float:
    return queue.head.at if queue.head else 0.0
