"""The metrics service over both buses: what it publishes, when, and what cannot disturb it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.buses import both, on_both
from tests.integration.measured import GIB, QUICK, SELDOM, Stage, known, sketch
from tests.integration.otlp import Collector
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.events.envelope import encode, utc_now
from penstock.events.worker import FunctionReport, QueueReport, SeriesReport, WorkerReady
from penstock.runtime.broker import Broker
from penstock.runtime.service import Service
from penstock.telemetry.exposition import Exposition


@pytest.fixture(params=both("memory"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    found = Stage(request.param, settings)
    yield found
    await found.close()


async def test_a_quiet_pool_is_told_of_each_interval(stage: Stage) -> None:
    await stage.start()
    await stage.seen(waiting=0)
    found = await stage.seen(arrival_per_second=known)
    assert (found.pool, found.queues, found.wakeup) == ("reports", ("reports",), "tick")
    assert (found.oldest_waiting_seconds, found.arrival_per_second) == (0.0, 0.0)
    assert (found.service, found.pickup, found.spawn, found.worker_age_seconds) == (None,) * 4
    assert found.queue_age_seconds < 1
    start = len(stage.snapshots)
    await eventually(lambda: len(stage.snapshots) >= start + 3, 2)


async def test_a_queue_that_no_pool_names_is_measured_with_the_default_pool(stage: Stage) -> None:
    await stage.start(default_pool="reports", excluded=["old"])
    await stage.seen(waiting=0)
    await stage.job("old")
    await stage.job("new", count=2)
    found = await stage.seen(waiting=2, oldest_waiting_seconds=known)
    assert found.queues == ("reports", "new")
    await stage.job("new", count=3)
    await stage.seen(waiting=5, arrival_per_second=lambda rate: rate and rate > 0)


async def test_the_first_job_of_an_idle_queue_is_told_at_once(stage: Stage) -> None:
    await stage.start(metrics=SELDOM)
    await stage.seen(waiting=0)
    await stage.job()
    found = await stage.seen(within=1.0, wakeup="first-job")
    assert (found.waiting, found.workers_ready) == (1, 0)
    assert found.oldest_waiting_seconds is not None and found.oldest_waiting_seconds < 1


async def test_a_growing_backlog_is_told_at_once(stage: Stage) -> None:
    await stage.start(metrics=SELDOM)
    await stage.seen(waiting=0)
    await stage.job()
    await stage.seen(within=1.0, waiting=1)
    await stage.job(count=20)
    found = await stage.seen(within=1.5, waiting=21)
    assert found.wakeup == "backlog"


async def test_waiting_running_and_the_age_of_the_first_in_line(stage: Stage) -> None:
    await stage.start()
    await stage.job(count=3)
    first = await stage.seen(waiting=3, oldest_waiting_seconds=known)
    [held] = await stage.world.puller("reports").fetch(1, 1.0)
    rest = await stage.seen(waiting=2, running=1, oldest_waiting_seconds=known)
    assert rest.oldest_waiting_seconds >= 0
    later = await stage.seen(oldest_waiting_seconds=lambda age: age and age > 0.3)
    assert later.oldest_waiting_seconds > (first.oldest_waiting_seconds or 0)
    await stage.world.ack([held])
    assert (await stage.seen(waiting=2, running=0)).arrival_per_second >= 0


async def test_a_job_whose_worker_is_gone_waits_again(stage: Stage) -> None:
    """NATS calls it claimed until somebody asks for a job; nobody does while there is no worker."""
    await stage.start()
    await stage.job()
    puller = stage.world.puller("reports")
    await puller.fetch(1, 1.0)
    await puller.close()
    await stage.seen(waiting=0, running=1)
    found = await stage.seen(within=8, waiting=1, running=0)
    assert found.workers_ready == 0


async def test_delayed_jobs_are_counted(stage: Stage) -> None:
    await stage.start(pools={"reports": {}, "others": {}})
    await stage.seen(delayed=0)
    due = (utc_now() + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    for number in range(3):
        headers = {"Nats-Schedule": f"@at {due}"}
        headers["Nats-Schedule-Target"] = stage.subjects.queue("reports")
        subject = stage.subjects.schedule("reports", f"j{number}")
        await stage.world.append(Outgoing(subject, b"job", headers))
    assert (await stage.seen(within=8, pool="reports", delayed=3)).waiting == 0
    assert (await stage.seen(pool="others")).delayed == 0


async def test_workers_and_what_they_did(stage: Stage) -> None:
    await stage.start()
    await stage.seen(workers_ready=0)
    did = QueueReport(
        finished=4, service_sketch=sketch(1, 1, 1, 5), service_sum_seconds=8,
        pickup_sketch=sketch(0.1, 0.3), pickup_sum_seconds=0.4, service_sum_squares=28,
    )  # fmt: skip
    await stage.report(1, queues={"reports": did}, memory_bytes=10_000_000)
    await stage.report(1, worker="w2", state="busy")
    found = await stage.seen(workers_ready=2)
    assert (found.workers_idle, found.worker_memory_bytes) == (1, 10_000_000)
    assert (found.service.count, found.service.mean_seconds) == (4, 2.0)
    assert found.service.cv2 == pytest.approx(0.75)
    assert found.pickup.mean_seconds == pytest.approx(0.2)
    gone = await stage.seen(within=15, workers_ready=0)  # both fell silent
    assert gone.worker_age_seconds > max(2, found.worker_age_seconds)


async def test_how_long_a_worker_takes_to_start(stage: Stage) -> None:
    await stage.start()
    await stage.seen(waiting=0)
    ready = WorkerReady(worker="w1", host="a", pool="reports", pid=7, spawn_seconds=0.25)
    await stage.world.append(Outgoing(stage.subjects.event(ready), encode(ready)))
    assert (await stage.seen(spawn=known)).spawn.p50_seconds == pytest.approx(0.25)
    for number in range(8):  # eight at once, half a second each
        ready = msgspec.structs.replace(ready, worker=f"x{number}", spawn_seconds=0.5, together=8)
        await stage.world.append(Outgoing(stage.subjects.event(ready), encode(ready)))
    fit = (await stage.seen(spawn=lambda spawn: spawn and spawn.count == 9)).spawn_fit
    assert fit.most_together == 8
    assert fit.mean_seconds + 7 * fit.contention_seconds == pytest.approx(0.5)


async def test_a_group_is_one_pool(stage: Stage) -> None:
    await stage.start(pools={"both": {"kind": "group", "queues": ["high", "low"]}})
    await stage.seen(queues=("high", "low"), waiting=0)
    await stage.job("low", 2)
    await stage.job("high", 1)
    assert (await stage.seen(waiting=3, oldest_waiting_seconds=known)).pool == "both"


async def test_rubbish_disturbs_nothing(stage: Stage) -> None:
    service = await stage.start()
    await stage.seen(waiting=0)
    beat = stage.subjects.worker_report("a", "w9")
    for rubbish in (b"", b"\xff\xfe", b"[]", b'{"type":"WorkerReport"}', b"{" * 5000):
        await stage.world.signal(beat, rubbish)
        await stage.world.append(
            Outgoing(stage.subjects.events("worker", "w9", "WorkerReady"), rubbish)
        )
        await stage.world.append(Outgoing(stage.subjects.queue("reports"), rubbish))
    broken = QueueReport(finished=1, service_sketch=b"no sketch")
    await stage.report(1, queues={"reports": broken})
    found = await stage.seen(workers_ready=1, waiting=5)
    assert found.service is None
    assert not service.stopping.is_set()


async def test_what_a_restarted_service_still_knows(stage: Stage) -> None:
    await stage.start()
    did = QueueReport(finished=1, service_sketch=sketch(3), service_sum_seconds=3)
    await stage.seen(waiting=0)
    await stage.report(1, queues={"reports": did})
    await stage.seen(service=known)
    await stage.stop()
    await stage.start()
    assert (await stage.seen(worker_age_seconds=None)).service.mean_seconds == 3.0


@on_both
async def test_thousands_of_queues_are_a_handful_of_requests(stage: Stage) -> None:
    count = 200 if stage.kind == "memory" else 600  # more than one page of consumers
    calls: Counter[str] = Counter()
    await stage.start(
        pools={f"p{n}": {"min_workers": 0} for n in range(count)},
        metrics={"interval_seconds": 1.0},
        wrap=lambda bus: Counted(bus, calls),
    )
    await stage.seen(within=20, pool=f"p{count - 1}")
    await stage.job("p1", 5)
    calls.clear()
    looked = len(stage.snapshots)
    await eventually(lambda: len(stage.snapshots) >= looked + 3 * count, 20)
    asked = calls["depths"] + calls["next"] + calls["last"] + calls["count"]
    assert asked <= 40, calls  # three seconds, one busy queue
    assert calls["ensure_queue"] == 0


class Counted:
    """A bus that counts what is asked of it."""

    def __init__(self, bus: Bus, calls: Counter[str]) -> None:
        self._bus, self._calls = bus, calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._bus, name)


async def test_no_broker_no_snapshot_and_it_recovers(
    broker: Broker, settings: MakeSettings
) -> None:
    stage = Stage("nats", settings)
    service = await stage.start()
    try:
        await stage.job(count=2)
        await stage.seen(waiting=2)
        broker.freeze()
        away = utc_now()
        await asyncio.wait_for(_failure(service), 5)
        broker.thaw()
        back = utc_now()
        await stage.seen(within=10, waiting=2)
        early = [s for s in stage.snapshots if away + timedelta(seconds=0.5) < s.at < back]
        assert early == []
        broker.restart()
        await stage.seen(within=15, waiting=2)
        await stage.seen(within=10, arrival_per_second=lambda rate: rate is not None and rate >= 0)
        assert not service.stopping.is_set()
    finally:
        await stage.close()


async def _failure(service: Service) -> None:
    """Until the broker did not answer a request that began after it froze."""
    while True:
        try:
            await service.bus.depths()
        except BusError:
            return


async def test_a_snapshot_that_matters_starts_a_story(settings: MakeSettings) -> None:
    stage = Stage("memory", settings)
    with Collector() as collector:
        shutdown = telemetry.setup(
            "penstock-metrics", "one", settings(telemetry={"endpoint": collector.endpoint})
        )
        try:
            await stage.start()
            await stage.seen(waiting=0)
            await stage.seen(waiting=0)
            assert "traceparent" not in stage.headers[-1]  # nothing new is nobody's story
            await stage.job()
            found = await stage.seen(waiting=1)
            headers = stage.headers[stage.snapshots.index(found)]
        finally:
            await stage.close()
            await asyncio.to_thread(shutdown)
        spans = [s for s in collector.spans if s.attributes.get("penstock.snapshot.id") == found.id]
        assert [(s.name, s.kind) for s in spans] == [("measure reports", "producer")]
        assert headers["traceparent"].split("-")[1:3] == [spans[0].trace_id, spans[0].span_id]


async def test_what_jobs_did_and_recorded_is_scraped_and_in_the_snapshot(
    settings: MakeSettings,
) -> None:
    # given a service whose queue holds a job, and a worker that reports
    stage = Stage("memory", settings)
    try:
        service = await stage.start(metrics={"functions": 1, "job_series": 1, **QUICK})
        await stage.seen(waiting=0)
        await stage.job(count=2)
        await stage.report(
            1,
            queues={"reports": QueueReport(started=4, finished=4, failed=1)},
            functions={"a": FunctionReport(started=3), "b": FunctionReport(started=1)},
            series=(
                SeriesReport("rows", "counter", (("table", "x"),), 5.0),
                SeriesReport("rows", "counter", (("table", "y"),), 5.0),
            ),
        )
        # when the same report comes twice, then it counts once
        await stage.report(1, functions={"a": FunctionReport(started=3)})
        found = await stage.seen(waiting=2, ended=lambda rate: rate and rate.failed_per_minute)
        # then the numbers are bounded, by function and by queue
        assert found.ended.failed_share == 0.25
        assert set(found.ended_by_queue) == {"reports"}
        _, page = Exposition(service.meters).page("")
        lines = page.decode().splitlines()
        assert 'penstock_function_started_total{function="a",pool="reports"} 3.0' in lines
        assert 'penstock_function_started_total{function="other",pool="reports"} 1.0' in lines
        assert 'rows_total{pool="reports",table="x"} 5.0' in lines
        assert 'penstock_jobs_metric_values_dropped_total{where="service"} 1.0' in lines
        assert 'penstock_queue_jobs_waiting{pool="reports",queue="reports"} 2.0' in lines
        assert 'penstock_pool_failed_share_ratio{pool="reports"} 0.25' in lines
    finally:
        await stage.close()


@on_both
async def test_a_report_of_a_worker_that_no_executor_names_counts_for_nothing(
    stage: Stage,
) -> None:
    # given a worker that its executor names
    await stage.start()
    await stage.seen(waiting=0)
    await stage.report(1, memory_bytes=10_000_000)
    await stage.seen(workers_ready=1, worker_memory_bytes=10_000_000)
    # when somebody reports a worker of his own, and then the true one speaks again
    await stage.forge(1, worker="ghost", memory_bytes=10**14)
    await stage.forge(1, worker="ghost", host="nowhere", memory_bytes=10**14)
    await stage.report(2, memory_bytes=11_000_000)
    # then only that one counts
    found = await stage.seen(worker_memory_bytes=11_000_000)
    assert found.workers_ready == 1


async def test_what_an_earlier_process_was_told_of_is_bounded_by_the_hosts(
    settings: MakeSettings,
) -> None:
    # given a snapshot of before with more memory than any host has
    stage = Stage("memory", settings)
    await stage.start()
    poisoned = await stage.seen(waiting=0)
    await stage.stop()
    poisoned = msgspec.structs.replace(
        poisoned, worker_memory_bytes=10**14, worker_use_age_seconds=1.0
    )
    subject = stage.subjects.pool_snapshot("reports")
    await stage.world.append(Outgoing(subject, encode(poisoned)))
    # when metrics starts anew and hears of a host
    await stage.start()
    await stage.name("w1")
    # then the host's size is the most that is believed
    await stage.seen(worker_memory_bytes=8 * GIB)
    await stage.close()
