"""What no service should ever be sent, on each subject it reads: it says why, and goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.buses import both
from tests.integration import deciding, executing
from tests.integration.deciding import GIB, World
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import MalformedEvent, encode
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade, WorkersScaled
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, PoolWorkers, Quantiles

DEEP = b'{"type":"X","x":' + b"[" * 100_000
DEEPER = b'{"x":' + b"[" * 500_000
RUBBISH = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no text in its type": b'{"type":"\xff"}',
    "no text in a field": b'{"type":"PoolSnapshot","pool":"\xff"}',
    "a list": b"[]",
    "no type": b"{}",
    "no fields": b'{"type":"PoolSnapshot"}',
    "of the future": b'{"type":"PlanOfTomorrow","x":1}',
    "another event": encode(WorkersScaled(host="a", epoch=1, version=1, pools={})),
    "too deep": DEEP,
    "too deep to be told its type": DEEPER,
    "a number that is none": b'{"type":"PoolSnapshot","pool":"emails","waiting":1e999}',
}
MOST = 2**62


def odd_pools() -> dict[str, PoolSnapshot]:
    """Snapshots whose types are right and whose values are beyond belief."""
    usual: dict[str, Any] = {"pool": "emails", "queues": ("emails",)}
    huge = Quantiles(
        count=MOST,
        mean_seconds=1e308,
        p50_seconds=1e308,
        p95_seconds=1e308,
        p99_seconds=1e308,
        cv2=1e308,
    )
    below = Quantiles(count=-1, mean_seconds=-1, p50_seconds=-1, p95_seconds=-1, p99_seconds=-1)
    nothing = Quantiles(count=0, mean_seconds=0, p50_seconds=0, p95_seconds=0, p99_seconds=0)
    return {
        "waiting": PoolSnapshot(**usual, waiting=MOST, running=MOST, service=nothing),
        "rates": PoolSnapshot(**usual, waiting=1, arrival_per_second=1e308, service=huge),
        "forecast": PoolSnapshot(**usual, waiting=1, forecast_per_second=1e308, spawn=huge),
        "below zero": PoolSnapshot(**usual, waiting=1, arrival_per_second=1.0, service=below),
        "nothing": PoolSnapshot(**usual, waiting=1, arrival_per_second=0.0, service=nothing),
        "sizes": PoolSnapshot(
            **usual, waiting=1, worker_cpu_cores=1e308, worker_memory_bytes=MOST, service=nothing
        ),
        "no size": PoolSnapshot(**usual, waiting=1, worker_cpu_cores=0.0, worker_memory_bytes=0),
        "ages": PoolSnapshot(
            **usual, waiting=1, queue_age_seconds=1e308, oldest_waiting_seconds=1e308
        ),
    }


def odd_hosts() -> dict[str, HostSnapshot]:
    def sets(number: int) -> dict[str, PoolWorkers]:
        return {"emails": PoolWorkers(planned=number, started=number, ready=number)}

    return {
        "nothing": HostSnapshot(host="b", cpu_cores=0, memory_bytes=0),
        "huge": HostSnapshot(
            host="b", cpu_cores=1e308, memory_bytes=MOST, memory_used_bytes=MOST, pools=sets(MOST)
        ),
        "below zero": HostSnapshot(host="b", cpu_cores=4, memory_bytes=GIB, pools=sets(-7)),
        "of strangers": HostSnapshot(
            host="b", cpu_cores=0, memory_bytes=GIB, pools={"x y": sets(1)["emails"]}
        ),
        "ahead": HostSnapshot(host="b", cpu_cores=0, memory_bytes=1, epoch=MOST, version=MOST),
    }


@pytest.fixture(params=both("memory"))
async def here(request: pytest.FixtureRequest, settings: MakeSettings) -> Any:
    around = AsyncExitStack()
    yield await around.enter_async_context(deciding.world(request.param, settings))
    await ends(around.aclose())


async def ends(closing: Awaitable[None]) -> None:
    """A service that does not end when it is told is a failure, not a test that hangs."""
    begun = time.monotonic()
    async with asyncio.timeout(10):
        await closing
    assert time.monotonic() - begun < 10  # who swallows the cancellation is found out, too


async def decides(here: World, **fields: Any) -> None:
    """A host that reports and a pool with much to do lead to a plan, as if nothing had been."""
    here.host("a")

    async def planned() -> bool:
        await here.report(waiting=100, arrival_per_second=5.0, **fields)
        command = await last_command(here, "a")
        return command is not None and command.pools.get("emails", 0) > 0

    await eventually(planned, within=10, what="a plan for host a")


async def last_command(here: World, host: str) -> WorkersScaled | None:
    stored = await here.bus.last(here.subjects.commands_stream, here.subjects.command(host))
    try:
        found = SCALING_EVENTS.decode(stored.body) if stored else None
    except MalformedEvent:
        return None
    return found if isinstance(found, WorkersScaled) else None


class TestDecider:
    async def test_rubbish_in_place_of_snapshots(self, here: World) -> None:
        places = [here.subjects.pool_snapshot("emails"), here.subjects.host_snapshot("a")]
        for subject in places:
            await here.append(subject, DEEP)  # found at the start
        service = await here.start()
        for rubbish in RUBBISH.values():
            for subject in places:
                await here.append(subject, rubbish)  # and while it runs
        await decides(here)
        assert not service.stopping.is_set()

    async def test_measurements_beyond_belief(self, here: World) -> None:
        service = await here.start()
        await decides(here)
        for odd in odd_pools().values():
            now = msgspec.structs.replace(odd, wakeup="backlog")
            await here.append(here.subjects.pool_snapshot("emails"), encode(now))
            await here.decided()  # it still decides, whatever it makes of that
        await decides(here)
        assert not service.stopping.is_set()
        assert all(0 <= command.pools.get("emails", 0) <= 50 for command in here.commands)

    async def test_hosts_beyond_belief(self, here: World) -> None:
        service = await here.start()
        for odd in odd_hosts().values():
            await here.append(here.subjects.host_snapshot("b"), encode(odd))
            await here.report(waiting=1, wakeup="backlog")
            await here.decided()
        await decides(here)
        assert not service.stopping.is_set()
        assert all(0 <= command.pools.get("emails", 0) <= 50 for command in here.commands)

    @pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
    async def test_rubbish_in_place_of_what_was_said_before(
        self, settings: MakeSettings, rubbish: bytes
    ) -> None:
        world = World("memory", settings)
        world.bus = await world.client()  # nobody else reads: the rubbish is for the decider
        subjects = world.subjects
        for subject in (
            subjects.state("lease", "decider"),
            subjects.command("a"),
            subjects.events("pool", "emails", ScalingDecisionMade.__name__),
        ):
            await world.append(subject, rubbish)
        service = await world.start()
        try:
            await decides(world)
            assert not service.stopping.is_set()
        finally:
            await ends(world.close())

    async def test_a_state_that_is_none(self, settings: MakeSettings) -> None:
        async with deciding.world("memory", settings) as world:
            for state in ({"held": "x"}, {"up_at": [1], "x": None}, {"lowered_at": "yesterday"}):
                odd = ScalingDecisionMade(
                    pool="emails", current=-1, target=-MOST, reasons=(), strategy="",
                    sla_seconds=-1.0, placement={"a": -5}, state=state,
                )  # fmt: skip
                await world.append(world.subjects.event(odd), encode(odd))
                service = await world.start()
                await decides(world)
                assert not service.stopping.is_set()
                await world.stop(service)


class TestExecutor:
    async def test_rubbish_in_place_of_commands_and_reports(self, settings: MakeSettings) -> None:
        async with executing.stage(settings) as host:
            await host.send(DEEP)  # found at the start
            child = host.start()
            await host.logged("is ignored")
            for rubbish in RUBBISH.values():
                await host.send(rubbish)
                await host.bus.signal(host.subjects.worker_report(host.host, "w"), rubbish)
            for pools in ({"mail": -1}, {"mail": MOST}, {"": 1}, {"x y": 1}):
                await host.command(pools, epoch=1)
            await host.command({"mail": 1}, epoch=2)
            await host.pool("mail", planned=1, ready=1)
            assert child.exit_code is None


class TestMetrics:
    async def test_rubbish_too_deep(
        self, settings: MakeSettings, caplog: pytest.LogCaptureFixture
    ) -> None:
        from tests.integration.test_metrics import Stage

        caplog.set_level(logging.WARNING)
        stage = Stage("memory", settings)
        service = await stage.start()
        await stage.seen(waiting=0)
        for rubbish in (DEEP, DEEPER):
            await stage.world.signal(stage.subjects.worker_report("a", "w"), rubbish)
            for name in ("WorkerReady", "WorkerStopped"):
                subject = stage.subjects.events("worker", "w", name)
                await stage.world.append(Outgoing(subject, rubbish))
        await stage.job()
        await stage.seen(waiting=1)
        await asyncio.sleep(0)
        assert not service.stopping.is_set()
        assert any("ignored" in record.getMessage() for record in caplog.records)
        await stage.close()
