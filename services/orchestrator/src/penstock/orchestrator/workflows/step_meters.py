"""How long the steps of workflows take, as the numbers that are scraped.

Only steps that have jobs, and whose jobs were dispatched while this process runs; those of several
numbers (``reserve#2``) are one.
"""

from __future__ import annotations

import re
from sys import intern
from typing import NamedTuple

from penstock.events.job import JobDispatched, JobRevived
from penstock.jobs.workflows.graph_record import GraphRecord
from penstock.orchestrator.workflows.bounded_labels import BoundedLabels
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters

_MOST_OPEN = 100_000
"""Steps whose beginning is kept in memory: about 20 MB. Further ones are not counted."""
_MOST_PAIRS = 300
"""Pairs of workflow and step that have numbers of their own: each is a histogram."""
_BEGINNINGS = (JobDispatched.__name__, JobRevived.__name__)
_OCCURRENCE = re.compile(r"#\d+")


class _Begun(NamedTuple):
    at: float
    workflow: str
    name: str


class StepMeters:
    """Observes each step once, as it ends."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._begun: dict[str, dict[int, _Begun]] = {}
        self._open = 0
        self._pairs = BoundedLabels(_MOST_PAIRS, ("other", "other"))

    def began(self, workflow_id: str, n: int, at: float, *, workflow: str, name: str) -> None:
        """The job of a step was dispatched.

        Args:
            workflow_id: of the instance.
            n: number of the step.
            at: POSIX seconds.
            workflow: function of a coded one; name of a definition; empty where it is not known.
            name: of the step.
        """
        if self._open < _MOST_OPEN:
            steps = self._begun.setdefault(workflow_id, {})
            self._open += n not in steps
            steps[n] = _Begun(at, intern(workflow), intern(name))

    def ended(self, workflow_id: str, n: int, at: float, *, workflow: str = "") -> None:
        """The job of a step has ended.

        Args:
            workflow_id: as of :meth:`began`.
            n: likewise.
            at: likewise.
            workflow: what counts where that was not known when it began.
        """
        begun = self._begun.get(workflow_id, {}).pop(n, None)
        if begun is None:
            return
        self._open -= 1
        if not self._begun[workflow_id]:
            del self._begun[workflow_id]
        labels = self._pairs[begun.workflow or workflow, _OCCURRENCE.sub("", begun.name)]
        self._meters.observe(metrics.WORKFLOW_STEP, max(0.0, at - begun.at), *labels)

    def forget(self, workflow_id: str) -> None:
        """A workflow has ended, with what it still waited for."""
        self._open -= len(self._begun.pop(workflow_id, ()))


class GraphStepMeters(StepMeters):
    """The same of graphs that were made from a definition: other titles are not bounded.

    Args:
        since: POSIX seconds; steps that began before are not counted.
    """

    def __init__(self, meters: Meters, since: float) -> None:
        super().__init__(meters)
        self._since = since

    def see_job(self, graph: GraphRecord, position: int, event: str, at: float) -> None:
        """An event of the job of a step, by name.

        Args:
            graph: that the step is of.
            position: of the step.
            event: that the job was dispatched, requeued, or has ended.
            at: POSIX seconds.
        """
        if not graph.definition or position >= len(graph.steps) or at < self._since:
            return
        if event in _BEGINNINGS:
            name = graph.steps[position].name
            self.began(graph.id, position, at, workflow=graph.definition, name=name)
        else:
            self.ended(graph.id, position, at)
