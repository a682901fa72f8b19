"""An open Spark Connect session: its channel, its tags on every query, its spans.

Imported when a job first asks for Spark; the warm parent has done the heavy imports before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

from penstock import telemetry
from penstock.runtime.paths import LOOPBACK
from penstock.telemetry import Span, SpanKind, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
# A failing query is the job's error and is recorded as such; Spark's client would print it as well.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

_EXECUTE = "/spark.connect.SparkConnectService/ExecutePlan"
_REATTACH = "/spark.connect.SparkConnectService/ReattachExecute"
_RETRIES = {"max_retries": 5, "backoff_multiplier": 3.0, "initial_backoff": 50, "max_backoff": 1000}
"""With the host's own server: about 3 s. Spark's 10 minutes are for servers that come back with
their sessions; the host's own does not, and a job had better fail and run again."""


class OpenSession:
    """One session.

    Args:
        remote: Spark Connect address.
        own: it is the host's own server, on loopback.

    Attributes:
        session: what a job gets.
    """

    def __init__(self, remote: str, own: bool) -> None:
        self.remote = remote
        self._stamp = _Stamp()
        channel = _Loopback(remote) if own else DefaultChannelBuilder(remote)
        channel.add_interceptor(self._stamp)
        self.session: SparkSession = ConnectSession.builder.channelBuilder(channel).create()
        self._stamp.session_id = self.session.session_id
        if own:
            self.session.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        self._beat: Callable[[], None] = _nothing
        self._progress: tuple[int, int] = (0, 0)
        self.session.registerProgressHandler(self._progressed)
        _make_active(self.session)

    def _progressed(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        """Called by Spark's client every 2 s while it waits for an answer."""
        stages = list(stages or ())
        tasks, read = (s.num_completed_tasks for s in stages), (s.num_bytes_read for s in stages)
        progress = sum(tasks), sum(read)
        if progress != self._progress or done:
            self._progress = progress
            self._beat()

    @property
    def stopped(self) -> bool:
        """Also when a job stopped it."""
        return bool(self.session.is_stopped)

    def begin(self, tags: tuple[str, ...], beat: Callable[[], None]) -> None:
        """From now on all work is tagged so; call it in the job's thread."""
        self._stamp.tags, self._beat = tags, beat
        self.session.clearTags()
        for tag in tags:
            self.session.addTag(tag)

    def end(self) -> None:
        """Work that comes now belongs to no job."""
        self._stamp.tags, self._beat = (), _nothing

    def interrupt(self, tag: str) -> int:
        """Stops all operations with ``tag``; how many there were."""
        try:
            return len(self.session.interruptTag(tag))
        except Exception as error:  # the server may be gone, and the work with it
            log.warning("cannot interrupt the Spark work tagged %s: %s", tag, error)
            return 0

    def replace(self, release: bool) -> None:
        """Closes it beside the job that waits for a new one: a dead server makes that slow."""
        threading.Thread(target=self.close, args=(release,), daemon=True).start()

    def close(self, release: bool) -> None:
        """Ends the session here and, with ``release``, on the server."""
        self.session.release_session_on_close = release
        self.session.client.set_retry_policies([DefaultPolicy(max_retries=0)])
        with suppress(Exception):  # best effort; the server forgets it by itself
            self.session.stop()


class _Loopback(DefaultChannelBuilder):  # type: ignore[misc]
    """The host's own server: by number, since `localhost` may lead to another user's ``::1``.

    By the name in the address Spark's client knows that a token may travel without TLS.
    """

    def __init__(self, remote: str) -> None:
        super().__init__(remote, [("grpc.enable_http_proxy", 0)])

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self._port}"


class _Stamp(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Tags each query, from whichever thread of the job it comes, and times it."""

    def __init__(self) -> None:
        self.tags: tuple[str, ...] = ()
        self.session_id = ""

    def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        if details.method == _EXECUTE:
            request.tags.extend(tag for tag in self.tags if tag not in request.tags)
        if details.method not in (_EXECUTE, _REATTACH) or not telemetry.enabled():
            return continuation(details, request)
        span = self._span(request.operation_id)
        call = continuation(details, request)
        call.add_done_callback(lambda done: _end(span, done))
        return call

    def _span(self, operation_id: str) -> Span:
        return telemetry.start(
            names.spark("query"),
            kind=SpanKind.CLIENT,
            attributes={
                names.SPARK_SESSION: self.session_id,
                names.SPARK_OPERATION: operation_id,
                names.SPARK_TAGS: self.tags,
            },
        )


def _nothing() -> None:
    """No job runs."""


def _end(span: Span, call: Any) -> None:
    code = call.code()
    if code is not grpc.StatusCode.OK:
        span.set_attribute(names.ERROR_TYPE, code.name)
        span.set_status(telemetry.ERROR)
    span.end()


def _make_active(session: SparkSession) -> None:
    """What `SparkSession.active()` finds; Spark leaves a stopped one in that place."""
    ConnectSession._default_session = session
    ConnectSession._active_session.session = session
