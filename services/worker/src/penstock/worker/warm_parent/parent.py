"""The warm parent: imports what is heavy once, then forks a ready worker for each order.

What it is sent and answers: `penstock.runtime.workers.warm_parent_protocol`.

It has no threads (a fork copies only the thread that forks, and the locks of all). When its
executor dies it forks no more, but stays for as long as workers of its own live and no other
executor has claimed them: see `penstock.worker.warm_parent.left_behind`. Run as
``python -m penstock.worker.warm_parent.parent --fd N``.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from penstock.runtime.interpreter import PAUSING, working_directory_last
from penstock.runtime.workers import record
from penstock.runtime.workers import warm_parent_protocol as protocol
from penstock.runtime.workers.assignment import Assignment
from penstock.runtime.workers.warm_parent_protocol import (
    Exited,
    Failed,
    Forked,
    Refused,
    Report,
)
from penstock.telemetry import lines
from penstock.worker.warm_parent import left_behind, warmth

log = logging.getLogger("penstock.worker.warm_parent")

Entry = Callable[[Assignment], int]
"""What a forked worker runs; its result is the exit code."""


def main(arguments: list[str] | None = None, entry: Entry | None = None) -> int:
    """The process. ``entry`` stands in for `penstock.worker.app.main` in tests."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.worker.warm_parent.parent", description=__doc__
    )
    parser.add_argument("--fd", type=int, required=True, help="number of the inherited socket")
    channel = socket.socket(fileno=parser.parse_args(arguments).fd)
    channel.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the executor's to handle
    return WarmParent(channel, entry or _worker_main).serve()


class WarmParent:
    """Reads orders, forks, reports exits; blocking, single-threaded."""

    def __init__(self, channel: socket.socket, entry: Entry) -> None:
        self._channel, self._entry = channel, entry
        self._buffer = b""
        self._workers: dict[int, Assignment] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> int:
        """Until the executor's end of the socket closes."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake_read in ready:
                self._report_exits()
            if self._channel.fileno() in ready and not self._obey():
                left_behind.watch(self._workers, self._reap)
                return 0

    def _obey(self) -> bool:
        """Handles what was sent; False at the end of the socket."""
        try:
            received = self._channel.recv(1 << 16)
        except ConnectionError:
            return False
        *complete, self._buffer = (self._buffer + received).split(b"\n")
        for line in complete:
            self._handle(line)
        return bool(received)

    def _handle(self, line: bytes) -> None:
        try:
            order = protocol.read_order(line)
        except msgspec.DecodeError as error:
            log.error("a line from the executor is no order: %s", error)
            self._send(Report(refused=Refused(str(error))))
            return
        if order.warm:
            lines.start(order.warm.log_level, order.warm.log_json)
            self._send(Report(ready=warmth.warm_up(order.warm.modules)))
        if order.spawn:
            self._fork(order.spawn)

    def _fork(self, assignment: Assignment) -> None:
        started_at = time.time()
        try:
            pid = os.fork()
        except OSError as error:
            self._send(Report(failed=Failed(assignment.worker, str(error))))
            return
        if pid == 0:
            self._be_worker(assignment, started_at)
        self._workers[pid] = assignment
        self._send(Report(forked=Forked(assignment.worker, pid)))

    def _be_worker(self, assignment: Assignment, started_at: float) -> None:
        """The child's whole life; never returns to the parent's loop."""
        code = 70  # EX_SOFTWARE
        try:
            self._leave_parent()
            run_dir = Path(assignment.run_dir)
            record.write(
                run_dir,
                assignment.worker,
                assignment.pool,
                started_at,
                started_with=assignment.started_with,
            )
            code = self._entry(assignment)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            log.exception("worker %s could not run", assignment.worker)
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)

    def _leave_parent(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for number in PAUSING:  # until its loop handles them
            signal.signal(number, signal.SIG_IGN)
        os.setsid()
        self._channel.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        warmth.after_fork()

    def _report_exits(self) -> None:
        os.read(self._wake_read, 4096)
        for pid, code in self._reap():
            self._send(Report(exited=Exited(pid, code)))

    def _reap(self) -> list[tuple[int, int]]:
        """Process ids and exit codes of workers that ended since the last call."""
        ended = list(_ended_children())
        for pid, _ in ended:
            self._workers.pop(pid, None)
        return ended

    def _send(self, report: Report) -> None:
        try:
            self._channel.sendall(protocol.line(report))
        except ConnectionError:
            log.debug("the executor is gone; not sent: %s", report)


def _ended_children() -> Iterator[tuple[int, int]]:
    """Process id and exit code (negative for a signal) of each child that ended, reaped."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _worker_main(assignment: Assignment) -> int:
    from penstock.worker.app import main as run  # noqa: PLC0415 - imported while warming up

    return run(assignment)


if __name__ == "__main__":
    working_directory_last()  # modules of jobs may lie there
    lines.start("warning")  # until the executor says how
    sys.exit(main())
