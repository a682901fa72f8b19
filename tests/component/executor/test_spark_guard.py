"""Spark Workers without an executor: found by what runs, claimed in time, or ended gently."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.executor.host import lock
from penstock.executor.spark import guard
from penstock.executor.spark.leftovers import has_executors, has_session, running, send
from penstock.runtime import children
from penstock.runtime.children import Child

WORKER = """
import signal, subprocess, sys
from pathlib import Path
here = Path(__file__)
signal.signal(signal.SIGPWR, lambda *_: here.with_name("decommissioned").touch())
if {executors}:
    below = subprocess.Popen([sys.executable, "-c", "input()", "pyspark-shell"], stdin=-1)
    def end(*_):
        below.kill(), below.wait(), signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, end)
here.with_name("up").touch()
while True:
    signal.pause()
"""


class Host:
    """A run folder, and processes that look like Workers in it: ``PROGRAM @…/java.args``."""

    def __init__(self, folder: Path) -> None:
        self.run_dir, self._folder, self.workers = folder / "run", folder, list[Child]()
        self.run_dir.mkdir(mode=0o700)

    def worker(self, name: str, executors: bool = False) -> Child:
        arguments = self.run_dir / "spark-workers" / name / "java.args"
        script = self._folder / f"@{arguments}"
        script.parent.mkdir(parents=True)
        script.write_text(WORKER.format(executors=executors))
        argv = [sys.executable, f"@{arguments}"]
        child = children.start(argv, name=name, cwd=self._folder)
        self.workers.append(child)
        children.wait_until(child, script.with_name("up").exists, 10, "up")
        return child

    def was_decommissioned(self, name: str) -> bool:
        told = self.run_dir / "spark-workers" / name / "decommissioned"
        return (self._folder / f"@{told}").exists()

    def guard(self, grace: float = 0.0, drain: float = 0.0) -> None:
        """Of an executor that had died before it looked."""
        dead = children.start(["true"], name="executor")
        dead.wait(10)
        seconds = ["--grace-seconds", str(grace), "--drain-seconds", str(drain)]
        guard.main(["--run-dir", str(self.run_dir), "--executor", str(dead.pid), *seconds])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    for child in found.workers:
        child.end()


def test_each_is_known_by_the_folder_that_was_made_for_it(host: Host, tmp_path: Path) -> None:
    one, other = host.worker("one"), host.worker("other", executors=True)
    assert running(host.run_dir) == {"one": one.pid, "other": other.pid}
    assert running(tmp_path) == {}
    assert [has_executors(each.pid) for each in (one, other)] == [False, True]
    assert has_session([one.pid, other.pid])
    assert not has_session([one.pid])
    assert send(host.run_dir, signal.SIGTERM, lambda pid: pid == one.pid) == 2
    assert one.wait(5) == -signal.SIGTERM
    assert running(host.run_dir) == {"other": other.pid}


def test_those_that_nobody_claims_are_decommissioned_and_end_when_they_are_empty(
    host: Host,
) -> None:
    empty, full = host.worker("empty"), host.worker("full", executors=True)
    began = time.monotonic()
    host.guard(drain=1.0)
    assert empty.wait(5) == full.wait(5) == -signal.SIGTERM
    assert host.was_decommissioned("full")
    assert time.monotonic() - began >= 1.0, "the one with executors had its time"


def test_those_of_the_next_executor_are_left_alone(host: Host) -> None:
    worker = host.worker("one")
    held = lock.take(host.run_dir, "test-host")
    host.guard(grace=5.0)
    assert worker.exit_code is None
    assert not host.was_decommissioned("one")
    os.close(held)
