"""The executor on a real broker with real processes: it obeys, notices, adopts, drains."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.integration import executor_jobs as jobs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.job import JOB_EVENTS, JobStarted
from penstock.events.worker import (
    WorkerCrashLooping,
    WorkerReady,
    WorkerStarted,
    WorkerStopped,
)
from penstock.jobs import Client
from penstock.jobs.lifecycle import State
from penstock.runtime.broker import Broker

CLAIM_SECONDS = 30
"""So long that no test waits until a claim lapses."""


async def _job_starts(stage: Stage, job_id: str) -> list[JobStarted]:
    stored = await stage.bus.history(stage.subjects.events_stream, stage.subjects.job(job_id))
    events = [JOB_EVENTS.decode(each.body) for each in stored]
    return [event for event in events if isinstance(event, JobStarted)]


def _client(stage: Stage) -> Client:
    return Client(stage.bus, prefix=stage.settings.prefix)


async def test_it_obeys_a_plan_up_and_down_and_drains_when_told_to_end(
    settings: MakeSettings,
) -> None:
    async with stage(settings) as host:
        await host.command({"mail": 2})  # before the executor starts: it finds its plan
        executor = host.start()
        ready = await host.seen(WorkerReady, 2)
        log = host.log.read_text()
        assert "0 modules failed" in log
        assert "importing started threads" not in log
        assert {event.pid for event in ready} == {each.pid for each in host.living()}
        await host.pool("mail", planned=2, started=2, ready=2)

        await host.command({"mail": 1})
        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.cause, stopped.exit_code) == ("scaled-down", 0)
        await host.pool("mail", planned=1, started=1, ready=1, draining=0)

        assert await executor.stop(grace_seconds=10) == 0
        assert (await host.seen(WorkerStopped, 2))[1].cause == "shutdown"
        assert host.living() == []
        last = await host.snapshot()
        assert last is not None
        assert last.draining
        assert last.pools["mail"].started == 0
        assert (last.epoch, last.version) == (1, 2)


async def test_a_killed_worker_is_noticed_replaced_and_its_job_runs_elsewhere_at_once(
    settings: MakeSettings,
) -> None:
    tables = {"modules": [jobs.__name__], "claim_seconds": CLAIM_SECONDS}
    async with stage(settings, jobs=tables) as host:
        await host.command({"mail": 1})
        host.start()
        [first] = await host.seen(WorkerReady)
        job_id = await _client(host).dispatch(jobs.slow(0.7))

        async def held() -> bool:
            return bool(await _job_starts(host, job_id))

        await eventually(held)
        await _reported_busy(host)
        os.kill(first.pid, signal.SIGKILL)
        killed_at = time.monotonic()

        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.cause, stopped.exit_code, stopped.job_id) == ("killed", -9, job_id)
        _, respawn = await host.seen(WorkerStarted, 2)
        assert respawn.cause == "respawn"
        view = await _client(host).wait(job_id, timeout_seconds=10)
        assert view.result != first.pid
        starts = await _job_starts(host, job_id)
        assert {start.worker for start in starts} == {first.worker, respawn.worker}
        assert time.monotonic() - killed_at < CLAIM_SECONDS / 2, "its claim had to lapse first"


async def _reported_busy(host: Stage) -> None:
    """Waits for the report in which a worker says what it holds."""
    heard: list[bytes] = []
    subject = host.subjects.worker_report(host.host, "*")
    listening = await host.bus.listen(subject, lambda _, body: heard.append(body))
    await eventually(lambda: any(b"$JS.ACK" in body for body in heard))
    await listening.unsubscribe()


async def test_a_killed_executor_that_comes_back_adopts_its_workers(
    settings: MakeSettings,
) -> None:
    patient = {"drain_seconds": 5.0, "orphan_grace_seconds": 30.0}
    async with stage(settings, host=patient) as host:
        await host.command({"mail": 2})
        executor = host.start()
        await host.seen(WorkerReady, 2)
        before = {each.pid for each in host.living()}
        executor.signal(signal.SIGKILL)
        await executor.ended()
        assert {each.pid for each in host.living()} == before, "they live on"

        host.start()
        adopted = (await host.seen(WorkerStarted, 4))[2:]
        assert {(event.pid, event.cause) for event in adopted} == {
            (pid, "adopted") for pid in before
        }
        await host.pool("mail", planned=2, started=2, ready=2)
        victim = adopted[0]
        os.kill(victim.pid, signal.SIGKILL)
        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.worker, stopped.cause) == (victim.worker, "lost"), "not its parent"
        await host.seen(WorkerStarted, 5)
        await host.pool("mail", planned=2, started=2, ready=2)


async def test_workers_of_an_executor_that_never_comes_back_end(settings: MakeSettings) -> None:
    async with stage(settings) as host:
        await host.command({"mail": 1})
        executor = host.start()
        await host.seen(WorkerReady)
        executor.signal(signal.SIGKILL)
        await executor.ended()
        await eventually(lambda: not host.living(), within=10, what="orphans")


async def test_workers_that_lost_executor_and_broker_together_end_whatever_they_do(
    settings: MakeSettings, broker: Broker, tmp_path: Path
) -> None:
    """Idle, in a job that cannot be interrupted, and in C code that lets no thread run."""
    limits = {"drain_seconds": 5.0, "orphan_grace_seconds": 1.0}
    async with stage(settings, host=limits) as host:
        await host.command({"mail": 3})
        executor = host.start()
        await host.seen(WorkerReady, 3)
        begun = tmp_path / "begun"
        calls = [jobs.deaf(str(tmp_path / "never")), jobs.in_c(str(begun), 120.0)]
        ids = await _client(host).dispatch_many(calls)
        for job_id in ids:
            await eventually(lambda job=job_id: _job_starts(host, job))
        await eventually(begun.exists)
        before = host.living()
        assert len(before) == 3

        broker.kill()
        executor.signal(signal.SIGKILL)
        await executor.ended()
        for worker in before:
            os.kill(worker.pid, signal.SIGTERM)

        await eventually(lambda: not host.living(), within=20, what="nobody left")
        broker.start()
        host.start()
        await host.seen(WorkerStarted, 6)
        left = {file.stem for file in (host.run_dir / "workers").iterdir()}
        assert not left & {worker.worker for worker in before}, "the next executor cleans up"


async def test_repeated_late_deposed_and_malformed_commands_do_no_harm(
    settings: MakeSettings,
) -> None:
    async with stage(settings) as host:
        host.start()
        await host.command({"mail": 1}, epoch=5, version=5)
        await host.seen(WorkerReady)
        for said, order in enumerate([(5, 5), (5, 4), (4, 9)], 1):
            await host.command({"mail": 0}, epoch=order[0], version=order[1])
            await host.logged("is not obeyed", said)
        await host.command({"mail": 0}, epoch=6, version=1, host="another")
        await host.logged("it is for host 'another'")
        for said, broken in enumerate([b"", b"{", b"[]", b'{"type":"WorkersScaled"}'], 1):
            await host.send(broken)
            await host.logged("is ignored", said)
        await host.send(b'{"type":"CommandOfALaterVersion"}')
        await host.logged("expected WorkersScaled")
        await host.bus.signal(host.subjects.worker_report(host.host, "x"), b"{}")
        await host.logged("a report on")
        await host.command({"mail": 2}, epoch=5, version=6)  # the loop still runs
        await host.seen(WorkerReady, 2)
        assert host.of(WorkerStopped) == []


async def test_signals_pause_resume_and_drain_it(settings: MakeSettings, tmp_path: Path) -> None:
    async with stage(settings) as host:
        await host.command({"mail": 1})
        executor = host.start()
        await host.seen(WorkerReady)
        client, gate = _client(host), tmp_path / "gate"
        running = await client.dispatch(jobs.wait_at(str(tmp_path / "begun"), str(gate)))
        await eventually((tmp_path / "begun").exists)

        executor.signal(signal.SIGUSR1)
        await host.logged("paused: no worker starts")
        await host.pool("mail", ready=0)
        await host.command({"mail": 2})
        waiting = await client.dispatch(jobs.quick())
        gate.touch()
        assert (await client.wait(running, 30)).state is State.COMPLETED, "it goes on"
        await host.pool("mail", planned=2, started=1, ready=0)
        assert (await client.job(waiting)).state is State.WAITING

        executor.signal(signal.SIGUSR2)
        assert (await client.wait(waiting, 30)).state is State.COMPLETED
        await host.pool("mail", planned=2, started=2, ready=2)

        executor.signal(signal.SIGQUIT)
        assert await executor.ended() == 0
        stopped = await host.seen(WorkerStopped, 2)
        assert {(event.cause, event.exit_code) for event in stopped} == {("shutdown", 0)}
        assert host.living() == []


async def test_a_crash_loop_is_reported_and_not_hammered(settings: MakeSettings) -> None:
    modules = [jobs.__name__, "tests.integration.broken_jobs"]
    async with stage(settings, jobs={"modules": modules}) as host:
        await host.command({"mail": 3})
        host.start()
        looping = await host.seen(WorkerCrashLooping, 3)
        assert [event.failures for event in looping[:3]] == [3, 4, 5]
        waits = [event.backoff_seconds for event in looping[:3]]
        assert waits == pytest.approx([0.4, 0.8, 1.6])
        assert {event.last_exit_code for event in looping} == {70}
        await host.pool("mail", planned=3, ready=0, crash_loop=True)
        starts = len(host.of(WorkerStarted))
        assert starts <= 3 + 3 + 3 + 3, "three at first, then one at a time"
        assert "this module is broken on purpose" in host.log.read_text()


async def test_a_second_executor_of_the_same_host_is_refused(settings: MakeSettings) -> None:
    async with stage(settings) as host:
        await host.command({"mail": 1})
        host.start()
        await host.seen(WorkerReady)
        second = host.start()
        assert await second.ended() != 0
        assert "an executor for host 'test-host' already runs here" in host.log.read_text()
        assert len(host.living()) == 1


async def test_the_warm_parent_is_replaced_and_its_workers_live_on(settings: MakeSettings) -> None:
    async with stage(settings) as host:
        await host.command({"mail": 1})
        executor = host.start()
        [ready] = await host.seen(WorkerReady)
        [parent] = [p for p in _children(executor.pid) if p != ready.pid]
        os.kill(parent, signal.SIGKILL)
        await eventually(lambda: set(_children(executor.pid)) - {parent}, what="the subreaper")
        os.kill(ready.pid, signal.SIGKILL)
        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.cause, stopped.exit_code) == ("killed", -9), "it became our own child"
        await host.seen(WorkerReady, 2)


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]


async def test_a_busy_worker_that_outstays_its_drain_deadline_is_killed(
    settings: MakeSettings,
) -> None:
    async with stage(settings, host={"drain_seconds": 1.0}) as host:
        await host.command({"mail": 1})
        host.start()
        await host.seen(WorkerReady)
        job_id = await _client(host).dispatch(jobs.slow(60.0))
        await _reported_busy(host)
        asked_at = time.monotonic()
        await host.command({"mail": 0})
        [stopped] = await host.seen(WorkerStopped)
        assert time.monotonic() - asked_at >= 1.0
        assert (stopped.cause, stopped.job_id) == ("drain-deadline", job_id)

        await host.command({"mail": 1})

        async def started_again() -> bool:
            return len(await _job_starts(host, job_id)) == 2

        await eventually(started_again)
        assert {start.attempt for start in await _job_starts(host, job_id)} == {1}


async def test_it_outlives_a_broker_that_is_killed(settings: MakeSettings, broker: Broker) -> None:
    async with stage(settings, nats={"request_timeout_seconds": 0.5}) as host:
        await host.command({"mail": 1})
        executor = host.start()
        [first] = await host.seen(WorkerReady)
        broker.kill()
        os.kill(first.pid, signal.SIGKILL)
        await eventually(lambda: "WorkerStopped" in host.log.read_text())
        broker.start()
        [stopped] = await host.seen(WorkerStopped)
        assert stopped.worker == first.worker, "said as soon as there was somebody to hear it"
        await host.seen(WorkerReady, 2)
        assert executor.exit_code is None
