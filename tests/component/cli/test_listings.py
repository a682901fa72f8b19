"""Rows of queues, pools, jobs and decisions, from what a bus holds."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.cli.jobs.job_view import description
from penstock.cli.scaling.explanation import sentences
from penstock.config.load import check
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.job import JobProgressed, JobStarted
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import EndedRate, HostSnapshot, PoolSnapshot, PoolWorkers
from penstock.events.subjects import Subjects
from penstock.events.worker import Claim, WorkerReport
from penstock.jobs import Client, job
from penstock.testing.memory.bus import MemoryBus
from penstock.views.decisions import find_decision, newest_decisions
from penstock.views.job_history import job_detail
from penstock.views.live_workers import living_workers
from penstock.views.pool_board import pool_rows
from penstock.views.queue_board import queue_rows

SUBJECTS = Subjects()
SETTINGS = check({"pools": {"reports": {}}, "excluded": ["old*"]})


@job(name="cli-test.add", queue="reports", tags=["sums"])
def add(a: int, b: int = 0) -> int:
    return a + b


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


async def publish(bus: MemoryBus, event: Event, subject: str = "") -> None:
    await bus.append(Outgoing(subject or SUBJECTS.event(event), encode(event)))


def decision(pool: str = "reports", current: int = 1, target: int = 2) -> ScalingDecisionMade:
    reasons = (
        Reason(
            step="strategy", rule="hybrid.steady", workers=4, text="4 wanted", values={"rate": 2.0}
        ),
        Reason(step="bounds", rule="max_workers", workers=2, text="at most 2 allowed"),
    )
    return ScalingDecisionMade(
        pool=pool,
        current=current,
        target=target,
        reasons=reasons,
        strategy="hybrid",
        sla_seconds=30,
        predicted_pickup_seconds=1.5,
        placement={"a": 2},
    )


# --- jobs -----------------------------------------------------------------------------------------
async def test_one_job_with_its_story(bus) -> None:
    client = Client(bus)
    view = await client.job(await client.dispatch(add(a=1, b=2)))
    text = "\n".join(description(view))
    assert 'arguments  {"a":1,"b":2}' in text
    assert "tags       sums" in text
    assert "JobDispatched  cli-test.add on reports" in text
    told = msgspec.to_builtins(job_detail(view))
    assert told["arguments"] == {"a": 1, "b": 2}
    assert [event["type"] for event in told["timeline"]] == ["JobDispatched"]


async def test_progress_without_end_is_one_line_with_the_last_and_the_count(bus) -> None:
    client = Client(bus)
    job_id = await client.dispatch(add(a=1))
    began = JobStarted(job_id=job_id, queue="reports", attempt=1, host="h", worker="w")
    await publish(bus, began)
    for done in range(1, 53):
        await publish(bus, JobProgressed(job_id=job_id, done=done, total=60))
    view = await client.job(job_id)
    assert [line.split(maxsplit=1)[1] for line in description(view) if "Progressed" in line] == [
        "JobProgressed  52 of 60  (the last of 52)"
    ]
    assert len(job_detail(view).timeline) == 54  # programs get each


# --- queues and pools -----------------------------------------------------------------------------
async def test_queues_configured_or_holding_jobs(bus) -> None:
    client = Client(bus)
    for name in ("reports", "old-mails", "nobody"):
        await bus.ensure_queue(name)
        await client.dispatch(add(a=1), queue=name)
    await client.dispatch(add(a=1), delay=60.0)
    rows = {row.queue: row for row in await queue_rows(bus, SETTINGS)}
    told = {name: (row.pool, row.excluded, row.waiting, row.delayed) for name, row in rows.items()}
    assert told == {
        "reports": ("reports", False, 1, 1),
        "old-mails": ("", True, 1, 0),
        "nobody": ("", False, 1, 0),
    }
    age = rows["nobody"].oldest_waiting_seconds
    assert age is not None
    assert 0 <= age < 5


async def test_queues_and_pools_show_what_ended_and_failed_lately(bus) -> None:
    rates = {"reports": EndedRate(finished_per_minute=30, failed_per_minute=3)}
    measured = PoolSnapshot(
        pool="reports", queues=("reports",), waiting=0, ended=rates["reports"], ended_by_queue=rates
    )
    await publish(bus, measured, SUBJECTS.pool_snapshot("reports"))
    [queue] = await queue_rows(bus, SETTINGS)
    [pool] = await pool_rows(bus, SETTINGS)
    assert (queue.throughput_per_minute, queue.failed_share) == (30, 0.1)
    assert (pool.throughput_per_minute, pool.failed_share) == (30, 0.1)


@pytest.mark.parametrize(
    ("age_seconds", "measured", "expected"),
    [(0, True, (0, None)), (0, False, (None, None)), (600, True, (None, None))],
)
async def test_a_queue_on_which_nothing_ended_or_that_was_not_measured(
    bus, age_seconds: float, measured: bool, expected: tuple[float | None, float | None]
) -> None:
    ended = EndedRate(finished_per_minute=0) if measured else None
    at = utc_now() - timedelta(seconds=age_seconds)
    snapshot = PoolSnapshot(pool="reports", queues=("reports",), waiting=0, ended=ended, at=at)
    await publish(bus, snapshot, SUBJECTS.pool_snapshot("reports"))
    [queue] = await queue_rows(bus, SETTINGS)
    assert (queue.throughput_per_minute, queue.failed_share) == expected


async def test_an_empty_queue_has_no_oldest_job(bus) -> None:
    [row] = await queue_rows(bus, SETTINGS)
    assert (row.queue, row.waiting, row.oldest_waiting_seconds) == ("reports", 0, None)


async def test_pools_from_last_snapshots_and_decisions(bus) -> None:
    workers = {"reports": PoolWorkers(planned=2, started=2, ready=1)}
    measured = PoolSnapshot(pool="reports", queues=("reports",), waiting=3)
    host = HostSnapshot(host="a", cpu_cores=1, memory_bytes=1, pools=workers)
    await publish(bus, measured, SUBJECTS.pool_snapshot("reports"))
    await publish(bus, host, SUBJECTS.host_snapshot("a"))
    await publish(bus, decision())
    [row] = await pool_rows(bus, SETTINGS)
    assert (row.waiting, row.target, row.ready, row.reason) == (3, 2, 1, "at most 2 allowed")


# --- decisions ------------------------------------------------------------------------------------
async def test_decisions_newest_first_of_one_pool_or_all(bus) -> None:
    made = [decision(), decision("mails"), decision(current=2), decision(target=1)]
    for each in made:
        await publish(bus, each)

    async def listed(*wanted: Any) -> list[str]:
        return [each.id for each in await newest_decisions(bus, SUBJECTS, *wanted)]

    assert await listed(None, True, 2) == [made[3].id, made[2].id]
    assert await listed("mails", True, 5) == [made[1].id]
    assert await listed("reports", False, 5) == [made[0].id]


async def test_a_decision_by_id_or_by_pool(bus) -> None:
    first, second = decision(), decision(target=3)
    await publish(bus, first)
    await publish(bus, second)
    assert await find_decision(bus, SUBJECTS, first.id) == (first, encode(first))
    assert await find_decision(bus, SUBJECTS, "reports") == (second, encode(second))
    assert await find_decision(bus, SUBJECTS, "mails") is None


def test_a_decision_as_sentences() -> None:
    text = "\n".join(sentences(decision()))
    assert "1 → 2 workers" in text
    assert "1. 4 wanted  (strategy: hybrid.steady → 4)" in text
    assert "rate = 2.0" in text
    assert "2. at most 2 allowed  (bounds: max_workers → 2)" in text
    assert "would start within 1.5 s; promised: 30 s." in text
    assert "Placed: 2 on a." in text


# --- workers --------------------------------------------------------------------------------------
def report(worker: str, *claims: Claim, **slots: int) -> bytes:
    return msgspec.json.encode(
        WorkerReport(
            worker=worker,
            host="a",
            pool="reports",
            pid=7,
            state="busy" if claims else "idle",
            number=1,
            at=0,
            started_at=0,
            claims=claims,
            **slots,
        )
    )


async def test_workers_are_those_heard_and_the_silent_are_counted(bus, monkeypatch) -> None:
    monkeypatch.setattr("penstock.views.live_workers.LISTEN_SECONDS", 0.2)
    workers = {"reports": PoolWorkers(planned=3, started=3, ready=3)}
    host = HostSnapshot(host="a", cpu_cores=1, memory_bytes=1, pools=workers)
    await publish(bus, host, SUBJECTS.host_snapshot("a"))
    asking = asyncio.create_task(living_workers(bus, SETTINGS))
    held = Claim(job_id="j1", ack_subject="x", running_seconds=2.5)

    async def speak() -> bool:  # signals are lossy: said until the listener has ended
        await bus.signal(SUBJECTS.worker_report("a", "w2"), report("w2"))
        await bus.signal(
            SUBJECTS.worker_report("a", "w1"), report("w1", held, slots=50, slots_used=7)
        )
        await bus.signal(SUBJECTS.worker_report("a", "w3"), b"no report")
        return asking.done()

    await eventually(speak)
    rows, unheard = await asking
    assert [(row.worker, row.job_id, row.job_seconds) for row in rows] == [
        ("w1", "j1", 2.5),
        ("w2", "", None),
    ]
    assert [(row.slots_used, row.slots) for row in rows] == [(7, 50), (0, 1)]
    assert unheard == 1
