"""Assertions about what was dispatched. A failing one says what was dispatched instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.events.batch import BATCH_EVENTS
from penstock.events.graph import GRAPH_EVENTS
from penstock.jobs import derived_ids
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.errors import BadArguments
from penstock.jobs.job_type import JobType
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.graph_record import GraphRecord
from penstock.testing.dispatched import (
    Dispatched,
    Wanted,
    all_jobs,
    described,
    fits,
    listed,
    of_payload,
)
from penstock.testing.memory.bus import MemoryBus


class Assertions:
    """Over everything that was dispatched since the broker was made."""

    def __init__(self, bus: MemoryBus) -> None:
        self._told = bus

    @property
    def dispatched(self) -> list[Dispatched]:
        """Every job, in the order of their dispatch: for what no assertion says."""
        return all_jobs(self._told)

    def assert_dispatched(
        self, job: JobType[Any, Any], /, *, on_queue: str = "", **arguments: Any
    ) -> list[Dispatched]:
        """At least one such job was dispatched; returns all of them.

        Args:
            on_queue: where it must wait. arguments: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        found = self._matching(job, on_queue, arguments)
        assert found, f"expected {_call(job, on_queue, arguments)}; {listed(self.dispatched)}"
        return found

    def assert_not_dispatched(
        self, job: JobType[Any, Any], /, *, on_queue: str = "", **arguments: Any
    ) -> None:
        """No such job was dispatched."""
        __tracebackhide__ = True
        found = self._matching(job, on_queue, arguments)
        assert not found, f"expected no {_call(job, on_queue, arguments)}; {listed(found)}"

    def assert_dispatched_times(
        self, job: JobType[Any, Any], times: int, /, *, on_queue: str = "", **arguments: Any
    ) -> list[Dispatched]:
        """Just so many such jobs were dispatched; returns them."""
        __tracebackhide__ = True
        found = self._matching(job, on_queue, arguments)
        assert len(found) == times, (
            f"expected {times} times {_call(job, on_queue, arguments)}, found {len(found)}; "
            f"{listed(self.dispatched)}"
        )
        return found

    def assert_nothing_dispatched(self) -> None:
        """No job, batch, chain or graph was dispatched."""
        __tracebackhide__ = True
        assert not self.dispatched, f"expected nothing; {listed(self.dispatched)}"
        wholes = [f"batch {each.id}" for each in self.batches]
        wholes += [f"graph {each.id}" for each in self.graphs]
        assert not wholes, f"expected nothing; dispatched were: {', '.join(wholes)}"

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
            title: of the batch. jobs: how many it has.
        """
        __tracebackhide__ = True
        everything = self.dispatched
        for record in self.batches:
            found = [each for each in everything if _in_batch(each, record.id)]
            named = title in (None, record.title) and jobs in (None, len(found))
            if named and (calls is None or _same_in_any_order(found, calls)):
                return record
        wanted = ", ".join(described(each) for each in calls or ())
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
                step.needs == ((at - 1,) if at else ()) for at, step in enumerate(record.steps)
            )
            if in_line and title in (None, record.title) and _same_in_order(steps, calls):
                return record
        known = [" → ".join(step.name for step in record.steps) for record in self.graphs]
        raise AssertionError(
            f"expected the chain {' → '.join(described(each) for each in calls)}; "
            f"found {'; '.join(known) or 'no chain'}"
        )

    @property
    def batches(self) -> list[BatchRecord]:
        """Every batch as it is now."""
        return [
            record
            for events in self._stories("batch", BATCH_EVENTS)
            if (record := batch_record.fold(events))
        ]

    @property
    def graphs(self) -> list[GraphRecord]:
        """Every chain and graph as it is now."""
        return [
            record
            for events in self._stories("graph", GRAPH_EVENTS)
            if (record := graph_record.fold(events))
        ]

    def _stories(self, noun: str, codec: Any) -> list[list[tuple[int, Any]]]:
        subjects = self._told.subjects
        found: dict[str, list[tuple[int, Any]]] = {}
        for stored in self._told.stored(subjects.events_stream, subjects.events(noun)):
            key = stored.subject.split(".")[-2]
            found.setdefault(key, []).append((stored.sequence, codec.decode(stored.body)))
        return list(found.values())

    def _matching(
        self, job: JobType[Any, Any], on_queue: str, arguments: dict[str, Any]
    ) -> list[Dispatched]:
        names = {parameter.name for parameter in job.parameters}
        if wrong := [name for name in arguments if name not in names]:
            raise BadArguments(f"{job.name}{job.signature}: there is no parameter {wrong[0]!r}")
        wanted = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments)).items()
        return [
            each
            for each in self.dispatched
            if each.function == job.name
            and on_queue in ("", each.queue)
            and wanted <= each.arguments.items()
        ]


def _call(job: JobType[Any, Any], on_queue: str, arguments: dict[str, Any]) -> str:
    said = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{job.name}({said or '…'})" + (f" on {on_queue}" if on_queue else "")


def _in_batch(found: Dispatched, batch_id: str) -> bool:
    place = derived_ids.member(found.job_id)
    return place is not None and place.batch == batch_id


def _same_in_order(found: Sequence[Dispatched], wanted: Sequence[Wanted]) -> bool:
    return len(found) == len(wanted) and all(map(fits, found, wanted))


def _same_in_any_order(found: Sequence[Dispatched], wanted: Sequence[Wanted]) -> bool:
    """Calls with arguments are looked for first: they fit fewer jobs."""
    left = list(found)
    for each in sorted(wanted, key=lambda one: isinstance(one, JobType)):
        fitting = [at for at, job in enumerate(left) if fits(job, each)]
        if not fitting:
            return False
        del left[fitting[0]]
    return not left
