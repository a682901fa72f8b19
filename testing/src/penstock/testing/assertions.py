"""Assertions about what was dispatched. A failing one says what was dispatched instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from penstock.events.batch import BATCH_EVENTS
from penstock.events.graph import GRAPH_EVENTS
from penstock.jobs import derived_ids
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.errors import BadArguments
from penstock.jobs.job_type import JobType
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.graph_record import GraphRecord
from penstock.measuring.job_series import JobSeries, Series, SeriesKey
from penstock.testing import endings
from penstock.testing.dispatched import (
    MOST_LISTED,
    Dispatched,
    Wanted,
    all_jobs,
    described,
    fits,
    listed,
    of_payload,
)
from penstock.testing.endings import ANY_RESULT, Ended
from penstock.testing.memory.bus import MemoryBus

MAX_SERIES = 10_000


class Assertions:
    """Over everything that was dispatched since the broker was made.

    Attributes:
        series: what jobs recorded in metrics of their own.
    """

    def __init__(self, bus: MemoryBus, series: JobSeries | None = None) -> None:
        self._bus = bus
        self.series = JobSeries(MAX_SERIES) if series is None else series

    @property
    def dispatched(self) -> list[Dispatched]:
        """Every job, in the order of their dispatch: for what no assertion says."""
        return all_jobs(self._bus)

    def assert_dispatched(
        self, job: JobType[Any, Any], /, *, on_queue: str = "", **arguments: Any
    ) -> list[Dispatched]:
        """At least one such job was dispatched; returns all of them.

        Args:
            on_queue: where it must wait.
            arguments: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        matching = self.matching(job, arguments, on_queue)
        assert matching, f"expected {_call(job, on_queue, arguments)}; {listed(self.dispatched)}"
        return matching

    def assert_not_dispatched(
        self, job: JobType[Any, Any], /, *, on_queue: str = "", **arguments: Any
    ) -> None:
        """No such job was dispatched."""
        __tracebackhide__ = True
        matching = self.matching(job, arguments, on_queue)
        assert not matching, f"expected no {_call(job, on_queue, arguments)}; {listed(matching)}"

    def assert_dispatched_times(
        self, job: JobType[Any, Any], times: int, /, *, on_queue: str = "", **arguments: Any
    ) -> list[Dispatched]:
        """Just so many such jobs were dispatched; returns them."""
        __tracebackhide__ = True
        matching = self.matching(job, arguments, on_queue)
        assert len(matching) == times, (
            f"expected {times} times {_call(job, on_queue, arguments)}, found {len(matching)}; "
            f"{listed(self.dispatched)}"
        )
        return matching

    def assert_nothing_dispatched(self) -> None:
        """No job, batch, chain or graph was dispatched."""
        __tracebackhide__ = True
        assert not self.dispatched, f"expected nothing; {listed(self.dispatched)}"
        names = [f"batch {batch.id}" for batch in self.batches]
        names += [f"graph {graph.id}" for graph in self.graphs]
        assert not names, f"expected nothing; dispatched were: {', '.join(names)}"

    def failing(
        self,
        job: JobType[Any, Any],
        error: BaseException | type[BaseException],
        /,
        *,
        times: int | None = None,
        **arguments: Any,
    ) -> AbstractContextManager[None]:
        """Runs of the job raise an error while the block lasts, in place of its function.

        Args:
            job: the function.
            error: what is raised.
            times: how many runs raise it, the first ones; None for all.
            arguments: only runs with these.
        """
        self.check_arguments(job, arguments)
        return endings.failing(job, error, times, arguments)

    def holding(self, job: JobType[Any, Any], /, **arguments: Any) -> AbstractContextManager[None]:
        """Such jobs do not run while the block lasts; after it they do.

        Args:
            job: the function.
            arguments: only jobs with these.
        """
        self.check_arguments(job, arguments)
        return endings.holding(self._bus, job, arguments)

    def assert_completed(
        self, job: JobType[Any, Any], /, *, result: Any = ANY_RESULT, **arguments: Any
    ) -> list[Dispatched]:
        """At least one such job completed; returns all of them.

        Args:
            job: the function.
            result: what it returned; any if it is left out.
            arguments: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        ended = self._in_state(State.COMPLETED, job, arguments)
        matching = endings.with_result(ended, result)
        wanted = "" if result is ANY_RESULT else f" with the result {result!r}"
        assert matching, (
            f"expected {_call(job, '', arguments)} to complete{wanted}; {self._ends(job)}"
        )
        return [one.job for one in matching]

    def assert_dead(
        self,
        job: JobType[Any, Any],
        /,
        *,
        error: type[BaseException] | str | None = None,
        **arguments: Any,
    ) -> list[Dispatched]:
        """At least one such job has no tries left, or could not run; returns all of them.

        Args:
            job: the function.
            error: its last error: a class, or a kind such as ``timeout``; None for any.
            arguments: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        ended = self._in_state(State.DEAD, job, arguments)
        matching = endings.with_error(ended, error)
        name = error.__name__ if isinstance(error, type) else error
        wanted = f" of {name}" if name else ""
        assert matching, f"expected {_call(job, '', arguments)} to die{wanted}; {self._ends(job)}"
        return [one.job for one in matching]

    def assert_metric(self, name: str, expected: float | None = None, /, **labels: object) -> float:
        """Jobs that were run recorded such a metric; returns its value.

        Of a counter the sum, of a gauge the last value, of a histogram the number of values, over
        all series that have these labels.

        Args:
            name: as in ``context.metrics``.
            expected: the value; None for any.
            labels: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        wanted = {(label, str(value)) for label, value in labels.items()}
        matching = [
            (key, series)
            for key, series in self.series
            if key.name == name and wanted <= set(key.labels)
        ]
        recorded = "; ".join(_recorded(*one) for one in self.series) or "nothing"
        assert matching, f"expected the metric {name} {dict(labels) or ''}; recorded: {recorded}"
        values = [_value(*one) for one in matching]
        value = values[-1] if matching[0][0].kind == "gauge" else sum(values)
        assert expected in (None, value), (
            f"expected {name} = {expected:g}, found {value:g}; recorded: {recorded}"
        )
        return value

    def assert_batch(
        self,
        calls: Sequence[Wanted] | None = None,
        *,
        title: str | None = None,
        jobs: int | None = None,
    ) -> BatchRecord:
        """A batch was dispatched; returns the first that fits.

        Args:
            calls: just these, in any order: calls, or functions with any arguments.
            title: of the batch.
            jobs: how many it has.
        """
        __tracebackhide__ = True
        everything = self.dispatched
        for record in self.batches:
            members = [job for job in everything if _in_batch(job, record.id)]
            named = title in (None, record.title) and jobs in (None, len(members))
            if named and (calls is None or _same_in_any_order(members, calls)):
                return record
        wanted = ", ".join(map(described, calls or ()))
        raise AssertionError(
            f"expected a batch{f' {title!r}' if title is not None else ''}"
            f"{f' of {jobs} jobs' if jobs is not None else ''}"
            f"{f' of {wanted}' if wanted else ''}; "
            f"found {len(self.batches)} other batches; {listed(everything)}"
        )

    def assert_chain(self, calls: Sequence[Wanted], *, title: str | None = None) -> GraphRecord:
        """A chain of just these steps, in this order, was dispatched; returns the first.

        Args:
            calls: calls, or functions with any arguments.
        """
        __tracebackhide__ = True
        for record in self.graphs:
            steps = [of_payload(step.payload) for step in record.steps]
            in_line = all(
                step.needs == ((index - 1,) if index else ())
                for index, step in enumerate(record.steps)
            )
            if in_line and title in (None, record.title) and _same_in_order(steps, calls):
                return record
        chains = [" → ".join(step.name for step in record.steps) for record in self.graphs]
        raise AssertionError(
            f"expected the chain {' → '.join(map(described, calls))}; "
            f"found {'; '.join(chains) or 'no chain'}"
        )

    @property
    def batches(self) -> list[BatchRecord]:
        """Every batch as it is now."""
        return [
            record
            for events in self._histories("batch", BATCH_EVENTS)
            if (record := batch_record.fold(events))
        ]

    @property
    def graphs(self) -> list[GraphRecord]:
        """Every chain and graph as it is now."""
        return [
            record
            for events in self._histories("graph", GRAPH_EVENTS)
            if (record := graph_record.fold(events))
        ]

    def _histories(self, noun: str, codec: Any) -> list[list[tuple[int, Any]]]:
        subjects = self._bus.subjects
        histories: dict[str, list[tuple[int, Any]]] = {}
        for stored in self._bus.stored(subjects.events_stream, subjects.events(noun)):
            key = stored.subject.split(".")[-2]
            histories.setdefault(key, []).append((stored.sequence, codec.decode(stored.body)))
        return list(histories.values())

    def _in_state(
        self, state: State, job: JobType[Any, Any], arguments: dict[str, Any]
    ) -> list[Ended]:
        records = endings.records(self._bus)
        return [
            Ended(dispatched, record)
            for dispatched in self.matching(job, arguments)
            if (record := records.get(dispatched.job_id)) and record.state is state
        ]

    def _ends(self, job: JobType[Any, Any]) -> str:
        """How the jobs of a function stand, for the end of an error message."""
        records = endings.records(self._bus)
        ended = [
            f"  {Ended(dispatched, records[dispatched.job_id])}"
            for dispatched in self.dispatched
            if dispatched.function == job.name and dispatched.job_id in records
        ]
        if not ended:
            return f"none was dispatched; {listed(self.dispatched)}"
        return "\n".join(["there are:", *ended[:MOST_LISTED]])

    @staticmethod
    def check_arguments(job: JobType[Any, Any], arguments: Mapping[str, Any]) -> None:
        """Raises BadArguments: the job has no such parameter."""
        names = {parameter.name for parameter in job.parameters}
        if wrong := [name for name in arguments if name not in names]:
            raise BadArguments(f"{job.name}{job.signature}: there is no parameter {wrong[0]!r}")

    def matching(
        self, job: JobType[Any, Any], arguments: Mapping[str, Any], on_queue: str = ""
    ) -> list[Dispatched]:
        """The jobs of a function that were dispatched with these arguments, among others."""
        self.check_arguments(job, arguments)
        wanted = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments)).items()
        return [
            dispatched
            for dispatched in self.dispatched
            if dispatched.function == job.name
            and on_queue in ("", dispatched.queue)
            and wanted <= dispatched.arguments.items()
        ]


def _call(job: JobType[Any, Any], on_queue: str, arguments: dict[str, Any]) -> str:
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{job.name}({written or '…'})" + (f" on {on_queue}" if on_queue else "")


def _value(key: SeriesKey, series: Series) -> float:
    return float(sum(series.counts)) if key.kind == "histogram" else series.value


def _recorded(key: SeriesKey, series: Series) -> str:
    labels = ", ".join(f"{label}={value!r}" for label, value in key.labels)
    return f"{key.kind} {key.name}{{{labels}}} = {_value(key, series):g}"


def _in_batch(job: Dispatched, batch_id: str) -> bool:
    member = derived_ids.member(job.job_id)
    return member is not None and member.batch == batch_id


def _same_in_order(jobs: Sequence[Dispatched], wanted: Sequence[Wanted]) -> bool:
    return len(jobs) == len(wanted) and all(map(fits, jobs, wanted))


def _same_in_any_order(jobs: Sequence[Dispatched], wanted: Sequence[Wanted]) -> bool:
    """Calls with arguments are looked for first: they fit fewer jobs."""
    left = list(jobs)
    for call in sorted(wanted, key=lambda one: isinstance(one, JobType)):
        fitting = [index for index, job in enumerate(left) if fits(job, call)]
        if not fitting:
            return False
        del left[fitting[0]]
    return not left
