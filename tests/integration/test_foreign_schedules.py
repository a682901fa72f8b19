"""Schedules that a dispatcher's key left on the broker are removed; delayed jobs still run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.guarded import GuardedBroker
from tests.integration.sample_jobs import send_note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.jobs import Client
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.service import Service

OWN = {"Nats-Schedule-Target": "penstock.jobs.mine"}
FORGED = {
    "repeating": {"Nats-Schedule": "@every 1s", **OWN},
    "by the calendar": {"Nats-Schedule": "* * * * * *", **OWN},
    "copying": {"Nats-Schedule": "@every 1s", **OWN, "Nats-Schedule-Source": "penstock.jobs.other"},
    "emptying": {"Nats-Schedule": "@every 1s", **OWN, "Nats-Schedule-Rollup": "sub"},
    "elsewhere": {
        "Nats-Schedule": "@at 2027-01-01T00:00:00Z", "Nats-Schedule-Target": "penstock.jobs.other",
    },
    "far": {"Nats-Schedule": "@at 2199-01-01T00:00:00Z", **OWN},
}  # fmt: skip


@pytest.fixture
async def owner(guarded: GuardedBroker, settings: MakeSettings) -> AsyncIterator[NatsBus]:
    """The connection of an orchestrator that has not started."""
    settings.prefix = "penstock"
    bus = await connect(guarded.settings(settings, "orchestrator"))
    bus.reader.makes_consumers = True
    yield bus
    if bus.connected:
        await bus.close()


@pytest.mark.parametrize("at_start", [True, False], ids=["stored before", "stored later"])
async def test_what_belongs_to_no_delayed_job_is_removed(
    guarded: GuardedBroker,
    owner: NatsBus,
    settings: MakeSettings,
    at_start: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("orchestrator", guarded.settings(settings, "orchestrator"), owner)
    attacker = await connect(guarded.settings(settings, "dispatcher"))
    running = None if at_start else asyncio.create_task(Orchestrator(service).run())
    for number, headers in enumerate(FORGED.values()):
        await attacker.append(Outgoing(f"penstock.schedules.mine.f{number}", b"x", headers))
    in_a_queue = Outgoing("penstock.jobs.unserved", b"x", FORGED["repeating"])
    await attacker.append(in_a_queue)
    async with Client.connect(guarded.settings(settings, "dispatcher")) as client:
        delayed = await client.dispatch(send_note("nowhere", "x"), queue="mine", delay=3_000)
        running = running or asyncio.create_task(Orchestrator(service).run())

        async def only_ours() -> bool:
            kept = await owner.count("JOBS", "penstock.schedules.*.*")
            waiting = await owner.count("JOBS", "penstock.jobs.unserved")
            forged = [subject for subject in kept if ".mine.f" in subject]
            return f"penstock.schedules.mine.{delayed}" in kept and not (forged or waiting)

        await eventually(only_ours, 10, "the forged schedules are gone")
        assert "belong to no delayed job" in caplog.text
    await attacker.close()
    service.stopping.set()
    await running
    await service.end_tasks()
