"""Consumers of another system as workers: scaled in without interrupting a message, adopted, ended.

The oracle is the consumers' own: each logs the start and the end of each message.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.worker import (
    WorkerCrashLooping,
    WorkerReady,
    WorkerStarted,
    WorkerStopped,
)
from penstock.executor.foreign import leftovers

CONSUMER = Path(__file__).with_name("folder_consumer.py")


class Work:
    """The other system: a folder of messages, and the log of what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("queue", "taken"):
            (folder / name).mkdir(parents=True)
        self.sent = 0

    def pool(self, *arguments: str, **settings: Any) -> dict[str, Any]:
        """The table of a pool of its consumers."""
        return {
            "command": [sys.executable, "-S", str(CONSUMER), str(self.folder), *arguments],
            "ready": "log:consumer [0-9]+ is ready",
            "drain": {"seconds": 30},
            "strategy": "fixed",
            **settings,
        }

    def send(self, count: int = 1, name: str = "m") -> None:
        for _ in range(count):
            self.sent += 1
            (self.folder / "queue" / f"{name}{self.sent}").touch()

    @property
    def waiting(self) -> int:
        return sum(1 for _ in (self.folder / "queue").iterdir())

    def logged(self, what: str) -> list[tuple[str, int]]:
        """Messages with the process that started, or ended, each; of whole lines only."""
        try:
            text = (self.folder / "oracle").read_text()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1].splitlines()
        rows = [line.split() for line in whole]
        return [(message, int(pid)) for kind, message, pid in rows if kind == what]

    def asked(self) -> list[int]:
        """Processes that were asked to end, once for each time."""
        try:
            text = (self.folder / "asked").read_text()
        except FileNotFoundError:
            return []
        return [int(line.split()[0]) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def check(self) -> None:
        """No message was interrupted, and none was handled twice."""
        starts, ends = Counter(self.logged("start")), Counter(self.logged("end"))
        assert starts == ends
        assert set(Counter(message for message, _ in starts).values()) == {1}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    yield Work(tmp_path / "work")


async def _scale_in_often(host: Stage, work: Work, ends: int) -> None:
    """Up to eight, down to one, and again, under load; each end is asked for by a plan."""
    ended = 0
    while ended < ends:
        work.send(max(0, 200 - work.waiting))
        await host.command({"shop": 8})
        await host.seen(WorkerReady, ended + 8)  # a snapshot may still be that of the last round
        await host.command({"shop": 1})
        ended += 7
        await host.seen(WorkerStopped, ended)
    for file in (work.folder / "queue").iterdir():
        file.unlink(missing_ok=True)
    await host.command({"shop": 0})
    await host.seen(WorkerStopped, ended + 1)
    stops = host.of(WorkerStopped)
    assert {(stop.cause, stop.exit_code) for stop in stops} == {("scaled-down", 0)}
    assert Counter(work.asked()) == Counter(stop.pid for stop in stops), "each was asked once"
    work.check()


@pytest.mark.parametrize("ends", [100, pytest.param(1000, marks=pytest.mark.long)])
async def test_no_message_is_interrupted_by_scaling_in(
    settings: MakeSettings, work: Work, ends: int
) -> None:
    limits = {"max_parallel_starts": 8}
    async with stage(settings, pools={"shop": work.pool()}, host=limits) as host:
        host.start()
        await _scale_in_often(host, work, ends)
        assert len(work.logged("start")) > ends, "it was under load"
        assert host.living() == []
        assert leftovers.running(host.run_dir) == {}


async def test_one_that_does_not_end_gets_its_second_signal_only_after_its_time(
    settings: MakeSettings, work: Work
) -> None:
    pool = work.pool(drain={"seconds": 1.0, "then": "INT"})
    async with stage(settings, pools={"shop": pool}) as host:
        host.start()
        await host.command({"shop": 1})
        await host.seen(WorkerReady)
        work.send(name="stuck")
        await eventually(lambda: work.logged("start"))
        await host.command({"shop": 0})
        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.cause, stopped.exit_code) == ("drain-deadline", -signal.SIGINT)
        assert work.asked() == [stopped.pid]


