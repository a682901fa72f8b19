"""The worker's hold on Spark: a lease on the host's server, and one session that its jobs share.

A job that never asks for Spark never comes here. Used from three threads: the job's
(:meth:`SparkLease.session`), the loop's (``release``) and helper threads (``interrupt``).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import telemetry
from penstock.config.spark import Spark
from penstock.runtime.paths import socket_address
from penstock.spark import supervisor_protocol as protocol
from penstock.spark.sessions import address, job_tag
from penstock.telemetry import SpanKind, names
from penstock.worker.spark import cost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.events.job import SparkCost
    from penstock.worker.spark.session import OpenSession

log = logging.getLogger(__name__)

SUPERVISOR_SECONDS = 15.0
"""How long a supervisor is awaited that does not listen; it is started with its executor."""
SERVER_SECONDS = 120.0
"""How long a starting server is awaited: longer than its supervisor does, which knows why."""
FRESH_SECONDS = 600.0
"""A session unused for longer is replaced: the server forgets one after an hour."""
_SLICE_SECONDS = 0.1


class SparkUnavailable(RuntimeError):
    """No Spark for this job now: why, and what to do."""


class SparkLease:
    """Opens, tags, interrupts and closes.

    Args:
        run_dir: the host's run folder, where the Spark supervisor listens.
    """

    def __init__(self, run_dir: str | Path, settings: Spark) -> None:
        self._line = None if settings.remote else SupervisorLine(Path(run_dir) / protocol.SOCKET)
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
        opened = self._open
        return str(opened.session.session_id) if opened else ""

    def session(
        self, job_id: str, token: int, beat: Callable[[], None] = lambda: None
    ) -> SparkSession:
        """The session, tagged for this job; the first call of a job makes sure that it works.

        Call it in the job's thread. Later calls of the same job cost next to nothing.

        Args:
            beat: called from Spark's threads whenever its work for this job gets on.

        Raises:
            SparkUnavailable: no supervisor listens, or the server cannot be started.
            ConfigError: the token of a remote one cannot be read.
        """
        opened = self._open
        if opened is None or self._job != job_id or opened.stopped:
            with self._guard:
                self._job = job_id
            try:
                opened = self._ready()
                opened.begin(_tags(job_id, token), beat)
            except BaseException:
                self.release(job_id)
                raise
        return opened.session

    def release(self, job_id: str) -> None:
        """The job has ended; a server without users may be stopped. From any thread."""
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
            opened = self._open if self._job == job_id else None
        if opened:
            stopped = opened.interrupt(job_tag(job_id))
            log.info("job %s: %d Spark operations interrupted", job_id, stopped)

    def cost(self, token: int) -> SparkCost | None:
        """What the attempt of this token cost on Spark; blocks for a moment. From any thread."""
        ui = self._web_ui()
        return cost.ask(ui, f"penstock-token-{token}") if ui else None

    def close(self) -> None:
        """Gives the session back to the server, and the lease to the supervisor."""
        with self._guard:
            opened, self._open = self._open, None
        if opened:
            opened.close(release=True)
        if self._line:
            self._line.close()

    def _ready(self) -> OpenSession:
        began = time.monotonic()
        if self._open is None:  # starting a server may take half a minute
            log.info(self._awaited())
        remote = self._line.ask() if self._line else address(self._settings)
        opened = self._open
        if opened and opened.remote == remote and not opened.stopped and self._is_fresh():
            return opened
        from penstock.worker.spark.session import OpenSession  # noqa: PLC0415 - pyspark is heavy

        if opened:
            opened.replace(release=opened.remote == remote)
        with telemetry.span(names.spark("session"), kind=SpanKind.CLIENT) as span:
            self._open = fresh = OpenSession(remote, own=self._line is not None)
            span.set_attribute(names.SPARK_SESSION, fresh.session.session_id)
        if self._line:
            self._line.name_session(fresh.session.session_id)
        if self.measures_cost and (ui := self._web_ui()):
            threading.Thread(target=cost.warm, args=(ui,), name="spark-ui", daemon=True).start()
        self._used_at = time.monotonic()
        log.info("the Spark session is open after %.1f s", self._used_at - began)
        return fresh

    def _web_ui(self) -> str:
        return self._line.ui if self._line else self._ui

    def _awaited(self) -> str:
        if self._line is None:
            return "opening a session with Spark at the address in spark.remote"
        return "waiting for this host's Spark, which is started for the first job that uses it"

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._used_at < FRESH_SECONDS


class SupervisorLine:
    """The connection to the host's Spark supervisor: while it is open, it is the lease."""

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
            except OSError as error:  # the supervisor was restarted: connect again
                self.close()
                if last:
                    raise SparkUnavailable(f"the Spark supervisor ended: {error}") from error
        raise AssertionError("unreachable")

    def rest(self) -> None:
        """Keeps the connection, but does not count as a user of the server."""
        self._send(protocol.REST)

    def name_session(self, session_id: str) -> None:
        """If this process dies, the supervisor ends what the session still does."""
        self._send(protocol.session(session_id))

    def close(self) -> None:
        if self._socket:
            self._send(protocol.BYE)
            self._socket.close()
        self._socket, self._read = None, b""

    def _ask(self) -> str:
        if self._socket:
            self._socket.sendall(protocol.line(protocol.AGAIN))
        else:
            self._socket = self._connect()
        answer = protocol.read_answer(self._read_line(self._socket))
        if not answer.remote:
            raise SparkUnavailable(f"Spark could not be started on this host: {answer.error}")
        self.ui = answer.ui
        return answer.remote

    def _send(self, request: bytes) -> None:
        if self._socket:
            with suppress(OSError):
                self._socket.sendall(protocol.line(request))

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + SUPERVISOR_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_SLICE_SECONDS)
            try:
                with socket_address(self._path) as address:
                    connection.connect(address)
                return connection
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
                connection.close()
                if time.monotonic() > deadline:
                    raise SparkUnavailable(
                        f"no Spark supervisor listens at {self._path} ({error.strerror}); "
                        "is `executor` running on this host? Else set spark.remote"
                    ) from error
            time.sleep(_SLICE_SECONDS)

    def _read_line(self, connection: socket.socket) -> bytes:
        """One line; short read timeouts, so that an asynchronous exception is raised between."""
        deadline = time.monotonic() + SERVER_SECONDS
        while b"\n" not in self._read:
            with suppress(TimeoutError):
                received = connection.recv(65536)
                if not received:
                    raise ConnectionResetError("it closed the connection")
                self._read += received
            if time.monotonic() > deadline:
                self.close()
                raise SparkUnavailable(f"no answer from {self._path} in {SERVER_SECONDS:g} s")
        line, _, self._read = self._read.partition(b"\n")
        return line


def _tags(job_id: str, token: int) -> tuple[str, ...]:
    trace = telemetry.trace_id()
    trace_tag = (f"penstock-trace-{trace}",) if trace else ()
    return (job_tag(job_id), f"penstock-token-{token}", *trace_tag)
