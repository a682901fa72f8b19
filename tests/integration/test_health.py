"""`penstock health` on a real broker: what it finds, its exit code, and what becomes an event."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.making import MakeSettings

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode, utc_now
from penstock.events.health import HEALTH_EVENTS, HealthChanged
from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.health.rules import judge
from penstock.health.survey import survey
from penstock.orchestrator.health_watch import HealthWatch
from penstock.runtime.broker import Broker
from penstock.runtime.service import Service


async def lively(bus: NatsBus, ready: int = 2) -> None:
    """What an installation writes that is well: a host, its measurer, its decider, its keeper."""
    pools = {"mail": PoolWorkers(planned=2, started=2, ready=ready)}
    host = HostSnapshot(
        host="a", cpu_cores=2, memory_bytes=100, memory_used_bytes=10, pools=pools, spark="unused"
    )
    subjects = bus.subjects
    for subject, body in (
        (subjects.host_snapshot("a"), encode(host)),
        (subjects.pool_snapshot("mail"), b"{}"),
        (subjects.state("lease", "decider"), b"{}"),
    ):
        await bus.append(Outgoing(subject, body))


async def test_what_is_well_and_what_it_survives(settings: MakeSettings, broker: Broker) -> None:
    made = settings(pools={"mail": {}}, nats={"monitor_url": broker.monitor_url})
    bus = await connect(made)
    service = Service("orchestrator", made, bus)
    watch = HealthWatch(service, bus)
    try:
        await lively(bus)
        await watch.look()
        report = judge(await survey(bus, made), utc_now())
        assert {each.component: each.reasons for each in report.findings if each.reasons} == {}
        assert report.durability is not None
        assert (report.durability.process.answer, report.durability.power.answer) == ("yes", "no")
        assert "120 s" in report.durability.power.because
        facts = await survey(bus, made)
        assert len(facts.streams) >= 6
        assert facts.broker.store_dir and facts.broker.storage_bytes
        assert abs(facts.skew_seconds or 0.0) < 1
        assert {disk.use for disk in facts.disks} >= {"the broker's files"}
    finally:
        await bus.close()


async def test_changes_become_events_once_whoever_looks(settings: MakeSettings) -> None:
    made = settings(pools={"mail": {}})
    bus = await connect(made)
    watches = [HealthWatch(Service("orchestrator", made, bus), bus) for _ in range(3)]

    async def told() -> list[tuple[str, str, str]]:
        stream, subject = bus.subjects.events_stream, bus.subjects.events("health")
        stored = await bus.history(stream, subject)
        events = [HEALTH_EVENTS.decode(each.body) for each in stored]
        return [(e.component, e.before, e.state) for e in events if isinstance(e, HealthChanged)]

    try:
        await lively(bus)
        await asyncio.gather(*(watch.look() for watch in watches))
        first = await told()
        assert len(first) == len(set(first))
        for _ in range(3):  # by now the orchestrator has been heard of
            await watches[0].look()
        before = len(await told())
        await lively(bus, ready=0)
        await watches[2].look()
        await lively(bus)
        for _ in range(2):
            await watches[0].look()
        assert (await told())[before:] == []  # it was a blip
        await lively(bus, ready=0)
        await watches[0].look()
        await asyncio.gather(*(watch.look() for watch in watches))
        await lively(bus)
        for _ in range(2):
            await watches[1].look()
        assert (await told())[before:] == [
            ("workers", "healthy", "degraded"),
            ("installation", "healthy", "degraded"),
            ("workers", "degraded", "healthy"),
            ("installation", "degraded", "healthy"),
        ]
    finally:
        await bus.close()


def call(config: Path, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "--config", str(config), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_the_command_says_so_with_its_exit_code(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(f'[nats]\nurl = "{broker.url}"\nrequest_timeout_seconds = 1\n[pools.mail]\n')
    code, text = call(config, "health", "--json")
    report = json.loads(text)
    assert (code, report["state"]) == (5, "unhealthy")  # a pool, and no host to run it
    [workers] = [each for each in report["findings"] if each["component"] == "workers"]
    assert "nothing runs" in workers["reasons"][0]
    assert report["durability"]["power"]["answer"] == "unknown"

    broker.kill()
    code, text = call(config, "health")
    assert code == 5
    assert text.startswith("unhealthy")
    assert "no NATS server answered" in text
    broker.start()
