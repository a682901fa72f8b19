"""What graphs and declared workflows do, by definition, as the numbers that are scraped.

Only ends that are stored while this process runs are counted: it reads the log again from before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.orchestrator.core.graph import Graph
from penstock.orchestrator.workflows.bounded_labels import BoundedLabels
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters, Reading

_NO_DEFINITION = ""
_MOST_DEFINITIONS = 1_000


class GraphMeters:
    """Counts as the orchestrator follows graphs; read by other threads.

    Args:
        meters: of the service.
        now: POSIX seconds by the broker's clock; what was stored before the first is not counted.
        unfinished: batches and graphs that have not ended, as of now.
    """

    def __init__(
        self,
        meters: Meters,
        now: Callable[[], float],
        unfinished: Callable[[], dict[tuple[str, str], Any]],
    ) -> None:
        self._meters, self._since, self._unfinished = meters, now(), unfinished
        self._names = BoundedLabels(_MOST_DEFINITIONS, "other", _NO_DEFINITION)
        meters.read(self)

    def ended(self, record: GraphRecord, stored_at: datetime) -> None:
        """A graph has ended."""
        if stored_at.timestamp() < self._since:
            return
        name = self._names[record.definition]
        self._meters.count(metrics.GRAPHS_ENDED, name, record.state.value)
        seconds = max(0.0, (stored_at - record.started_at).total_seconds())
        self._meters.observe(metrics.GRAPH_DURATION, seconds, name)

    def __call__(self) -> Iterable[Reading]:
        graphs = [one for one in self._unfinished().copy().values() if isinstance(one, Graph)]
        states = Counter(
            (self._names[graph.record.definition], _state(graph.record))
            for graph in graphs
            if not graph.record.state.ended
        )
        for name in self._names:
            for state in ("running", "paused", "stopping"):
                yield Reading(metrics.GRAPHS, states[name, state], (name, state))


def _state(record: GraphRecord) -> str:
    return "paused" if record.is_paused else GraphState(record.state).value
