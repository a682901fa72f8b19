"""Events of workflows that came when none was expected, until it is known whether they count.

A workflow that is suspended advances, ends or begins anew after it was woken, or its timer fired;
any client that may store an event may store another one at any time, which every fold passes over.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.events.job import JobCompleted, JobDispatched, JobStarted
from penstock.events.job_event import JobEvent
from penstock.events.subjects import Subjects
from penstock.events.workflow import StepsScheduled, WorkflowAdvanced, WorkflowContinued
from penstock.jobs.event_store import started_calls, unbroken
from penstock.orchestrator.core.suspended import SuspendedWorkflow

_MOST_BYTES = 16_000_000
"""Of the bodies of events; decoded they take about six times as much."""

RunEvent = WorkflowAdvanced | StepsScheduled | WorkflowContinued | JobCompleted
"""What may follow only while a workflow runs."""


class Doubted(NamedTuple):
    """One that is not believed by itself."""

    event: RunEvent
    stored: Stored


class DoubtedEvents:
    """The latest of each workflow. An event that is believed wrongly does no lasting harm: what the
    workflow records next does not fit, and has it read."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._doubted: dict[str, Doubted] = {}
        self._bytes = 0
        self._unkept: set[str] = set()

    def is_expected(
        self, workflow: SuspendedWorkflow | None, event: JobEvent, stored: Stored
    ) -> bool:
        """Whether a workflow may run, as far as is known, and nothing speaks against the event.

        Args:
            workflow: None for one of which nothing was seen yet.
        """
        predecessor = unbroken.predecessor(stored, self._subjects.job(event.key))
        is_doubted = event.key in self._doubted or event.key in self._unkept
        if predecessor is None or is_doubted:
            return False
        if workflow is None:
            return not isinstance(event, WorkflowAdvanced) or event.number == 1
        return workflow.may_run(stored.at.timestamp()) and predecessor > workflow.sequence

    def add(self, event: RunEvent, stored: Stored) -> None:
        """Keeps one to be looked into; where these are too many, its workflow is read instead."""
        self.forget(event.key)
        if self._bytes + len(stored.body) > _MOST_BYTES:
            self._unkept.add(event.key)
            return
        self._doubted[event.key] = Doubted(event, stored)
        self._bytes += len(stored.body)

    def forget(self, key: str) -> None:
        """Its workflow is read as a whole, or over."""
        self._unkept.discard(key)
        if one := self._doubted.pop(key, None):
            self._bytes -= len(one.stored.body)

    async def proven(self) -> tuple[list[Doubted], list[str]]:
        """Looks into all of them. Raises BusError.

        One that lies right behind a start of the workflow's own call counts.

        Returns:
            Those, oldest first; and the ids of the workflows of the others, which must be read.
        """
        doubted = dict(self._doubted)  # more may come while the broker answers
        if not doubted:
            return [], self._take_unkept()
        names = {
            (key, kind): self._subjects.events("job", key, kind.__name__)
            for key in doubted
            for kind in (JobStarted, JobDispatched)
        }
        last = await self._bus.last_of(self._subjects.events_stream, list(names.values()))
        proven: list[Doubted] = []
        others: list[str] = []
        for key, one in doubted.items():
            if self._doubted.get(key) is not one:
                continue  # its workflow is over meanwhile, or a later event is looked into next
            self.forget(key)
            tree = self._subjects.job(key)
            start, dispatch = last.get(names[key, JobStarted]), last.get(names[key, JobDispatched])
            if started_calls.is_behind_its_start(one.stored, start, dispatch, tree):
                proven.append(one)
            else:
                others.append(key)
        others += self._take_unkept()
        return sorted(proven, key=lambda one: one.stored.sequence), others

    def _take_unkept(self) -> list[str]:
        unkept, self._unkept = self._unkept, set()
        return list(unkept)
