"""The warm parent as a real process: what a fork begins with, and how ends are told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.config import Settings
from penstock.executor.warm_parent import WarmParent
from penstock.runtime.workers.assignment import Assignment
from penstock.runtime.workers.record import living
from penstock.telemetry.lines import JsonLines

COMMAND = (sys.executable, "-m", "tests.integration.tiny_parent")


class Heard:
    """What the warm parent told, by worker and by process id."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self.codes: dict[int, int] = {}

    def forked(self, worker: str, pid: int) -> None:
        self.pids[worker] = pid

    def not_forked(self, worker: str, error: str) -> None:
        self.errors[worker] = error

    def exited(self, pid: int, code: int) -> None:
        self.codes[pid] = code

    async def pid(self, worker: str) -> int:
        return await eventually(lambda: self.pids.get(worker), within=15)


@pytest.fixture
def run_dir(settings: MakeSettings) -> Path:
    folder = Path(settings().host.run_dir)
    folder.mkdir()
    return folder


@pytest.fixture
def assign(settings: MakeSettings, run_dir: Path) -> Callable[[str], Assignment]:
    def make(pool: str) -> Assignment:
        return Assignment(
            worker=f"w-{pool}",
            host="test-host",
            pool=pool,
            queues=(pool,),
            run_dir=str(run_dir),
            settings=settings(),
            commanded_at=0.0,
        )

    return make


@asynccontextmanager
async def warm(
    settings: Settings, answer_seconds: float = 15.0
) -> AsyncIterator[tuple[WarmParent, Heard]]:
    heard = Heard()
    parent = WarmParent(settings, heard, COMMAND, answer_seconds)
    running = asyncio.create_task(parent.run())
    try:
        yield parent, heard
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for pid in heard.pids.values():
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


async def test_a_fork_is_a_process_of_its_own_recorded_before_it_works(
    settings: MakeSettings, assign: Callable[[str], Assignment], run_dir: Path
) -> None:
    async with warm(settings()) as (parent, heard):
        parent.fork(assign("wait"))
        pid = await heard.pid("w-wait")
        [record] = await eventually(lambda: list(living(run_dir)))
        assert (record.worker, record.pool, record.pid) == ("w-wait", "wait", pid)
        await eventually(lambda: os.getsid(pid) == pid, what="a session of its own")
        assert parent.pid is not None
        assert psutil.Process(parent.pid).num_threads() == 1, "heavy imports, yet no thread"
        sockets = {target for target in _open_files(pid) if target.startswith("socket:")}
        assert not sockets, "the executor's line is the parent's alone"
        os.kill(pid, signal.SIGTERM)
        assert await eventually(lambda: heard.codes.get(pid)) == -signal.SIGTERM


async def test_its_workers_write_json_lines_where_their_executor_does(
    settings: MakeSettings,
    assign: Callable[[str], Assignment],
    executor_logs_json: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with warm(settings()) as (parent, heard):
        parent.fork(assign("raise"))
        pid = await heard.pid("w-raise")
        await eventually(lambda: pid in heard.codes)
    [line] = [line for line in capfd.readouterr().err.splitlines() if "w-raise" in line]
    told = json.loads(line)
    assert (told["level"], told["text"]) == ("error", "worker w-raise could not run")
    assert told["traceback"].endswith("ValueError: raised on purpose")


@pytest.fixture
def executor_logs_json() -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.root.addHandler(handler)
    yield
    logging.root.removeHandler(handler)


def _open_files(pid: int) -> list[str]:
    return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]


@pytest.mark.parametrize(
    ("pool", "code"), [("code-0", 0), ("code-3", 3), ("exit", 1), ("raise", 70)]
)
async def test_exit_codes_are_told(
    settings: MakeSettings, assign: Callable[[str], Assignment], pool: str, code: int
) -> None:
    async with warm(settings()) as (parent, heard):
        parent.fork(assign(pool))
        pid = await heard.pid(f"w-{pool}")
        await eventually(lambda: pid in heard.codes)
        assert heard.codes[pid] == code


async def test_its_end_does_not_end_its_workers_and_another_comes(
    settings: MakeSettings, assign: Callable[[str], Assignment]
) -> None:
    async with warm(settings()) as (parent, heard):
        parent.fork(assign("wait"))
        worker = await heard.pid("w-wait")
        first = parent.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        parent.fork(assign("code-3"))
        os.kill(first, signal.SIGKILL)
        assert await eventually(lambda: heard.errors.get("w-code-3")) == "the warm parent ended"
        assert psutil.Process(worker).status() != psutil.STATUS_ZOMBIE
        parent.fork(assign("code-3"))
        pid = await heard.pid("w-code-3")
        assert await eventually(lambda: heard.codes.get(pid)) == 3


async def test_one_that_hangs_is_replaced(
    settings: MakeSettings, assign: Callable[[str], Assignment]
) -> None:
    async with warm(settings(), answer_seconds=0.5) as (parent, heard):
        parent.fork(assign("wait"))
        await heard.pid("w-wait")
        first = parent.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        parent.fork(assign("code-3"))
        assert await eventually(lambda: heard.errors.get("w-code-3")) == "the warm parent ended"
        await eventually(lambda: parent.pid not in {None, first})


async def test_modules_that_fail_or_start_threads_are_reported_clearly(
    settings: MakeSettings, assign: Callable[[str], Assignment], capfd: pytest.CaptureFixture[str]
) -> None:
    modules = ["tests.integration.broken_jobs", "tests.integration.threaded_jobs", "no.such_module"]
    async with warm(settings(jobs={"modules": modules})) as (parent, heard):
        parent.fork(assign("code-0"))
        await heard.pid("w-code-0")
        log = capfd.readouterr().err
    assert "RuntimeError: this module is broken on purpose" in log
    assert "No module named 'no'" in log
    assert "importing started threads" in log