async def test_an_executor_that_comes_back_adopts_them_and_what_was_ending_ends(
    settings: MakeSettings, work: Work
) -> None:
    limits = {"orphan_grace_seconds": 60.0}
    async with stage(settings, pools={"shop": work.pool()}, host=limits) as host:
        executor = host.start()
        await host.command({"shop": 2})
        ready = await host.seen(WorkerReady, 2)
        work.send(2, name="stuck")
        await eventually(lambda: len(work.logged("start")) == 2)
        await host.command({"shop": 1})
        await eventually(work.asked)
        executor.signal(signal.SIGKILL)
        await executor.ended()

        host.start()
        adopted = (await host.seen(WorkerStarted, 4))[2:]
        assert {(event.pid, event.cause) for event in adopted} == {
            (event.pid, "adopted") for event in ready
        }
        await host.pool("shop", planned=1, ready=1, draining=1)
        (work.folder / "release").touch()
        [stopped] = await host.seen(WorkerStopped)
        assert work.asked() == [stopped.pid], "it was not asked twice"
        await host.command({"shop": 0})
        await host.seen(WorkerStopped, 2)
        work.check()


async def test_those_of_an_executor_that_never_comes_back_finish_and_end(
    settings: MakeSettings, work: Work
) -> None:
    limits = {"orphan_grace_seconds": 0.5}
    async with stage(settings, pools={"shop": work.pool()}, host=limits) as host:
        executor = host.start()
        await host.command({"shop": 2})
        await host.seen(WorkerReady, 2)
        work.send(1, name="stuck")
        await eventually(lambda: work.logged("start"))
        executor.signal(signal.SIGKILL)
        await executor.ended()
        await eventually(lambda: len(host.living()) == 1, 20, "the idle one ends")
        (work.folder / "release").touch()
        await eventually(lambda: not leftovers.running(host.run_dir), 20, "both have ended")
        work.check()


async def test_a_crash_loop_is_reported_with_what_the_process_printed(
    settings: MakeSettings, work: Work
) -> None:
    broken = work.pool(command=[sys.executable, "-S", "-c", "raise SystemExit('no such app')"])
    async with stage(settings, pools={"shop": broken}) as host:
        host.start()
        await host.command({"shop": 2})
        looping = await host.seen(WorkerCrashLooping, 2)
        assert [event.failures for event in looping[:2]] == [3, 4]
        assert looping[1].backoff_seconds > looping[0].backoff_seconds
        await host.pool("shop", planned=2, ready=0, crash_loop=True)
        await host.logged("no such app")


async def test_a_program_that_is_not_there_is_a_failed_start(
    settings: MakeSettings, work: Work
) -> None:
    missing = work.pool(command=["/nowhere/celery"])
    async with stage(settings, pools={"shop": missing}) as host:
        host.start()
        await host.command({"shop": 1})
        await host.seen(WorkerCrashLooping)
        await host.logged("cannot run /nowhere/celery")
        assert host.of(WorkerStarted) == []


async def test_what_a_killed_process_leaves_behind_has_its_time_and_then_ends(
    settings: MakeSettings, work: Work
) -> None:
    """A consumer with a child in a process group of its own, as RQ has one for each job."""
    script = (
        "import os, subprocess, sys, time\n"
        f"argv = [sys.executable, '-S', {str(CONSUMER)!r}, {str(work.folder)!r}]\n"
        "subprocess.Popen(argv, process_group=0)\n"
        "time.sleep(3600)\n"
    )
    drain = {"seconds": 3, "then": "TERM"}
    pool = work.pool(command=[sys.executable, "-S", "-c", script], ready="seconds:0.2", drain=drain)
    async with stage(settings, pools={"shop": pool}) as host:
        host.start()
        await host.command({"shop": 1})
        [ready] = await host.seen(WorkerReady)
        work.send(name="stuck")
        await eventually(lambda: work.logged("start"), 20)
        [child] = psutil.Process(ready.pid).children()
        os.kill(ready.pid, signal.SIGKILL)
        await host.seen(WorkerReady, 2)
        assert child.is_running(), "it may finish its message"
        assert work.asked() == []
        (work.folder / "release").touch()
        await eventually(lambda: not child.is_running(), 20)
        assert work.asked() == [child.pid]
        work.check()


@pytest.mark.long  # thirty seconds of silence
async def test_a_stopped_process_is_replaced_and_may_finish(
    settings: MakeSettings, work: Work
) -> None:
    tables = {"pools": {"shop": work.pool()}, "jobs": {"claim_seconds": 1}}
    async with stage(settings, **tables) as host:
        host.start()
        await host.command({"shop": 1})
        [ready] = await host.seen(WorkerReady)
        work.send(name="stuck")
        await eventually(lambda: work.logged("start"))
        os.kill(ready.pid, signal.SIGSTOP)
        await host.seen(WorkerReady, 2)
        (work.folder / "release").touch()
        [stopped] = await host.seen(WorkerStopped)
        assert (stopped.pid, stopped.cause, stopped.exit_code) == (ready.pid, "lost", 0)
        work.check()
