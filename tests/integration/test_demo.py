"""The demo ends everything that it started."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

READY = "the first workers are ready"


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A demo whose first workers are ready."""
    with (tmp_path / "said").open("w+b") as said:
        started = await asyncio.create_subprocess_exec(
            sys.executable, "examples/demo.py", stdout=said, stderr=said, process_group=0
        )
        try:
            await eventually(
                lambda: READY in (tmp_path / "said").read_text("utf-8"), within=60, what=READY
            )
            yield started
        finally:
            if started.returncode is None:
                started.kill()
            await started.wait()


async def test_nothing_is_left_after_ctrl_c(demo: asyncio.subprocess.Process):
    below = psutil.Process(demo.pid).children(recursive=True)
    assert len(below) >= 8  # broker, five services, the warm parent, workers
    demo.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(demo.wait(), 30) == 130
    assert not [process for process in below if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
