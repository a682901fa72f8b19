"""The worker's hold on Spark: a lease on the host's server, and one session that its jobs share.

A job that never asks for Spark never comes here. Used from three threads: the job's
(:meth:`SparkLease.session`), the loop's (``release``) and helper threads (``interrupt``).
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import telemetry
from penstock.config.settings import Spark
from penstock.spark.address import address
from penstock.spark.tags import job_tag
from penstock.telemetry import SpanKind, names
from penstock.worker.spark import cost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.events.job import SparkCost
    from penstock.worker.spark.session import OpenSession

log = logging.getLogger(__name__)

KEEPER_SECONDS = 15.0
"""How long a keeper is awaited that is not there; it is started with its executor."""
SERVER_SECONDS = 120.0
"""How long a starting server is awaited: longer than its keeper does, which knows more."""
FRESH_SECONDS = 600.0
"""A session unused for longer is replaced: the server forgets one after an hour."""
_SLICE_SECONDS = 0.1


class SparkUnavailable(RuntimeError):
    """No Spark for this job now: why, and what to do."""


class SparkLease:
    """Opens, tags, interrupts and closes.

    Args:
        run_dir: the host's run folder, where the keeper listens.
    """

    def __init__(self, run_dir: str | Path, settings: Spark) -> None:
        self._line = None if settings.remote else KeeperLine(Path(run_dir) / "spark.sock")
        self._settings, self._ui = settings, settings.ui_url
        self.measures_cost = settings.measure_cost
        self._guard = threading.Lock()  # held for an instant only, never while waiting
        self._open: OpenSession | None = None
        self._job = ""
        self._used_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def session_id(self) -> str:
        """Of the open session; empty when there is none."""
        found = self._open
        return str(found.session.session_id) if found else ""

    def session(
        self, job_id: str, token: int, beat: Callable[[], None] = lambda: None
    ) -> SparkSession:
        """The session, tagged for this job; the first call of a job makes sure that it works.

        Call it in the job's thread. Later calls of the same job cost next to nothing.

        Args:
            beat: called from Spark's threads whenever its work for this job gets on.

        Raises:
            SparkUnavailable: no keeper, or the server cannot be started.
        ConfigError: the token of a remote one cannot be read.
        """
        found = self._open
        if found is None or self._job != job_id or found.stopped:
            with self._guard:
                self._job = job_id
            try:
                found = self._ready()
                found.begin(_tags(job_id, token), beat)
            except BaseException:
                self.release(job_id)
                raise
        return found.session

    def release(self, job_id: str) -> None:
        """The job has ended; a server that nobody uses may be stopped. From any thread."""
        with self._guard:
            if self._job != job_id:  # the next job has it already
                return
            self._job = ""
            self._used_at = time.monotonic()
            if self._open:
                self._open.end()
            if self._line:
                self._line.rest()

    def interrupt(self, job_id: str) -> None:
        """Stops the job's Spark work on the server; blocks for a moment. From any thread."""
        with self._guard:
            found = self._open if self._job == job_id else None
        if found:
            stopped = found.interrupt(job_tag(job_id))
            log.info("job %s: %d Spark operations interrupted", job_id, stopped)

    def cost(self, token: int) -> SparkCost | None:
        """What the attempt of this token cost on Spark; blocks for a moment. From any thread."""
        ui = self._line.ui if self._line else self._ui
        return cost.ask(ui, f"penstock-token-{token}") if ui else None

    def close(self) -> None:
        """Gives the session back to the server, and the lease to the keeper."""
        with self._guard:
            found, self._open = self._open, None
        if found:
            found.close(release=True)
        if self._line:
            self._line.close()

    def _ready(self) -> OpenSession:
        remote = self._line.ask() if self._line else address(self._settings)
        found = self._open
        if found and found.remote == remote and not found.stopped and self._is_fresh():
            return found
        from penstock.worker.spark.session import OpenSession  # noqa: PLC0415 - pyspark is heavy

        if found:
            found.replace(release=found.remote == remote)
        with telemetry.span(names.spark("session"), kind=SpanKind.CLIENT) as span:
            self._open = fresh = OpenSession(remote, own=self._line is not None)
            span.set_attribute(names.SPARK_SESSION, fresh.session.session_id)
        if self._line:
            self._line.tell_session(fresh.session.session_id)
        self._used_at = time.monotonic()
        return fresh

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._used_at < FRESH_SECONDS


class KeeperLine:
    """The connection to the keeper: one line asked, one line answered; held, it is the lease."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._read = b""
        self.ui = ""

    def ask(self) -> str:
        """The server's address, started if need be. Raises SparkUnavailable."""
        for last in (False, True):
            try:
                return self._ask()
            except OSError as error:  # the keeper was restarted since: connect again
                self.close()
                if last:
                    raise SparkUnavailable(f"the Spark keeper ended: {error}") from error
        raise AssertionError("unreachable")

    def rest(self) -> None:
        """Keeps the connection, but does not count as somebody who uses the server."""
        self._say("rest")

    def _say(self, word: str) -> None:
        if self._socket:
            with suppress(OSError):
                self._socket.sendall(f"{word}\n".encode())

    def tell_session(self, session_id: str) -> None:
        """If this process dies, the keeper ends what the session still does."""
        self._say(f"session {session_id}")

    def close(self) -> None:
        if self._socket:
            self._say("bye")
            self._socket.close()
        self._socket, self._read = None, b""

    def _ask(self) -> str:
        if self._socket:
            self._socket.sendall(b"again\n")
        else:
            self._socket = self._connect()
        answer = json.loads(self._line(self._socket))
        if "remote" not in answer:
            raise SparkUnavailable(
                f"Spark could not be started on this host: {answer.get('error')}"
            )
        self.ui = str(answer.get("ui", ""))
        return str(answer["remote"])

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + KEEPER_SECONDS
        while True:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(_SLICE_SECONDS)
            try:
                made.connect(str(self._path))
                return made
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
                made.close()
                if time.monotonic() > deadline:
                    raise SparkUnavailable(
                        f"nobody keeps Spark on this host ({self._path}: {error.strerror}); "
                        "start the executor, or set spark.remote"
                    ) from error
            time.sleep(_SLICE_SECONDS)

    def _line(self, connected: socket.socket) -> bytes:
        """One line, read in slices: a cancelled job's thread must come up for air."""
        deadline = time.monotonic() + SERVER_SECONDS
        while b"\n" not in self._read:
            with suppress(TimeoutError):
                found = connected.recv(65536)
                if not found:
                    raise ConnectionResetError("it closed the connection")
                self._read += found
            if time.monotonic() > deadline:
                self.close()
                raise SparkUnavailable(f"no answer from {self._path} in {SERVER_SECONDS:g} s")
        line, _, self._read = self._read.partition(b"\n")
        return line


def _tags(job_id: str, token: int) -> tuple[str, ...]:
    trace = telemetry.trace_id()
    story = (f"penstock-trace-{trace}",) if trace else ()
    return (job_tag(job_id), f"penstock-token-{token}", *story)
