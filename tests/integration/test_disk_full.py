"""A broker whose disk was full: what health says, and that it stores again without a person."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusError, Outgoing
from penstock.cli.up.disk_guard import DiskGuard
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.health.report import State
from penstock.health.rules import judge
from penstock.health.survey import survey
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.supervised import Supervised

SIZE = "40m"
SMALL_LOGS = {"max_bytes": 1_000_000}
"""The broker reserves their bytes on its disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB; unmounted after the test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Takes all the room there is."""
    file = disk / "fill"
    with file.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"z" * 65_536)
    return file


async def store(bus: NatsBus, body: bytes) -> bool:
    """Whether a job's message was acknowledged."""
    try:
        async with asyncio.timeout(1.0):
            await bus.append(Outgoing(bus.subjects.queue("mail"), body))
    except (BusError, TimeoutError):
        return False
    return True


async def broker_finding(bus: NatsBus, made: Settings) -> tuple[State, str]:
    report = judge(await survey(bus, made), utc_now())
    finding = next(each for each in report.findings if each.component == "broker")
    return finding.state, "; ".join(finding.reasons)


async def test_a_broker_that_answers_no_health_check_is_restarted(
    settings: MakeSettings, tmp_path: Path
) -> None:
    """As one that has locked itself out of a stream, which happens while its disk is full."""
    with Broker(tmp_path / "nats") as broker:
        bus = await connect(settings(nats={"url": broker.url, "request_timeout_seconds": 1.0}))
        assert await store(bus, b"1")
        told: list[str] = []

        def begin() -> Child:
            if broker.child is None or broker.child.exit_code is not None:
                broker.start()
            assert broker.child
            return broker.child

        kept = Supervised("nats-server", begin, told.append, None)
        guard = DiskGuard(broker, tmp_path / "nats", told.append, silent_seconds=0.5)
        tasks = [asyncio.create_task(kept.keep()), asyncio.create_task(guard.run())]
        try:
            broker.freeze()
            await eventually(lambda: any("restarting it" in line for line in told), 30, "a restart")
            broker.thaw()  # a signal is taken then
            await eventually(lambda: store(bus, b"2"), 30, "the broker stores")
            assert any("health check was not answered" in line for line in told)
        finally:
            for task in tasks:
                task.cancel()
            await kept.end(5.0, asyncio.Event())
            await bus.close()


async def test_a_broker_that_starts_on_a_full_disk_stores_as_soon_as_there_is_room(
    settings: MakeSettings, small_disk: Path
) -> None:
    with Broker(small_disk / "nats") as broker:
        made = settings(logs=SMALL_LOGS, nats={"url": broker.url, "request_timeout_seconds": 1.0})
        bus = await connect(made)
        assert await store(bus, b"1")
        broker.kill()
        filler = fill(small_disk)
        broker.start()
        filler.unlink()
        try:
            await eventually(lambda: store(bus, b"2"), 30, "the broker stores")
        finally:
            await bus.close()


async def test_a_broker_whose_disk_was_full_stores_again_by_itself(
    settings: MakeSettings, small_disk: Path
) -> None:
    with Broker(small_disk / "nats") as broker:
        # given an installation that stores
        made = settings(
            logs=SMALL_LOGS,
            nats={
                "url": broker.url,
                "monitor_url": broker.monitor_url,
                "request_timeout_seconds": 1.0,
            },
        )
        unmonitored = replace(made, nats=replace(made.nats, monitor_url=""))
        bus = await connect(made)
        told: list[str] = []

        def begin() -> Child:
            if broker.child is None or broker.child.exit_code is not None:
                broker.start()
            assert broker.child
            return broker.child

        kept = Supervised("nats-server", begin, told.append, None)
        tasks = [asyncio.create_task(kept.keep())]
        try:
            acknowledged = [body for body in (b"1", b"2", b"3") if await store(bus, body)]
            assert len(acknowledged) == 3
            assert await broker_finding(bus, made) == (State.HEALTHY, "")

            # when its disk fills, then health names the cause and what to do
            filler = fill(small_disk)
            assert not await store(bus, b"x" * 100_000)
            for asked in (made, unmonitored):
                state, text = await broker_finding(bus, asked)
                assert state is State.UNHEALTHY
                assert "the broker does not store" in text
                assert ("free space 0 MB: make room" in text) == (asked is made)

            # when there is room again, then it still stores nothing, and health says what helps
            filler.unlink()
            assert not await store(bus, b"x" * 100_000)
            _, text = await broker_finding(bus, made)
            assert text.endswith("MB; restart it")

            # when somebody keeps it, then it is started again and stores
            guard = DiskGuard(broker, small_disk / "nats", told.append)
            tasks.append(asyncio.create_task(guard.run()))
            await eventually(lambda: store(bus, b"4"), 30, "the broker stores")
            assert any("restarting it" in each for each in told)
            assert (await broker_finding(bus, made))[0] is State.HEALTHY

            # and nothing that was acknowledged is lost
            stored = await bus.history(bus.subjects.jobs_stream, bus.subjects.queue("mail"))
            assert [each.body for each in stored if len(each.body) == 1][:3] == acknowledged
        finally:
            for task in tasks:
                task.cancel()
            await kept.end(5.0, asyncio.Event())
            await bus.close()
