"""What happens to workers and hosts, and the reports that workers send about themselves."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from penstock.events.envelope import Codec, Event, Int64


class WorkerEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "worker"
    key_field: ClassVar[str] = "worker"

    worker: str
    host: str
    pool: str


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True, tag=True):
    """A process exists. ``cause``: ``planned``, ``respawn``, ``reloaded`` or ``adopted``."""

    pid: Int64
    cause: str


class WorkerReady(WorkerEvent, frozen=True, kw_only=True, tag=True):
    """The worker asked for its first job. ``spawn_seconds``: from command received to this."""

    pid: Int64
    spawn_seconds: float | None = None
    together: Int64 = 1
    """How many workers this host was starting at the same time."""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True, tag=True):
    """The process ended.

    Attributes:
        cause: ``scaled-down``, ``shutdown``, ``reloaded``, ``drained`` (by an operator),
            ``crashed``, ``killed`` (by a stranger), ``drain-deadline`` (by us, after waiting),
            ``stuck`` (by us, its job made no progress), ``memory-limit`` (by us, its job used too
            much and did not let itself be ended), ``limit``, ``orphaned``, ``lost``.
        exit_code: as of ``waitpid``; negative for a signal; None when it could not be had.
        job_id: the job it was running, given back to its queue; of several the first.
        jobs_done: jobs that it ran to an end, failed attempts included, as far as its reports came
            to this executor; None in events of versions before it was there.
    """

    pid: Int64
    cause: str
    exit_code: Int64 | None = None
    job_id: str | None = None
    lived_seconds: float = 0.0
    jobs_done: Int64 | None = None


class WorkerCrashLooping(WorkerEvent, frozen=True, kw_only=True, tag=True):
    """Workers of this pool keep ending at once; the next start waits ``backoff_seconds``."""

    failures: Int64
    backoff_seconds: float
    last_exit_code: Int64 | None = None


class HostEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "host"
    key_field: ClassVar[str] = "host"

    host: str


class HostJoined(HostEvent, frozen=True, kw_only=True, tag=True):
    cpu_cores: float
    memory_bytes: Int64


class HostLeft(HostEvent, frozen=True, kw_only=True, tag=True):
    """The host's executor has ended in order, without workers left: nothing was lost."""


class HostLost(HostEvent, frozen=True, kw_only=True, tag=True):
    """No snapshot for longer than the host's lease; its share moves to others."""

    silent_seconds: float


class WorkerStuck(WorkerEvent, frozen=True, kw_only=True, tag=True):
    """A worker lives, but its job makes no progress.

    Attributes:
        score: 0.4 heartbeat + 0.3 run_time + 0.15 memory + 0.15 process, each 0 to 1.
        strategy: what is done about it; ``off`` for nothing.
    """

    pid: Int64
    job_id: str
    queue: str
    score: float
    heartbeat: float
    run_time: float
    memory: float
    process: float
    strategy: str


WORKER_EVENTS = Codec(
    WorkerStarted,
    WorkerReady,
    WorkerStopped,
    WorkerCrashLooping,
    WorkerStuck,
    HostJoined,
    HostLeft,
    HostLost,
)


class Claim(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A queue message this worker holds: enough for its executor to give it back for it.

    Attributes:
        silent_seconds: since the job itself gave a sign of work going on; 0 before it begins.
    """

    job_id: str
    ack_subject: str
    running_seconds: float
    queue: str = ""
    silent_seconds: float = 0.0


class QueueReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one worker did on one queue since its last report; sketches are serialized KLL.

    ``late``: of the started, those that were picked up later than promised. ``slowest_trace``: of
    them all, the traceparent of the job that waited longest, ``slowest_seconds``; empty untraced.
    """

    started: Int64 = 0
    late: Int64 = 0
    finished: Int64 = 0
    failed: Int64 = 0
    redelivered: Int64 = 0
    pickup_sketch: bytes = b""
    service_sketch: bytes = b""
    pickup_sum_seconds: float = 0.0
    service_sum_seconds: float = 0.0
    service_sum_squares: float = 0.0
    slowest_seconds: float = 0.0
    slowest_trace: str = ""


class FunctionReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one worker did of one job function since its last report.

    Attributes:
        finished: attempts that returned or raised.
        failed: of the finished, those that raised.
        run_sum_seconds: run time of the finished.
        run_buckets: pairs of a bucket's index, as of ``SECONDS_BUCKETS``, and its attempts.
        peak_memory_bytes: largest peak of the finished; 0 where none was measured.
    """

    started: Int64 = 0
    finished: Int64 = 0
    failed: Int64 = 0
    run_sum_seconds: float = 0.0
    run_buckets: tuple[tuple[Int64, Int64], ...] = ()
    peak_memory_bytes: Int64 = 0


class SeriesReport(msgspec.Struct, frozen=True, array_like=True):
    """What jobs recorded in one series of a metric of their own since their worker's last report.

    Attributes:
        labels: pairs of name and value, in the order of the names.
        value: increase of a counter, present value of a gauge, sum of a histogram's values.
        buckets: of a histogram: pairs of a bucket's index, as of ``VALUE_BUCKETS``, and its values.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[tuple[str, str], ...]
    value: float
    buckets: tuple[tuple[Int64, Int64], ...] = ()


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A worker's heartbeat, sent each second and when it becomes ready, on a plain subject.

    Attributes:
        state: ``starting``, ``idle``, ``busy`` or ``draining``.
        number: counts up, so that a gap shows lost reports.
        claims: what it holds now; of many, those that it claimed first.
        held: how many it holds now; 0 where that is not reported: as many as ``claims``.
        slots: how many jobs it runs at a time.
        slots_used: how many it runs now; None where that is not reported.
        queues: what it did since the last report.
        spark_session: id of the Spark session that it has open; empty for none.
        build: version of its job code; see `penstock.jobs.registry.build`.
        functions: what it did by job function since the last report.
        series: what its jobs recorded in metrics of their own since the last report.
        series_dropped: values of such metrics that were beyond a bound since the last report.
    """

    worker: str
    host: str
    pool: str
    pid: Int64
    state: str
    number: Int64
    at: float
    started_at: float
    cpu_seconds: float = 0.0
    memory_bytes: Int64 = 0
    claims: tuple[Claim, ...] = ()
    held: Int64 = 0
    slots: Int64 = 1
    slots_used: Int64 | None = None
    queues: dict[str, QueueReport] = {}
    spark_session: str = ""
    stopping_because: str = ""
    build: str = ""
    functions: dict[str, FunctionReport] = {}
    series: tuple[SeriesReport, ...] = ()
    series_dropped: Int64 = 0
