"""Processes of this machine: watched, signalled, measured; strangers left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.waiting import eventually

from penstock.executor.host.resources import UseMeter, host_size
from penstock.executor.processes import Processes
from penstock.operations.process_identity import start_ticks

HAS_A_LARGE_CHILD = """
import os, time
if not os.fork():
    held = bytearray(b"x") * 80_000_000
    print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


class Ended:
    def __init__(self) -> None:
        self.codes: dict[str, int | None] = {}
        self.processes = Processes(self.codes.__setitem__)


async def test_an_end_is_noticed_with_its_code(sleeper: subprocess.Popen[bytes]) -> None:
    ended = Ended()
    ended.processes.watch("w", sleeper.pid)
    assert ended.processes.pids == [sleeper.pid]
    ended.processes.kill("w")
    await eventually(lambda: "w" in ended.codes)
    assert ended.codes == {"w": -signal.SIGKILL}
    assert ended.processes.pids == []


async def test_a_stopped_process_is_continued_to_hear_that_it_should_end(
    sleeper: subprocess.Popen[bytes],
) -> None:
    ended = Ended()
    ended.processes.watch("w", sleeper.pid)
    os.kill(sleeper.pid, signal.SIGSTOP)
    ended.processes.terminate("w")
    await eventually(lambda: ended.codes == {"w": -signal.SIGTERM})


async def test_another_process_under_a_recorded_id_is_not_touched(
    sleeper: subprocess.Popen[bytes],
) -> None:
    ended = Ended()
    recorded = start_ticks(sleeper.pid)
    assert recorded
    ended.processes.watch("w", sleeper.pid, ticks=recorded - 1)
    ended.processes.kill("w")
    await eventually(lambda: "w" in ended.codes)
    assert ended.codes == {"w": None}
    assert sleeper.poll() is None


async def test_a_process_that_is_gone_already_counts_as_ended(
    sleeper: subprocess.Popen[bytes],
) -> None:
    ended = Ended()
    sleeper.kill()
    sleeper.wait()
    ended.processes.watch("w", sleeper.pid, ticks=1)
    await eventually(lambda: ended.codes == {"w": None})


def test_this_host_has_a_size_and_our_part_of_its_use_is_told() -> None:
    size = host_size()
    assert size.cpu_cores > 0
    meter = UseMeter()
    use = meter.measure([os.getpid(), 2**22 + 1])  # the second does not exist
    assert 0 < use.own_memory_bytes < size.memory_bytes
    assert 0 < use.memory_used_bytes <= size.memory_bytes
    assert meter.measure([]) is use, "asked again at once, it repeats itself"


async def test_what_other_programs_use_of_the_cores_counts_unless_it_is_not_to() -> None:
    counting, requests_alone = UseMeter(), UseMeter(counts_other_cpu=False)
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        await eventually(lambda: counting.measure([]).cpu_busy_cores > 0.1)
        assert counting.measure([]).own_cpu_busy_cores == 0
        await eventually(lambda: requests_alone.measure([other.pid]).cpu_busy_cores > 0.1)
        use = requests_alone.measure([other.pid])
        assert use.cpu_busy_cores == use.own_cpu_busy_cores
    finally:
        other.kill()
        await other.wait()


def test_what_a_job_started_is_ours_as_far_as_it_was_reckoned_with() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HAS_A_LARGE_CHILD], stdout=subprocess.PIPE, start_new_session=True
    ) as worker:
        assert worker.stdout and worker.stdout.readline()
        alone, some, whole = (
            UseMeter().measure([worker.pid], beside=kept).own_memory_bytes // 10**6
            for kept in ({}, {worker.pid: 30 * 10**6}, {worker.pid: 10**9})
        )
        os.killpg(worker.pid, signal.SIGKILL)
    assert some - alone == pytest.approx(30, abs=5)
    assert 80 <= whole - alone <= 130
