"""The traces that batches and graphs belong to, as stored with their first events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock import telemetry
from penstock.bus.protocol import Bus
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.dispatch import workflow_spans
from penstock.jobs.job_log import JobLog, trace_of
from penstock.orchestrator.core.batch import Batch
from penstock.orchestrator.core.graph import Graph

_MOST_KEPT = 1_000
_ENDS = {
    **dict.fromkeys(("BatchCompleted", "GraphCompleted"), "completed"),
    **dict.fromkeys(("BatchFailed", "GraphFailed"), "failed"),
    **dict.fromkeys(("BatchCancelled", "GraphCancelled"), "cancelled"),
}


class WorkflowTraces:
    """Reads them when they are needed: they outlast this process, and cost the others nothing."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects, self._log = bus, subjects, JobLog(bus, subjects)
        self._kept: dict[tuple[str, str], dict[str, str]] = {}

    async def of(self, workflow: Batch | Graph) -> dict[str, str]:
        """Trace headers of its dispatch; none where that was not traced. Raises BusError."""
        key = _noun(workflow), workflow.record.id
        if key not in self._kept:
            subject = self._subjects.events(*key)
            first = await self._bus.next(self._subjects.events_stream, subject, 1)
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = trace_of(first.headers) if first else {}
        return self._kept[key]

    async def of_steps(self, graph: Graph, indices: Iterable[int]) -> list[dict[str, str]]:
        """Trace headers of the dispatches of steps, for links. Raises BusError."""
        if not telemetry.enabled():
            return []
        ids = [derived_ids.step_id(graph.record.id, index) for index in indices]
        return [await self._log.dispatch_trace(job_id) for job_id in ids]

    async def record_end(self, workflow: Batch | Graph, event: Event) -> None:
        """The span of its whole life, if the event that was stored is its end. Raises BusError."""
        state = _ENDS.get(event.name)
        if state is None or not telemetry.enabled():
            return
        record = workflow.record
        workflow_spans.record_end(
            _noun(workflow),
            record.id,
            record.title,
            state=state,
            started_at=_started_at(workflow),
            trace=await self.of(workflow),
        )


def _noun(workflow: Batch | Graph) -> str:
    return "graph" if isinstance(workflow, Graph) else "batch"


def _started_at(workflow: Batch | Graph) -> datetime:
    if isinstance(workflow, Graph):
        return workflow.record.started_at
    return workflow.record.created_at
