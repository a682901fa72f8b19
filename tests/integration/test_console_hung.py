"""A console that hangs costs the broker a bounded amount, and jobs that are stored nothing.

What it costs in jobs a second and start times is measured by ``benchmarks/console.py --only
beside``.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from tests.integration.test_console import Running
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker

EVENTS, EVENT_BYTES, AT_ONCE = 3_000, 50_000, 100
"""150 MB, three times: much more than the broker and the kernel hold for one connection."""
MOST_PENDING_BYTES = 80 * 2**20
"""The broker cuts a connection off for which it holds 64 MB."""
MOST_GROWTH_BYTES = 250 * 2**20


async def store(bus: NatsBus, first: int) -> int:
    """Stores jobs with large arguments; the sequence of the last."""
    subjects, sequence = Subjects(), 0
    for start in range(first, first + EVENTS, AT_ONCE):
        events = [
            JobDispatched(
                job_id=f"job-{number}", queue="reports", function="shop.load",
                payload=os.urandom(EVENT_BYTES),
            )
            for number in range(start, start + AT_ONCE)
        ]  # fmt: skip
        stored = await bus.append_many(
            [Outgoing(subjects.event(one), encode(one)) for one in events]
        )
        for answer in stored:
            assert isinstance(answer, int), answer
            sequence = max(sequence, answer)
    return sequence


class Watched:
    """What the broker holds for its clients."""

    def __init__(self, broker: Broker) -> None:
        assert broker.child is not None
        self._url, self._process = broker.monitor_url, psutil.Process(broker.child.pid)

    def _get(self, path: str) -> Any:
        with urlopen(f"{self._url}/{path}", timeout=10) as answer:
            return json.load(answer)

    @property
    def pending_bytes(self) -> int:
        """Of the connection that reads slowest."""
        connections = self._get("connz?limit=1024")["connections"]
        return max(int(one["pending_bytes"]) for one in connections)

    @property
    def consumers(self) -> int:
        return int(self._get("jsz")["consumers"])

    @property
    def resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)


@pytest.mark.long
async def test_a_hung_console_costs_the_broker_a_bounded_amount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", "25")  # what the broker has freed is not counted
    with Broker() as broker:
        settings = check(
            {"nats": {"url": broker.url}, "streams": {"events_max_bytes": 4_000_000_000}}
        )
        bus = await connect(settings, makes_streams=True)
        watched = Watched(broker)
        console = Running(settings, tmp_path)
        try:
            last = await store(bus, 0)  # as much as later, so that its own memory has grown

            def is_at(end: int) -> bool:
                standing = (console.get("/health") or {}).get("standing", {})
                return bool(standing.get("position") == end)

            await eventually(lambda: is_at(last), 120, f"the event {last}")
            before, consumers = watched.resident_bytes, watched.consumers
            console.child.signal(signal.SIGSTOP)
            most_pending = 0
            for part in range(1, 4):
                last = await store(bus, part * EVENTS)
                most_pending = max(most_pending, watched.pending_bytes)
            assert most_pending < MOST_PENDING_BYTES
            assert watched.resident_bytes - before < MOST_GROWTH_BYTES
            assert watched.consumers <= consumers
            console.child.signal(signal.SIGCONT)
            await eventually(lambda: is_at(last), 240, f"the event {last}")
            assert console.get("/jobs/stats")["waiting"] == 4 * EVENTS
        finally:
            console.child.signal(signal.SIGCONT)
            console.child.end(10.0)
            await bus.close()
