"""What coded workflows do, by function, as the numbers that are scraped.

Only what happens while this process runs is counted: it reads the log again from before its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

from penstock.events.envelope import Event
from penstock.events.job import JobCompleted
from penstock.events.workflow import (
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.jobs.workflows.coded import blocking
from penstock.orchestrator.workflows.bounded_labels import BoundedLabels
from penstock.orchestrator.workflows.step_meters import StepMeters
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters, Reading

_MOST_FUNCTIONS = 1_000
_UNKNOWN = "other"
_BLOCKED_SECONDS = 120.0
"""A workflow that is still blocked is recorded as such again, this much after its next offer."""


class WorkflowMeters:
    """Counts by the events that the orchestrator follows; read by other threads.

    Args:
        meters: of the service.
        now: POSIX seconds by the broker's clock; what was stored before the first is not counted.
    """

    def __init__(self, meters: Meters, now: Callable[[], float]) -> None:
        self._meters, self._since, self._now = meters, now(), now
        self._names = BoundedLabels(_MOST_FUNCTIONS, _UNKNOWN)
        self._functions: dict[str, str] = {}
        self._woken: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._blocked: dict[str, tuple[str, float]] = {}
        self._paused: set[str] = set()
        self._steps = StepMeters(meters)
        meters.read(self)

    def function(self, key: str) -> str:
        """The function of a workflow; empty where it is not known."""
        return self._functions.get(key, "")

    def suspended(self, key: str, function: str) -> None:
        """A workflow is suspended."""
        self._functions[key] = self._names[function]

    def advanced(self, key: str, event: WorkflowAdvanced, stored_at: datetime) -> None:
        """An advance was stored."""
        self._goes_on(key, stored_at.timestamp() - event.run_seconds)
        self.suspended(key, event.function)
        if stored_at.timestamp() >= self._since:
            self._meters.count(metrics.WORKFLOW_ADVANCES, self._functions[key])
            self._begin_steps(key, event)
        if event.due_at is not None:
            self._due[key] = event.due_at.timestamp()

    def scheduled(self, key: str, event: StepsScheduled, stored_at: datetime) -> None:
        """A part of what a running workflow waits for was stored."""
        if event.function:
            self.suspended(key, event.function)
        if stored_at.timestamp() >= self._since:
            self._begin_steps(key, event)

    def _begin_steps(self, key: str, event: WorkflowAdvanced | StepsScheduled) -> None:
        at, function = event.now.timestamp(), self.function(key)
        for step in event.scheduled:
            if step.is_job:
                self._steps.began(key, step.n, at, workflow=function, name=step.key)

    def step_ended(self, key: str, n: int, stored_at: datetime) -> None:
        """The job of a step has ended."""
        workflow = self.function(key) or _UNKNOWN
        self._steps.ended(key, n, stored_at.timestamp(), workflow=workflow)

    def blocked(self, key: str, function: str, due_at: datetime) -> None:
        """The code of a workflow does not fit what it recorded.

        Args:
            key: of one that was dispatched, as its own events show.
            function: its name.
            due_at: when it is offered to a worker again.
        """
        offered_at = min(due_at.timestamp(), self._now() + blocking.MOST_SECONDS)
        self._blocked[key] = self._names[function], offered_at + _BLOCKED_SECONDS
        self._woken.pop(key, None)

    def paused(self, key: str) -> None:
        """A workflow is paused."""
        self._paused.add(key)
        self._woken.pop(key, None)

    def resumed(self, key: str, stored_at: datetime) -> None:
        """It goes on; a timer that came meanwhile counts from then."""
        self._paused.discard(key)
        if key in self._due:
            self._due[key] = max(self._due[key], stored_at.timestamp())

    def woken(self, key: str, now: float) -> None:
        """What a workflow waited for has come."""
        self._woken.setdefault(key, now)

    def ended(self, key: str, event: Event, stored_at: datetime) -> None:
        """A workflow has ended."""
        run_seconds = event.run_seconds if isinstance(event, JobCompleted) else 0.0
        self._goes_on(key, stored_at.timestamp() - run_seconds)
        self.forget(key)

    def forget(self, key: str) -> None:
        """A workflow has ended at a time that is not known."""
        self._functions.pop(key, None)
        self._woken.pop(key, None)
        self._due.pop(key, None)
        self._blocked.pop(key, None)
        self._paused.discard(key)
        self._steps.forget(key)

    def _goes_on(self, key: str, started_at: float) -> None:
        self._blocked.pop(key, None)
        woken_at, due_at = self._woken.pop(key, None), self._due.pop(key, None)
        if woken_at is None and due_at is not None and due_at <= started_at:
            woken_at = due_at
        if woken_at is not None and started_at >= self._since and key in self._functions:
            seconds = max(0.0, started_at - woken_at)
            self._meters.observe(metrics.WORKFLOW_RESUME, seconds, self._functions[key])

    def __call__(self) -> Iterable[Reading]:
        now = self._now()
        blocked = {
            key: function
            for key, (function, until) in self._blocked.copy().items()
            if until > now and key not in self._paused
        }
        live = self._functions.copy()
        woken, paused = self._woken.copy(), self._paused.copy()
        states = Counter((function, "blocked") for function in blocked.values())
        for key, function in live.items():
            if key in paused:
                states[function, "paused"] += 1
            elif key not in blocked:
                states[function, "going-on" if key in woken else "suspended"] += 1
        for function in set(live.values()) | set(blocked.values()):
            for state in ("suspended", "going-on", "blocked", "paused"):
                count = states[function, state]
                yield Reading(metrics.WORKFLOWS, count, (function, state))
