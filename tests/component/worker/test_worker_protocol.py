"""Two workers, one broker, any order of events: each job ends once, and none is lost.

What a worker sends without an answer (acknowledgements, give-backs) may arrive much later,
as from a process that was frozen or cut off; claims lapse whenever; messages come twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.component.worker.given import QUEUE, settings
from tests.histories import check, read_all
from tests.unit.jobs.telling import BROKEN

from penstock.bus.protocol import Delivery, Outgoing
from penstock.config.topology import pools
from penstock.jobs import Backoff, Client, job, registry
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.core.company import Company
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.recording import Recorder

_ROUNDS = 60


@job(queue=QUEUE, tries=3, backoff=Backoff(first_seconds=0))
def any_job() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[any_job.name] = any_job
    logging.getLogger("penstock.worker").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("penstock.worker").setLevel(logging.NOTSET)
    registry.REGISTRY.pop(any_job.name, None)


class Late(MemoryBus):
    """What is sent without an answer stays on its way until :meth:`arrive`."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(settings=settings(max_lost_workers=1000), now=now)
        self._under_way: list[tuple[bool, list[Any]]] = []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._under_way.append((True, list(deliveries)))

    async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
        self._under_way.append((False, list(ack_subjects)))

    async def arrive(self, which: int | None = None) -> None:
        """The nth of those under way, or all."""
        if which is None:
            chosen, self._under_way = self._under_way, []
        else:
            chosen = [self._under_way.pop(which % len(self._under_way))] if self._under_way else []
        for acknowledged, what in chosen:
            await (super().ack(what) if acknowledged else super().give_back(what))


class Play:
    """A broker, two workers and the jobs between them."""

    def __init__(self) -> None:
        self.now = 1.8e9
        self.bus = Late(lambda: self.now)
        self.client = Client(self.bus.client(), prefix="p")
        self.subjects = self.bus.subjects
        profile = pools(found := settings(max_lost_workers=1000))[QUEUE].profile
        self.claims = [Claims(self.bus, found, profile, "h", name) for name in "ab"]
        self.recorders = [Recorder(self.bus, each, 10_000) for each in self.claims]
        self.held: list[tuple[int, ClaimedJob]] = []
        self.ids: list[str] = []

    async def dispatch(self, _: int) -> None:
        self.ids.append(await self.client.dispatch(any_job()))

    async def double(self, which: int) -> None:
        """The first message of a job, once more."""
        if self.ids:
            job_id = self.ids[which % len(self.ids)]
            view = await self.client.job(job_id)
            headers = queue_messages.headers(job_id, view.events[0][0], 1, {})
            message = Outgoing(self.subjects.queue(QUEUE), view.record.payload, headers)
            await self.bus.append(message)

    async def win(self, which: int) -> None:
        side = which % 2
        deliveries = await self.bus.puller(QUEUE).fetch(1 + which % 3, 0)
        won = await self.claims[side].win(deliveries, Company(runs_one=True))
        self.held += [(side, each) for each in won]

    def _take(self, which: int) -> tuple[int, ClaimedJob] | None:
        return self.held.pop(which % len(self.held)) if self.held else None

    async def complete(self, which: int) -> None:
        if taken := self._take(which):
            side, held = taken
            await self.recorders[side].record([FinishedJob(held, Outcome(result=b"\xc0"))])

    async def fail(self, which: int) -> None:
        if taken := self._take(which):
            side, held = taken
            await self.recorders[side].record([FinishedJob(held, Outcome(error=BROKEN))])

    async def release(self, which: int) -> None:
        if taken := self._take(which):
            side, held = taken
            await self.claims[side].release([held], "asked to end")

    async def die(self, which: int) -> None:
        """A worker loses what it holds and tells nobody."""
        self._take(which)

    async def cancel(self, which: int) -> None:
        if self.ids:
            await self.client.cancel(self.ids[which % len(self.ids)])

    async def tag(self, which: int) -> None:
        if self.ids:
            await self.client.tags.add(self.ids[which % len(self.ids)], f"t{which}")

    async def lapse(self, _: int) -> None:
        self.now += 2
        self.bus.tick()

    async def arrive(self, which: int) -> None:
        await self.bus.arrive(which)

    async def to_the_end(self) -> None:
        """All that is under way arrives, and the workers go on until the queue is empty."""
        for _ in range(_ROUNDS):
            await self.bus.arrive()
            await self.lapse(0)
            await self.win(2)
            while self.held:
                await self.complete(0)
            await self.bus.arrive()
            depth = (await self.bus.depths())[QUEUE]
            if depth.waiting == depth.claimed == 0:
                break
        check(await read_all(self.bus, self.subjects), self.ids)


STEPS = (
    "dispatch", "win", "win", "win", "complete", "fail", "release", "die", "lapse", "lapse",
    "arrive", "arrive", "double", "cancel", "tag", "tag",
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=40))
@examples(max_examples=80, deadline=None)
def test_no_order_of_events_loses_a_job_or_ends_it_twice(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        scene = Play()
        await scene.dispatch(0)
        for step, which in steps:
            await getattr(scene, step)(which)
        await scene.to_the_end()

    asyncio.run(play())
