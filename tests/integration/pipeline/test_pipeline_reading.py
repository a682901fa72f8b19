"""Ranges of a stream, read in order, on a real broker and without Spark."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.integration.guarded import GuardedBroker
from tests.integration.pipeline.landing import started, tap
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.bus.protocol import BusRefused, BusUnavailable, Outgoing
from penstock.config import Settings
from penstock.pipeline.broker.pulling import Message, read_range, sequence_before
from penstock.pipeline.core.options import ReadOptions
from penstock.runtime.broker import Broker


def options(url: str, **others: Any) -> ReadOptions:
    return ReadOptions(servers=url, stream="S", fetch=10, timeout_seconds=15, **others)


def sequences(chunks: list[list[Message]]) -> list[int]:
    return [message.sequence for chunk in chunks for message in chunk]


def test_a_range_is_read_on_though_the_broker_is_killed_meanwhile(broker: Broker) -> None:
    with tap(broker.url) as water:
        water.make("S", "s.*")
        water.fill("s.a", [b"x"] * 55)
        water.fill("s.b", [b"x"] * 5)
    reading = read_range(options(broker.url), 3, 58)
    chunks = [next(reading)]
    broker.restart()
    chunks += list(reading)
    assert sequences(chunks) == list(range(3, 59))

    with tap(broker.url) as water:
        for gone in (1, 20, 55):
            water.ask("STREAM.MSG.DELETE.S", {"seq": gone})
        only_a = options(broker.url, subjects="s.a")
        found = sequences(list(read_range(only_a, 1, 60)))
        assert found == [n for n in range(1, 56) if n not in {1, 20, 55}]
        assert sequences(list(read_range(options(broker.url, subjects="s.c"), 1, 60))) == []

        extent = water.link.extent("S")
        early, late = datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
        assert sequence_before(water.link, only_a, early, extent) == 1
        assert sequence_before(water.link, only_a, late, extent) == 60


def test_a_stream_that_is_not_there_is_named(nats_url: str) -> None:
    with pytest.raises(BusRefused, match="stream not found"):
        list(read_range(options(nats_url), 1, 5))


def test_a_broker_that_is_not_there_is_given_up_in_time() -> None:
    nobody = ReadOptions(servers="nats://127.0.0.1:1", stream="S", timeout_seconds=0.5)
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1:1"):
        list(read_range(nobody, 1, 5))


async def _log(settings: Settings, count: int) -> None:
    """Makes the streams, and stores events."""
    bus = await connect(settings)
    subject = "penstock.events.job.j.JobStarted"
    await bus.append_many([Outgoing(subject, started(number)) for number in range(count)])
    await bus.close()


def test_a_guarded_log_is_read_with_the_pipeline_s_key(
    settings: MakeSettings, tmp_path: Path
) -> None:
    settings.prefix = "penstock"
    with GuardedBroker(tmp_path) as guarded:
        hasty = guarded.settings(settings, "pipeline", nats={"connect_timeout_seconds": 1})
        with pytest.raises(BusUnavailable, match=r"no stream JOBS yet, .* the orchestrator does"):
            asyncio.run(connect(hasty))
        asyncio.run(_log(guarded.settings(settings, "orchestrator"), 25))
        ours = guarded.settings(settings, "pipeline").nats
        reach = {"servers": ours.url, "nkey": ours.nkey_file, "ca_file": ours.ca_file}
        wanted = ReadOptions(**reach, stream="EVENTS", fetch=10, timeout_seconds=15)
        assert sequences(list(read_range(wanted, 1, 25))) == list(range(1, 26))
        assert guarded.violations() == []
        worker = guarded.settings(settings, "worker").nats.nkey_file
        another = replace(wanted, stream="SNAPSHOTS", nkey=worker)
        began = time.monotonic()
        with pytest.raises(BusRefused, match=r"permissions violation .* role 'pipeline'"):
            list(read_range(another, 1, 25))
        assert time.monotonic() - began < wanted.timeout_seconds / 2
