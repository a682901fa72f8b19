"""What a running job is given."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.jobs.job_type import Call


class JobCheckpoint(Protocol):
    """How far the work is: kept by the broker, for the next attempt, on whatever host."""

    def save(self, data: Any, *, has_more_work: bool = True) -> None:
        """Stores ``data`` in the place of what was saved before; durable when it returns.

        Args:
            data: what MessagePack can hold, or a struct; at most ``jobs.max_checkpoint_bytes``.
            has_more_work: False when the work is done and only the job's end is to come.

        Raises:
            PayloadTooLarge
            Cancelled: another attempt runs, or the job was cancelled.
        """
        ...

    def restore(self, kind: Any = Any) -> Any:
        """What was saved last, as a ``kind``; None where nothing was.

        Nothing either after a restart from the beginning was asked for, or other arguments given.
        """
        ...

    @property
    def has_more_work(self) -> bool:
        """False after a ``save(..., has_more_work=False)`` of this attempt or one before."""
        ...


class JobBatch(Protocol):
    """The batch of a running job; it cannot end before the job does.

    Attributes:
        id: of the batch.
    """

    @property
    def id(self) -> str: ...

    def add(self, calls: Iterable[Call]) -> list[str]:
        """Adds jobs to the batch, also when it is closed; returns their ids.

        An attempt that runs the job again, and adds the same in the same order, adds nothing.

        Raises:
            JobRefused: the batch is being stopped.
        """
        ...


class JobGraph(Protocol):
    """The place of a running job in its chain, graph or workflow.

    Attributes:
        id: of the graph or workflow.
        name: title of the graph, name of the definition that it was made from, or function of a
            coded workflow; empty in jobs that earlier versions dispatched.
        step: name of the step; empty in jobs that earlier versions dispatched.
        index: of the step, in an order in which none needs a later one; 0 for the first.
    """

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def index(self) -> int: ...


class JobMetrics(Protocol):
    """Metrics of the author's own, published by the metrics service with the label ``pool``.

    A name or a label that cannot be one raises ValueError. What is beyond a bound is dropped,
    counted and logged once: a worker's jobs have 200 series at most, a series 8 labels, and a
    label's value is cut to 100 characters. What a worker recorded in the second before it was
    killed is lost.
    """

    def counter(self, name: str, by: float = 1, labels: Mapping[str, object] | None = None) -> None:
        """Adds to a counter, which never falls; Prometheus knows it as ``<name>_total``."""
        ...

    def gauge(self, name: str, value: float, labels: Mapping[str, object] | None = None) -> None:
        """Sets a value; the last one that any worker of the pool set stands."""
        ...

    def histogram(
        self, name: str, value: float, labels: Mapping[str, object] | None = None
    ) -> None:
        """Counts a value: by buckets of 1, 2 and 5 times the powers of ten from 0.001 to 10^6."""
        ...


class Context(Protocol):
    """A running job's view of the platform; the first parameter of a job function.

    Attributes:
        job_id: this job.
        attempt: 1 for the first; interruptions by the platform do not count.
        fencing_token: grows with every start of a job anywhere; hand it to sinks that can refuse
            writes of a deposed attempt.
        deadline: POSIX seconds after which the attempt is ended; None without timeout.
        logger: bound to this job.
    """

    @property
    def job_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fencing_token(self) -> int: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]: ...

    @property
    def span(self) -> Any:
        """The OpenTelemetry span of this run, for attributes of the author's own."""
        ...

    @property
    def metrics(self) -> JobMetrics:
        """Metrics of the author's own.

        Example::

            context.metrics.counter("rows_loaded", 5_000, {"table": "orders"})
        """
        ...

    @property
    def spark(self) -> SparkSession:
        """A session on the host's Spark, opened on first use, tagged with job id and token."""
        ...

    @property
    def cancelled(self) -> bool:
        """True when the result is not needed any more: stop as soon as it is safe."""
        ...

    def progress(self, done: int, total: int | None = None) -> None:
        """Reports how far the job is; recorded at most once a second, never blocks."""
        ...

    @property
    def checkpoint(self) -> JobCheckpoint:
        """How far the work is; an attempt on another host continues from there.

        Example::

            done = context.checkpoint.restore(int) or 0
            while context.checkpoint.has_more_work:
                done = load_rows(after=done, at_most=1000)
                context.checkpoint.save(done, has_more_work=done < last)
        """
        ...

    @property
    def batch(self) -> JobBatch | None:
        """The batch this job belongs to; None for a job of its own."""
        ...

    @property
    def graph(self) -> JobGraph | None:
        """The chain, graph or workflow that this job is a step of; None for other jobs."""
        ...

    def heartbeat(self) -> None:
        """Reports that the work goes on, where there is no progress; costs next to nothing.

        A job that is silent for long, and runs longer than its like, is taken for stuck.
        """
        ...

    @property
    def work_id(self) -> str:
        """The same for all attempts of this job; another when it is retried with other arguments.

        What sinks that skip repetitions are given as the name of the work.
        """
        ...

    def committed(self, name: str) -> str | None:
        """What an attempt of this job committed under a name; None when none has."""
        ...

    def commit(self, name: str, location: str) -> str:
        """Commits output under a name, once per job; returns the committed location.

        Raises:
            Cancelled: another attempt has begun or the job was cancelled: nothing is committed.
            CommitRefused: the name is longer than 512 bytes, the location than 4,096, or all that
                the job committed takes more than 200,000.
        """
        ...

    def dispatch(self, call: Call, *, queue: str = "", delay: float = 0.0, **terms: Any) -> str:
        """Dispatches another job from inside this one; returns its id.

        Args:
            terms: as of :meth:`penstock.jobs.Client.dispatch`. With a ``job_id`` that follows from
                this job's, an attempt that is run again dispatches it once.
        """
        ...

    def start_workflow(self, name: str, values: Mapping[str, Any] | None = None) -> str:
        """Starts an instance of a stored definition; returns the id of its graph.

        A job starts one of each name, however often it runs.

        Args:
            name: of the definition.
            values: of its context.

        Raises:
            NotFound: no definition of that name is stored.
            BadDefinition: the values are not what it declares, or a call does not fit.
        """
        ...
