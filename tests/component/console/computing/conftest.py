"""A console whose computations are made by a program of the test."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.console.computing.parts import Computing
from penstock.events.scaling import Reason, ScalingDecisionMade

_PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path({folder!r})
with open(folder / "calls", "a") as file:
    file.write(json.dumps([os.getpid(), *sys.argv[1:]]) + "\\n")
while (folder / "hold").exists():
    time.sleep(0.01)
if (folder / "fails").exists():
    sys.exit((folder / "fails").read_text())
kind = "simulated" if "replay" in sys.argv else "explained"
if "replay" in sys.argv:
    print("simulating 0.50", file=sys.stderr, flush=True)
sys.stdout.write((folder / kind).read_text())
"""


def decided(pool: str = "reports", **fields: Any) -> ScalingDecisionMade:
    """A decision to be recomputed."""
    made: dict[str, Any] = {
        "current": 38,
        "target": 44,
        "strategy": "deadline",
        "sla_seconds": 30.0,
        "reasons": (
            Reason(step="strategy", rule="deadline", workers=52, text="1,204 wait"),
            Reason(step="bounds", rule="max_workers", workers=44, text="no more than 44"),
        ),
    }
    return ScalingDecisionMade(pool=pool, **{**made, **fields})


class Oracle:
    """The program that a console runs instead of `penstock`.

    Args:
        folder: for what it answers, and what it was asked.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.command = ("-c", _PROGRAM.format(folder=str(folder)))
        self.explains(recomputed="equal")
        self.simulates()

    def explains(self, **fields: Any) -> None:
        self._write("explained", json.dumps(msgspec.to_builtins(fields)))

    def simulates(self) -> None:
        row = {"late_share": 0.01, "wait_p95": 4.0, "wait_max": 9.0, "actions": 8.0, "hours": 6.0}
        row |= {"jobs": 1200, "keeps_promise": True}
        rows = [
            {**row, "settings": "reports, as set", "worker_seconds": 36_000.0},
            {**row, "settings": "reports, instead", "worker_seconds": 18_000.0},
            {**row, "settings": "reports, 4 fixed", "worker_seconds": 86_400, "fixed_workers": 4},
        ]
        self._write("simulated", json.dumps(rows))

    def holds(self) -> None:
        """Each call waits until it is released."""
        self._write("hold", "")

    def releases(self) -> None:
        (self.folder / "hold").unlink()

    def fails(self, text: str) -> None:
        """Each call ends with this line and the exit code 1."""
        self._write("fails", text)

    @property
    def calls(self) -> list[list[Any]]:
        """Pid and arguments of each call."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def called(self, count: int = 1) -> list[list[Any]]:
        return await eventually(
            lambda: self.calls if len(self.calls) >= count else None, 30, f"{count} calls"
        )

    def _write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)


@pytest.fixture
async def oracle(site: Site, tmp_path: Path) -> Oracle:
    """The program of this site's console."""
    made = Oracle(tmp_path / "oracle")
    computing = Computing(site.settings, tmp_path / "console", lambda: None, command=made.command)
    site.console = dataclasses.replace(site.console, computing=computing)
    site.spawn(computing.run)
    return made


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
