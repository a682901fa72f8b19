"""What surrounds a process of another system: readiness, output, variables, what is left of it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from penstock.config import Profile
from penstock.config.foreign import Drain, ready_of
from penstock.executor.foreign import guard, kept, leftovers, output, tree
from penstock.executor.foreign.consumer import Consumer
from penstock.executor.foreign.kept import Kept
from penstock.executor.foreign.output import Output
from penstock.executor.foreign.readiness import Probe, SlowPattern
from penstock.executor.foreign.workers import variables
from penstock.executor.host import lock
from penstock.runtime import children
from penstock.runtime.children import Child

SLEEPS = "import signal; print('up', flush=True); signal.pause()"


def probe(text: str, output: Output | None = None) -> Probe:
    return Probe(ready_of(text), output.new_lines if output else list, time.time())


def has_printed_sign(ready: Probe) -> bool:
    assert not ready.is_ready([], time.time()), "lines are compared on the main thread alone"
    return ready.has_printed_sign()


@pytest.fixture
def printed(tmp_path: Path) -> Output:
    made = Output(tmp_path, "shop", "w-1")
    made.begin()
    return made


def test_a_line_of_the_output_shows_it_once_it_is_whole(printed: Output) -> None:
    ready = probe("log:celery@.* ready", printed)
    assert not has_printed_sign(ready), "there is no file yet"
    with printed.path.open("w") as file:
        file.write("starting\ncelery@host ")
        file.flush()
        assert not has_printed_sign(ready)
        file.write("ready.\n")
    assert has_printed_sign(ready)


def test_a_pattern_that_backtracks_holds_up_nothing(printed: Output) -> None:
    ready = probe("log:^(a+)+$", printed)
    printed.path.write_text("a" * 3_000 + "!\n")
    with pytest.raises(SlowPattern):
        has_printed_sign(ready)
    with printed.path.open("a") as file:
        file.write("a" * 3_000 + "!\naaa\n")
    assert not has_printed_sign(ready), "no line is compared any more"


def test_a_port_counts_where_the_process_itself_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ready = probe(f"port:{server.getsockname()[1]}")
        assert ready.is_ready([os.getpid()], time.time())
        assert not ready.is_ready([os.getppid()], time.time())
    assert not ready.is_ready([os.getpid()], time.time())


def test_a_file_of_an_earlier_process_does_not_count(tmp_path: Path) -> None:
    sign = tmp_path / "ready"
    ready = probe(f"file:{sign}")
    assert not ready.is_ready([], time.time())
    sign.touch()
    assert ready.is_ready([], time.time())
    os.utime(sign, (time.time(), time.time() - 3600))
    assert not ready.is_ready([], time.time())


def test_seconds_pass() -> None:
    ready = probe("seconds:5")
    assert not ready.is_ready([], time.time())
    assert ready.is_ready([], time.time() + 5)


def test_output_is_bounded_while_the_process_goes_on_writing(printed: Output) -> None:
    descriptor = os.open(printed.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"x" * (3 * output.MOST_BYTES) + b"\nlast\n")
    printed.bound()
    os.write(descriptor, b"next\n")
    assert printed.new_lines() == ["next"]
    files = sorted(printed.path.parent.iterdir())
    assert [file.name for file in files] == ["w-1.log", "w-1.log.1"]
    assert files[1].stat().st_size == output.MOST_BYTES
    assert files[1].read_bytes().endswith(b"\nlast\n")
    os.close(descriptor)


def test_a_pipe_in_the_place_of_the_file_holds_up_nothing(printed: Output) -> None:
    printed.path.unlink(missing_ok=True)
    os.mkfifo(printed.path)
    reading = Thread(target=lambda: (printed.new_lines(), printed.last_lines()), daemon=True)
    reading.start()
    reading.join(5.0)
    assert not reading.is_alive()


def test_lines_go_on_after_the_file_was_cut(printed: Output) -> None:
    printed.path.write_text("one\ntwo\nhal")
    assert printed.new_lines() == ["one", "two"]
    printed.path.write_text("new\n")
    assert printed.new_lines() == ["new"]
    assert printed.last_lines() == ["new"]


def test_files_of_ended_processes_go_but_for_the_newest(tmp_path: Path, printed: Output) -> None:
    folder = printed.path.parent
    for number in range(output.KEPT_FILES + 5):
        file = folder / f"w-{number}.log"
        file.touch()
        os.utime(file, (number, number))
    output.prune(tmp_path, "shop", frozenset({"w-0"}))
    left = {file.name for file in folder.iterdir()}
    assert len(left) == output.KEPT_FILES + 1
    assert "w-0.log" in left, "it lives"
    assert "w-1.log" not in left


def test_a_process_gets_the_variables_that_are_named() -> None:
    present = {"PATH": "/bin", "LC_ALL": "C", "DJANGO_A": "1", "PENSTOCK_NATS__PASSWORD": "x"}
    assert variables(["DJANGO_*"], present) == {"PATH": "/bin", "LC_ALL": "C", "DJANGO_A": "1"}
    assert variables([], present) == {"PATH": "/bin", "LC_ALL": "C"}


class Processes:
    """A run folder, and processes with the mark of workers of it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self._children = run_dir, list[Child]()

    def start(self, worker: str, script: str = SLEEPS, drain: Drain | None = None) -> Child:
        kept.write(self.run_dir, worker, Kept(drain=drain or Drain()))
        log = self.run_dir / f"{worker}.log"
        child = children.start(
            [sys.executable, "-S", "-c", script],
            name=worker,
            log=log,
            env=leftovers.mark(self.run_dir, worker),
        )
        self._children.append(child)
        children.wait_until(child, lambda: "up" in log.read_text(), 10, "up")
        return child

    def close(self) -> None:
        for child in self._children:
            child.end(0.0)

    def guard(self, grace: float = 0.0) -> None:
        """Of an executor that had died before it looked."""
        dead = children.start(["true"], name="executor")
        dead.wait(10)
        seconds = ["--grace-seconds", str(grace)]
        guard.main(["--run-dir", str(self.run_dir), "--executor", str(dead.pid), *seconds])


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.close()


