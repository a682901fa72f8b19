"""Reports of streaming queries as they come over the bus: whose counts, and what is refused."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.bus.protocol import Bus
from penstock.config.load import check
from penstock.config.sources import SourceTable
from penstock.events.stream_report import BatchProgress, StreamReport
from penstock.events.subjects import Subjects
from penstock.metrics.core.sources.look import SourceFault, StreamLook
from penstock.metrics.sources.registry import open_source
from penstock.metrics.stream_listener import StreamListener
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects()


class Line:
    """A listener for the query ``orders``, and the bus that reports come over."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.listener = StreamListener(bus, SUBJECTS, ["orders"])

    async def send(self, body: bytes, subject: str = "orders") -> None:
        await self.bus.signal(SUBJECTS.stream_report(subject), body)

    async def report(self, number: int, subject: str = "orders", **fields: Any) -> None:
        values = {"query": "orders", "run_id": "r1", "at": 9.0, "started_at": 1.0, **fields}
        await self.send(msgspec.json.encode(StreamReport(number=number, **values)), subject)

    async def newest(self, number: int, run_id: str = "r1") -> None:
        def is_there() -> bool:
            newest = self.listener.newest("orders")
            return newest is not None and (newest[0].number, newest[0].run_id) == (number, run_id)

        await eventually(is_there, 5.0, f"report {number} of {run_id}")


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    bus = MemoryBus(settings=check({}))
    line = Line(bus.client())
    subscriptions = await line.listener.listen()
    yield line
    for subscription in subscriptions:
        await subscription.unsubscribe()


async def test_the_newest_report_of_a_run_counts_whatever_the_order(line) -> None:
    await line.report(2)
    await line.newest(2)
    await line.report(1)
    await line.report(3)
    await line.newest(3)


async def test_a_query_that_was_started_anew_counts_and_its_former_run_does_not(line) -> None:
    await line.report(7)
    await line.newest(7)
    await line.report(1, run_id="r2", started_at=2.0)
    await line.newest(1, "r2")
    await line.report(8)
    await line.report(2, run_id="r2", started_at=2.0)
    await line.newest(2, "r2")


async def test_a_run_that_ended_gives_way_to_any(line) -> None:
    await line.report(7, started_at=5.0, ended=True)
    await line.newest(7)
    await line.report(1, run_id="r0", started_at=4.0)  # by a driver whose clock is behind
    await line.newest(1, "r0")


async def test_the_largest_number_does_not_silence_its_run_for_good(line, monkeypatch) -> None:
    await line.report(2**63 - 1, ended=True)
    await line.newest(2**63 - 1)
    monkeypatch.setattr("penstock.metrics.stream_listener._TAKEN_OVER_SECONDS", 0.0)
    await line.report(8)
    await line.newest(8)


BATCH = {"batch_id": 1, "triggered_at": 1.0}
FORGED = [
    b"{",
    b"[" * 100_000,
    b"x" * 70_000,
    *(
        msgspec.json.encode({"type": "StreamReport", "query": "orders", "run_id": "r", "at": 1.0,
                             "number": 9, "started_at": 1.0, **fields})
        for fields in (
            {"at": -1.0},
            {"number": 10**30},
            {"at": math.nan},  # encoded as null
            {"query": "x" * 65},
            {"batches": [BATCH] * 17},
            {"batches": [{**BATCH, "seconds": 1e300}]},
            {"batches": [{**BATCH, "rows": -1}]},
            {"batches": [{**BATCH, "sources": [{}] * 9}]},
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("body", FORGED, ids=range(len(FORGED)))
async def test_a_forged_report_is_ignored_and_stops_nothing(line, body) -> None:
    await line.report(1)
    await line.newest(1)
    await line.send(body)
    await line.report(2)
    await line.newest(2)


async def test_a_report_in_the_name_of_another_query_is_ignored(line) -> None:
    await line.report(1)
    await line.newest(1)
    await line.report(5, query="clicks")
    await line.report(2)
    await line.newest(2)


async def test_the_source_names_silence_and_no_end(line, monkeypatch) -> None:
    source = open_source("progress", SourceTable(kind="spark-stream"), line.listener)
    [missing] = (await source.look(["orders"])).values()
    assert isinstance(missing, SourceFault) and "call report_progress(spark)" in missing.text
    await line.report(1, batches=(BatchProgress(**BATCH),))
    await line.newest(1)
    [look] = (await source.look(["orders"])).values()
    assert isinstance(look, StreamLook) and look.report.batches and look.behind_seconds < 5

    report, _ = line.listener.newest("orders")
    monkeypatch.setattr(line.listener, "newest", lambda _: (report, 60.0))
    [silent] = (await source.look(["orders"])).values()
    assert isinstance(silent, SourceFault) and "no longer reports" in silent.text
    ended = msgspec.structs.replace(report, ended=True)
    monkeypatch.setattr(line.listener, "newest", lambda _: (ended, 60.0))
    [look] = (await source.look(["orders"])).values()
    assert isinstance(look, StreamLook) and look.behind_seconds == 0
    await source.close()
