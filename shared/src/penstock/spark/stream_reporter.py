"""Reports the progress of a session's streaming queries, so that a pool is scaled by them.

A query is never held up: the listener notes what Spark hands it, and a thread of its own publishes
it each second on a plain subject. While the broker is away nothing is kept but the last batches.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec

from penstock.bus import ending
from penstock.bus.connection import Connection
from penstock.bus.protocol import BusError
from penstock.config import Settings
from penstock.config.load import ConfigError, load
from penstock.events.stream_report import MOST_BATCHES, BatchProgress, StreamReport
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.runtime.limited_log import LimitedLog
from penstock.runtime.local_broker import reachable
from penstock.spark.stream_progress import batch_of, posix

log = logging.getLogger("penstock.spark")

_REPORT_SECONDS = 1.0
_RETRY_SECONDS = 5.0
_MOST_QUERIES = 100
_ENDED_SECONDS = 60.0
"""The end of a query is repeated for so long, as each report may be lost."""
_CLOSE_SECONDS = 3.0


def report_progress(spark: Any, settings: Settings | None = None) -> ProgressReporter:
    """From now on the named streaming queries of a session report their progress.

    Call it once for each session, before its queries start::

        report_progress(spark)
        orders.writeStream.queryName("orders")…

    Args:
        spark: a classic or a Spark Connect session.
        settings: of this installation; None loads them, as `Client.connect` does.

    Returns:
        The reporter; it closes itself when the process ends.

    Raises:
        ConfigError: settings that cannot be used. A broker that is away is no error.
    """
    reporter = ProgressReporter(settings or load(), _app_id(spark))
    spark.streams.addListener(_listener(reporter))
    return reporter


class ProgressReporter:
    """Publishes how far queries are, from a thread of its own.

    Args:
        settings: of this installation.
        app_id: of the Spark application; empty where it is not known.

    Attributes:
        dropped: reports that could not be sent.
    """

    def __init__(self, settings: Settings, app_id: str = "") -> None:
        self._settings, self._app_id = settings, app_id
        self._subjects = Subjects(settings.prefix)
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._log = LimitedLog(log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon = asyncio.Event()
        self._closing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="penstock-streams", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # --- noting, in Spark's threads --------------------------------------------------------------
    def started(self, run_id: str, query_id: str, name: str | None) -> None:
        """A query was started."""
        self._run_of(run_id, query_id, name)

    def progressed(self, run_id: str, query_id: str, name: str | None, progress: Any) -> None:
        """A batch is done."""
        if (run := self._run_of(run_id, query_id, name)) is None:
            return
        batch = batch_of(progress)
        with self._lock:
            run.add(batch)
        self._wake()

    def idle(self, run_id: str, timestamp: str) -> None:
        """A trigger found no rows."""
        with self._lock:
            if run := self._runs.get(run_id):
                run.idle_at = posix(timestamp)

    def ended(self, run_id: str, failed: bool, error_class: str | None) -> None:
        """A query ended."""
        with self._lock:
            if run := self._runs.get(run_id):
                run.ended_at = time.time()
                run.error = (error_class or "an error")[:200] if failed else ""
        self._wake()

    def _run_of(self, run_id: str, query_id: str, name: str | None) -> _Run | None:
        """The run; None for one that cannot be reported."""
        try:
            query = check_name("query", name or "")
        except BadName as error:
            why = f"{error}: set queryName" if name else "it has no name: set queryName"
            self._log.write(
                logging.WARNING, run_id, "streaming query %s is not reported: %s", run_id, why
            )
            return None
        with self._lock:
            if run_id not in self._runs:
                self._forget()
                if len(self._runs) >= _MOST_QUERIES:
                    return None
                self._runs[run_id] = _Run(query, run_id, query_id, self._app_id)
            return self._runs[run_id]

    def _forget(self) -> None:
        now = time.time()
        self._runs = {
            run_id: run
            for run_id, run in self._runs.items()
            if run.ended_at is None or now - run.ended_at < _ENDED_SECONDS
        }

    def _wake(self) -> None:
        if loop := self._loop:
            with suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(self._soon.set)

    # --- publishing, in the thread ---------------------------------------------------------------
    def close(self) -> None:
        """Publishes what was noted, and ends the thread."""
        atexit.unregister(self.close)
        self._closing = True
        self._wake()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._publish())
        except Exception:  # the queries go on
            log.exception("the progress of streaming queries is no longer reported")

    async def _publish(self) -> None:
        self._loop = asyncio.get_running_loop()
        connection: Connection | None = None
        try:
            while True:
                self._soon.clear()
                is_last = self._closing
                connection = connection or await self._connect()
                await self._send(connection)
                if is_last:
                    return
                with suppress(TimeoutError):
                    pause = _REPORT_SECONDS if connection else _RETRY_SECONDS
                    await asyncio.wait_for(self._soon.wait(), pause)
        finally:
            if connection:
                await connection.close()

    async def _connect(self) -> Connection | None:
        try:
            settings = reachable(self._settings)
            connection = Connection(settings)
        except ConfigError as error:  # such as a `penstock up` that has not begun yet
            self._away(str(error))
            return None
        try:
            # A broker that is away is tried again by this loop, so that closing waits for no one.
            await ending.in_time(_CLOSE_SECONDS / 2, connection.open("streaming queries"))
        except (BusError, ConfigError, OSError, TimeoutError) as error:
            await connection.close()
            self._away(str(error) or connection.trouble or "no broker answers")
            return None
        return connection

    def _away(self, reason: str) -> None:
        self._log.write(
            logging.WARNING, "", "the progress of streaming queries is not reported: %s", reason
        )

    async def _send(self, connection: Connection | None) -> None:
        now = time.time()
        with self._lock:
            self._forget()
            reports = [run.report(now) for run in self._runs.values()]
        for report in reports:
            # What nats-py would buffer until the broker is back would be old by then.
            if connection is None or not connection.connected:
                self._drop(report.run_id)
                continue
            subject = self._subjects.stream_report(report.query)
            await connection.signal(subject, msgspec.json.encode(report))

    def _drop(self, run_id: str) -> None:
        self.dropped += 1
        with self._lock:
            if run := self._runs.get(run_id):
                run.dropped += 1


class _Run:
    """One start of a query, and what was noted of it."""

    def __init__(self, query: str, run_id: str, query_id: str, app_id: str) -> None:
        self._fixed = {"query": query, "run_id": run_id, "query_id": query_id, "app_id": app_id}
        self._started_at = time.time()
        self._batches: deque[BatchProgress] = deque(maxlen=MOST_BATCHES)
        self._batches_done = self._number = self.dropped = 0
        self.idle_at: float | None = None
        self.ended_at: float | None = None
        self.error = ""

    def add(self, batch: BatchProgress) -> None:
        self._batches.append(batch)
        self._batches_done += 1

    def report(self, now: float) -> StreamReport:
        self._number += 1
        return StreamReport(
            **self._fixed,
            number=self._number,
            at=now,
            started_at=self._started_at,
            batches=tuple(self._batches),
            batches_done=self._batches_done,
            idle_at=self.idle_at,
            ended=self.ended_at is not None,
            error=self.error,
            dropped=self.dropped,
        )


def _app_id(spark: Any) -> str:
    """Of either kind of session; empty where the session does not say."""
    try:
        return str(spark.conf.get("spark.app.id"))[:100]
    except Exception as error:  # the tasks of its application are not known then, no more
        log.debug("the id of the Spark application is not known: %s", error)
        return ""


def _listener(reporter: ProgressReporter) -> Any:
    """A listener for a session's queries; pyspark is imported where there is a session."""
    from pyspark.sql.streaming import StreamingQueryListener  # noqa: PLC0415 - a second, 100 MB

    class Listener(StreamingQueryListener):  # type: ignore[misc]
        def onQueryStarted(self, event: Any) -> None:
            _noted(reporter.started, str(event.runId), str(event.id), event.name)

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            ids = str(progress.runId), str(progress.id)
            _noted(reporter.progressed, *ids, progress.name, progress)

        def onQueryIdle(self, event: Any) -> None:
            _noted(reporter.idle, str(event.runId), event.timestamp)

        def onQueryTerminated(self, event: Any) -> None:
            failed = event.exception is not None
            _noted(reporter.ended, str(event.runId), failed, event.errorClassOnException)

    return Listener()


def _noted(note: Any, *values: Any) -> None:
    """An exception in a listener must not reach Spark."""
    try:
        note(*values)
    except Exception as error:
        log.warning("progress of a streaming query is not noted: %s", type(error).__name__)