def test_a_process_and_its_children_are_found_by_their_mark(processes: Processes) -> None:
    both = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEPS!r}])\n"
    one = processes.start("one", both + "import signal; signal.pause()")
    other = processes.start("other")
    found = leftovers.running(processes.run_dir)
    started = [leftovers.to_ask(Kept(pid=pid), found["one"]) for pid in (None, one.pid, 1)]
    assert started == [[one.pid], [one.pid], []], "it asks its child itself"
    assert {worker: len(pids) for worker, pids in found.items()} == {"one": 2, "other": 1}
    seen = tree.look(one.pid)
    assert seen
    assert set(seen.pids) == found["one"]
    assert seen.memory_bytes() > 0
    leftovers.send(processes.run_dir, "one", [other.pid], signal.SIGKILL)
    assert other.exit_code is None, "it is not that worker's"
    one.signal(signal.SIGKILL)
    one.wait(5)
    [child] = found["one"] - {one.pid}
    leftovers.send(processes.run_dir, "one", [child], signal.SIGKILL)
    assert tree.look(one.pid) is None


def _has_mark(pid: int, worker: str) -> bool:
    return f"PENSTOCK_WORKER={worker}".encode() in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_mark_that_is_no_name_of_a_worker_leads_to_no_file(processes: Processes) -> None:
    precious = processes.run_dir / "precious"
    precious.mkdir()
    for forged in (str(precious), "../precious", ".", ".."):
        child = children.start(
            ["sleep", "60"], name="forged", env=leftovers.mark(processes.run_dir, forged)
        )
        processes._children.append(child)
        children.wait_until(child, partial(_has_mark, child.pid, forged), 10, "its mark")
    assert leftovers.running(processes.run_dir) == {}
    processes.guard()
    assert precious.is_dir()


def test_those_that_no_executor_claims_are_drained_by_their_own_signal(
    processes: Processes,
) -> None:
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
    obeys = processes.start("obeys")
    # Commands that a script runs in the background begin with QUIT ignored, and so do these tests.
    dies = "import signal\nsignal.signal(signal.SIGQUIT, signal.SIG_DFL)\n" + SLEEPS
    asked = processes.start("asked", dies, Drain(signal="QUIT"))
    ignores = processes.start("ignores", script, Drain(seconds=0.5, then="INT"))
    stopped = processes.start("stopped")
    stopped.signal(signal.SIGSTOP)
    processes.guard()
    codes = [child.wait(5) for child in (obeys, asked, ignores, stopped)]
    assert codes == [-signal.SIGTERM, -signal.SIGQUIT, -signal.SIGINT, -signal.SIGTERM]
    assert kept.names(processes.run_dir) == []


def test_one_that_was_asked_before_is_not_asked_again(processes: Processes) -> None:
    counts = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('up', flush=True)\n"
        "signal.pause()"
    )
    child = processes.start("one", counts)
    kept.update(processes.run_dir, "one", drain_until=time.monotonic() + 3600)
    ending = leftovers.Ending(processes.run_dir, "one")
    assert not ending.step({child.pid})
    kept.update(processes.run_dir, "one", drain_until=time.monotonic())
    assert not leftovers.Ending(processes.run_dir, "one").step({child.pid})
    assert child.wait(5) == -signal.SIGKILL, "the signal of 'then', and no TERM"


def test_those_of_the_next_executor_are_left_alone(processes: Processes) -> None:
    child = processes.start("one")
    held = lock.take(processes.run_dir, "test-host")
    processes.guard(grace=5.0)
    assert child.exit_code is None
    os.close(held)


def test_a_process_reports_itself_and_what_it_exceeds(processes: Processes) -> None:
    child = processes.start("one")
    consumer = Consumer("one", "shop", child.pid, Kept(), Output(processes.run_dir, "shop", "one"))
    consumer.watch_for(None, "host-a", started_at=1000.0)
    assert consumer.report("host-a", 1, 1001.0).state == "starting"
    consumer.is_ready = True
    consumer.look(1001.0, 100.0, full=True)
    report = consumer.report("host-a", 4, 1001.0)
    assert (report.state, report.slots, report.number, report.pid) == ("idle", 4, 2, child.pid)
    assert report.memory_bytes > 0
    assert "limit_memory_bytes is 1 MiB" in consumer.beyond(
        Profile(limit_memory_bytes=2**20), 1001.0
    )
    assert "limit_seconds = 60" in consumer.beyond(Profile(limit_seconds=60), 1061.0)
    assert consumer.beyond(Profile(limit_memory_bytes=2**40, limit_seconds=60), 1060.0) == ""
    child.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    consumer.look(1002.0, 101.0, full=True)
    assert consumer.is_stopped
    consumer.keep(processes.run_dir, drain_until=500.0)
    assert consumer.report("host-a", 4, 1002.0).state == "draining"
    assert consumer.beyond(Profile(limit_seconds=1), 9999.0) == "", "it is ending"
    assert kept.read(processes.run_dir, "one") == Kept(drain_until=500.0)
