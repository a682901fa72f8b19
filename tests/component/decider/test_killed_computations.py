"""A command that computes in several processes leaves none behind, however it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

from penstock.bus.saved_log import Entry, line


def trace(folder: Path) -> list[str]:
    """Arguments of a simulation that takes minutes."""
    path = folder / "long.csv"
    path.write_text("timestamp\n" + "".join(f"{n * 60}\n" for n in range(100_000)), "utf-8")
    return ["simulate", str(path), "--processes", "2", "--seeds", "2"]


def log(folder: Path) -> list[str]:
    """Arguments of a replay that takes minutes: of a log that is larger than what is in it."""
    path = folder / "log.jsonl"
    entry = line(Entry(1, 1.0, "penstock.snapshots.pool.a", b"null"))  # type: ignore[arg-type]
    path.write_bytes(entry * (150_000_000 // len(entry)))
    return ["replay", "--from", str(path), "--processes", "2"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("arguments", [trace, log])
async def test_no_child_outlives_its_command(tmp_path: Path, arguments, number) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL
    )
    parent = psutil.Process(process.pid)

    def busy_children() -> list[psutil.Process]:
        children = parent.children(recursive=True)
        busy = [child for child in children if child.cpu_times().user > 0.2]
        return children if len(busy) >= 2 else []

    children = await eventually(busy_children, 60, "two children that compute")
    process.send_signal(number)
    code = await asyncio.wait_for(process.wait(), 20)
    await eventually(
        lambda: not any(child.is_running() for child in children), 20, "the children's end"
    )
    assert code == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    (tmp_path / "log.jsonl").unlink(missing_ok=True)
