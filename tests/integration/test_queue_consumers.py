"""Consumers of queues are made by the orchestrator, and a worker's key cannot touch them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client as PlainClient
from tests.integration.guarded import GuardedBroker, join
from tests.integration.sample_jobs import send_note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.roles import ROLES
from penstock.jobs import Client
from penstock.orchestrator import queue_consumers
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.service import Service

ROLES_WITHOUT = ("metrics", "worker", "dispatcher", "operator", "executor")


class Running:
    """An orchestrator with its own key."""

    def __init__(self, bus: NatsBus, service: Service, task: asyncio.Task[None]) -> None:
        self.bus, self._service, self._task = bus, service, task

    async def stop(self) -> None:
        self._service.stopping.set()
        await self._task
        await self._service.end_tasks()
        await self.bus.close()


@pytest.fixture
async def running(guarded: GuardedBroker, settings: MakeSettings) -> AsyncIterator[Running]:
    settings.prefix = "penstock"
    known = guarded.settings(settings, "orchestrator")
    bus = await connect(known)
    service = Service("orchestrator", known, bus)
    running = Running(bus, service, asyncio.create_task(Orchestrator(service).run()))
    yield running
    if bus.connected:
        await running.stop()


async def test_the_first_job_of_a_new_queue_is_taken_at_once(
    guarded: GuardedBroker, running: Running, settings: MakeSettings
) -> None:
    worker = await connect(guarded.settings(settings, "worker"))
    await _waiting_jobs(worker, "warm")  # the orchestrator listens
    async with Client.connect(guarded.settings(settings, "dispatcher")) as client:
        job_id = await client.dispatch(send_note("nowhere", "x"), queue="brand-new")
        puller, began = worker.puller("brand-new"), time.monotonic()
        taken = []
        while not taken and time.monotonic() - began < 10:
            taken = await puller.fetch(1, 5)
        assert [one.headers["Penstock-Job"] for one in taken] == [job_id]
        assert time.monotonic() - began < 2  # milliseconds on an idle machine
    await worker.ack(taken)
    await worker.close()


async def test_a_worker_that_comes_before_any_job_has_its_queue_made(
    guarded: GuardedBroker, running: Running, settings: MakeSettings
) -> None:
    worker = await connect(guarded.settings(settings, "worker"))
    await _waiting_jobs(worker, "asked-for")
    assert "asked-for" in await running.bus.depths()
    await worker.close()


async def test_without_an_orchestrator_known_queues_go_on(
    guarded: GuardedBroker, running: Running, settings: MakeSettings
) -> None:
    worker = await connect(guarded.settings(settings, "worker"))
    await _waiting_jobs(worker, "lasting")
    await running.stop()
    await worker.append(Outgoing("penstock.jobs.lasting", b"{}"))
    [taken] = await worker.puller("lasting").fetch(1, 5)
    assert taken.body == b"{}"
    await worker.ack([taken])
    await worker.close()


@pytest.mark.parametrize("role", ROLES_WITHOUT)
async def test_a_queue_cannot_be_redirected_throttled_or_emptied(
    guarded: GuardedBroker, running: Running, settings: MakeSettings, role: str
) -> None:
    worker = await connect(guarded.settings(settings, "worker"))
    await _waiting_jobs(worker, "kept")
    await running.bus.append(Outgoing("penstock.jobs.kept", b"{}"))
    before = await eventually(lambda: _counted(running.bus, "kept"), 5, "the message counted")
    errors: list[str] = []
    attacker = await join(guarded, role, errors)
    attempts = _attempts(attacker, may_delete="JOBS" in ROLES[role].deletes)
    for subject, body in attempts:
        await attacker.publish(subject, json.dumps(body).encode(), reply=attacker.new_inbox())
    await eventually(lambda: len(errors) >= len(attempts), 5, "refusals")
    assert all("permissions violation for publish to" in error for error in errors)
    assert await _consumer(running.bus, "kept") == before
    [taken] = await worker.puller("kept").fetch(1, 5)
    await worker.ack([taken])
    await worker.close()
    await attacker.close()


async def test_invented_queues_take_no_more_than_their_share(
    guarded: GuardedBroker, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_consumers, "MOST_UNNAMED", 20)
    monkeypatch.setattr(queue_consumers, "_SURVEY_SECONDS", 0.2)
    monkeypatch.setattr(queue_consumers, "_COUNT_SECONDS", 0.2)
    settings.prefix = "penstock"
    pools = {"pools": {"mail": {"queues": ["named"]}}}
    bus = await connect(guarded.settings(settings, "orchestrator", **pools))
    known = guarded.settings(settings, "orchestrator", **pools)
    attacker = await connect(guarded.settings(settings, "dispatcher"))
    worker = await connect(guarded.settings(settings, "worker"))
    await attacker.append_many([Outgoing(f"penstock.jobs.invented-{n}", b"x") for n in range(60)])
    service = Service("orchestrator", known, bus)
    running = Running(bus, service, asyncio.create_task(Orchestrator(service).run()))
    await attacker.append(Outgoing("penstock.jobs.named", b"x"))
    await _waiting_jobs_or_one(worker, "named")
    await _waiting_jobs_or_one(worker, "asked-by-a-worker")
    assert len([name for name in await bus.depths() if name.startswith("invented")]) <= 10
    assert await bus.count("JOBS", "penstock.jobs.invented-59")  # nothing is lost
    for client in (attacker, worker):
        await client.close()
    await running.stop()


async def _waiting_jobs_or_one(worker: NatsBus, queue: str) -> None:
    """Returns when the queue has its consumer."""
    puller = worker.puller(queue)

    async def is_made() -> bool:
        await worker.ack(await puller.fetch(1, 0))
        return not puller._inbox.trouble

    await eventually(is_made, 15, f"the consumer of {queue}")
    await puller.close()


def _attempts(attacker: PlainClient, may_delete: bool) -> list[tuple[str, object]]:
    other = {"filter_subject": "penstock.jobs.nothing", "ack_policy": "explicit"}
    redirected = {"durable_name": "q_kept", "name": "q_kept", **other}
    throttled = {**redirected, "filter_subject": "penstock.jobs.kept", "max_ack_pending": 1}
    pushed = {
        "durable_name": "mine",
        "name": "mine",
        "filter_subject": "penstock.jobs.kept",
        "deliver_subject": attacker.new_inbox(),
    }
    asked: list[tuple[str, object]] = [
        (f"$JS.API.CONSUMER.{verb}", {"stream_name": "JOBS", "config": config})
        for config in (redirected, throttled, pushed)
        for verb in (
            f"DURABLE.CREATE.JOBS.{config['name']}",
            f"CREATE.JOBS.{config['name']}",
            f"CREATE.JOBS.{config['name']}.penstock.jobs.kept",
        )
    ]
    return [
        *asked,
        ("$JS.API.CONSUMER.DELETE.JOBS.q_kept", None),
        ("$JS.API.STREAM.PURGE.JOBS", {"filter": "penstock.jobs.kept"}),
        # a single message, which the orchestrator makes again where its job waits
        *([] if may_delete else [("$JS.API.STREAM.MSG.DELETE.JOBS", {"seq": 1})]),
    ]


async def _consumer(bus: NatsBus, queue: str) -> tuple[object, int]:
    info = await bus._api(f"CONSUMER.INFO.JOBS.q_{queue}")
    return info["config"], info["num_pending"]


async def _counted(bus: NatsBus, queue: str) -> object:
    """What :func:`_consumer` tells once a message waits: it is counted after it is stored."""
    config, waiting = await _consumer(bus, queue)
    return (config, waiting) if waiting else None


async def _waiting_jobs(worker: NatsBus, queue: str) -> None:
    """Returns when the queue has its consumer: it answers a pull."""
    puller = worker.puller(queue)

    async def is_made() -> bool:
        assert await puller.fetch(1, 0) == []
        return not puller._inbox.trouble

    await eventually(is_made, 10, f"the consumer of {queue}")
    await puller.close()
