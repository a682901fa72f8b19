"""What a client refuses about batches, over the in-memory bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.bus.protocol import Extent, Outgoing, StreamFull
from penstock.bus.streams import dispatch_limit
from penstock.config.load import check
from penstock.events.batch import BatchClosed, BatchProgressed, BatchStopping, Counts
from penstock.events.envelope import encode
from penstock.jobs import Client, JobRefused, derived_ids, job, registry
from penstock.jobs.batches.batch_record import BatchState
from penstock.testing.memory.bus import MemoryBus


@job(queue="reports")
def build(table: str) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[build.name] = build
    yield
    del registry.REGISTRY[build.name]


async def test_a_job_that_could_not_be_counted_is_refused() -> None:
    client = Client(MemoryBus("p"), prefix="p")
    batches = client.batches
    async with batches.open(batch_id="big") as batch:
        ids = await batches.add(
            batch.id, [build(table="a")], key="k", start=derived_ids.MAX_JOBS - 1
        )
        places = [derived_ids.member(job_id) for job_id in ids]
        assert [place.number for place in places if place] == [999_999]
        with pytest.raises(JobRefused, match="at most 1,000,000 jobs are added under one key"):
            await batches.add(
                batch.id, [build(table="b")] * 2, key="k", start=derived_ids.MAX_JOBS - 1
            )
        await batches.add(batch.id, [build(table="c")])


async def test_a_batch_names_its_total_where_its_creator_knows_it() -> None:
    batches = Client(MemoryBus("p"), prefix="p").batches
    known = await batches.create([build(table="a"), build(table="b")])
    unknown = await batches.create(build(table=name) for name in "ab")
    assert [(await batches.show(one)).total for one in (known, unknown)] == [2, None]


async def test_a_creator_that_comes_late_does_not_cancel_what_another_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = Client(MemoryBus("p"), prefix="p").batches
    show, is_first = batches.show, True

    async def overtaken(batch_id: str) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            await batches.close(batch_id)
        return await show(batch_id)

    monkeypatch.setattr(batches, "show", overtaken)
    with pytest.raises(JobRefused, match="is running: no jobs can be added"):
        await batches.create([build(table="a")], batch_id="nightly")
    assert (await show("nightly")).state is BatchState.RUNNING


class Busy:
    """A bus on which something else happens to the batch before each event of a kind."""

    def __init__(self, bus: MemoryBus, kind: type) -> None:
        self._bus, self._kind = bus, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def append(self, message: Outgoing) -> int:
        if message.subject.endswith(self._kind.__name__):
            other = BatchProgressed(batch_id="b", counts=Counts())
            await self._bus.append(Outgoing(self._bus.subjects.event(other), encode(other)))
        return await self._bus.append(message)


@pytest.mark.parametrize(("verb", "kind"), [("close", BatchClosed), ("cancel", BatchStopping)])
async def test_a_change_that_is_lost_each_time_says_so(verb: str, kind: type) -> None:
    client = Client(Busy(MemoryBus("p"), kind), prefix="p")  # type: ignore[arg-type]
    with pytest.raises(JobRefused, match="changes too quickly"):
        async with client.batches.open(batch_id="b"):
            await getattr(client.batches, verb)("b")
    assert (await client.batches.show("b")).state is not BatchState.RUNNING


def _small_log() -> MemoryBus:
    return MemoryBus(settings=check({"prefix": "p", "streams": {"events_max_bytes": 1_000_000}}))


async def _fill(bus: MemoryBus) -> None:
    """Stores events of another kind up to the limit for dispatches, whatever the size of a job."""
    stream, subject = bus.subjects.events_stream, bus.subjects.events("worker", "filler", "Noise")
    while (extent := await bus.extent(stream)).bytes < dispatch_limit(extent.configured_bytes):
        await bus.append(Outgoing(subject, b"x" * 1_000))


async def _batch_ids(bus: MemoryBus) -> list[str]:
    names = await bus.count(bus.subjects.events_stream, bus.subjects.events("batch"))
    return sorted({name.split(".")[-2] for name in names})


async def test_a_batch_that_finds_the_log_full_is_not_left_open() -> None:
    bus = _small_log()
    client = Client(bus, prefix="p")
    with pytest.raises(StreamFull, match=r"batch \S+ is cancelled: the event log is full"):
        await client.batches.create(build(table="x" * 100_000) for _ in range(50))
    [batch_id] = await _batch_ids(bus)
    assert (await client.batches.show(batch_id)).state is BatchState.STOPPING
    await _fill(bus)
    with pytest.raises(StreamFull):
        await Client(bus, prefix="p").batches.create([build(table="a")])
    assert await _batch_ids(bus) == [batch_id]


async def test_a_batch_with_an_id_of_ones_own_stays_open_where_the_log_is_full() -> None:
    bus = _small_log()
    client = Client(bus, prefix="p")
    with pytest.raises(StreamFull, match="batch mine stays open, for another try"):
        await client.batches.create(
            (build(table="x" * 100_000) for _ in range(50)), batch_id="mine"
        )
    assert (await client.batches.show("mine")).state is BatchState.OPEN


class Shortened:
    """A bus whose event log is shortened after it was found full some times."""

    def __init__(self, bus: MemoryBus, times: int) -> None:
        self._bus, self._times = bus, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def extent(self, stream: str) -> Extent:
        extent = await self._bus.extent(stream)
        if extent.bytes > 0.9 * dispatch_limit(extent.configured_bytes):
            self._times -= 1
        if not self._times:
            others = self._bus.subjects.events("job")
            await self._bus.remove(stream, others, extent.last + 1)
        return extent


async def test_a_batch_waits_for_a_full_log_to_be_shortened() -> None:
    bus = Shortened(_small_log(), times=3)
    client = Client(bus, prefix="p")  # type: ignore[arg-type]
    batch_id = await client.batches.create(build(table="x" * 100_000) for _ in range(40))
    assert (await client.batches.show(batch_id)).state is BatchState.RUNNING
