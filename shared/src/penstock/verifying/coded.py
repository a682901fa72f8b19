"""The rules of a coded workflow: what it took note of is what happened. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobStarted,
)
from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowFixed,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    Resolution,
    ScheduledStep,
)
from penstock.verifying.rules import History, Rule, Violation

_ENDS = {"completed": JobCompleted, "failed": JobDead, "cancelled": JobCancelled}


def is_coded(history: History) -> bool:
    """Whether a job is a coded workflow whose dispatch is in the log."""
    first = history[0][1] if history else None
    return isinstance(first, JobDispatched) and first.kind == "workflow"


def check_workflow(
    workflow_id: str, history: History, jobs: Mapping[int, History]
) -> Iterator[Violation]:
    """What breaks a rule in a workflow's history, and in the jobs of its steps.

    Args:
        workflow_id: of the workflow.
        history: its events, from its dispatch on.
        jobs: the events of each step's job, by the step's number.
    """
    notes = _Notes(jobs)
    for sequence, event in history:
        for text in notes.take(sequence, event):
            yield _violation(workflow_id, sequence, text)
    for sequence in _started_while_paused(history):
        yield _violation(workflow_id, sequence, "it was started while it was paused")
    for n, events in jobs.items():
        begins = [number for number, event in events if isinstance(event, JobDispatched)]
        for number in begins:
            if number < notes.scheduled_at.get(n, number + 1):
                text = f"step {n} was dispatched, which no advance before had scheduled"
                yield _violation(workflow_id, number, text)


def _started_while_paused(history: History) -> Iterator[int]:
    is_paused = False
    for sequence, event in history:
        match event:
            case WorkflowPaused():
                is_paused = True
            case WorkflowResumed() | WorkflowCancelling():
                is_paused = False
            case JobStarted() if is_paused:
                yield sequence


class _Notes:
    """What a workflow has recorded so far.

    Args:
        jobs: the events of each step's job, by the step's number.

    Attributes:
        scheduled_at: sequence of the event that scheduled each step, by number.
    """

    def __init__(self, jobs: Mapping[int, History]) -> None:
        self._jobs = jobs
        self._advances = self._recorded = 0
        self._open: dict[str, ScheduledStep] = {}
        self._inline: set[str] = set()
        self._is_cancelled = False
        self._signals: dict[str, int] = {}
        self.scheduled_at: dict[int, int] = {}

    def take(self, sequence: int, event: object) -> Iterator[str]:
        """The next event; what is wrong with it."""
        match event:
            case WorkflowAdvanced() if event.number == self._advances + 1:
                self._advances = event.number
            case StepRecorded() | StepsScheduled() if event.number == self._recorded + 1:
                self._recorded = event.number
            case WorkflowContinued():
                self._advances = self._recorded = 0
                self._open, self._inline = {}, set()
                return
            case WorkflowContinued():  # keys and advances begin anew, numbers of steps do not
                self._open, self._inline = {}, set()
                self._advances = self._recorded = 0
                return
            case WorkflowFixed():
                self._open = {k: s for k, s in self._open.items() if k not in event.forgotten}
                self._inline.difference_update(event.forgotten)
                if event.forgotten:  # signals that forgotten waits had consumed are unread again
                    self._signals = {}
                return
            case _:  # another event, or one of an attempt that did not know of the one before
                return
        for resolution in event.consumed:
            yield from self._consume(sequence, resolution)
        if isinstance(event, StepRecorded):
            if event.inline.key in self._inline:
                yield f"inline step {event.inline.key!r} was recorded before"
            self._inline.add(event.inline.key)
            return
        for step in event.scheduled:
            yield from self._schedule(sequence, step)
        given_up = set(event.cancelled)
        self._open = {
            key: step
            for key, step in self._open.items()
            if step.n not in given_up or self._is_awaited(step)
        }

    def _is_awaited(self, step: ScheduledStep) -> bool:
        """Whether the end of a step is awaited although it was given up."""
        return step.is_compensated or (self._is_cancelled and step.kind == "workflow")

    def _schedule(self, sequence: int, step: ScheduledStep) -> Iterator[str]:
        if step.n in self.scheduled_at or step.key in self._open:
            yield f"step {step.n}, {step.key!r}, was scheduled before"
        self.scheduled_at[step.n], self._open[step.key] = sequence, step

    def _consume(self, sequence: int, resolution: Resolution) -> Iterator[str]:
        if resolution.key == CANCEL_KEY:
            self._is_cancelled = True
            return
        step = self._open.pop(resolution.key, None)
        if resolution.outcome == "received":
            yield from self._consume_signal(sequence, resolution)
        elif step is None and resolution.outcome in _ENDS:  # a time may have passed at once
            yield f"it took note of the end of {resolution.key!r}, for which it did not wait"
        elif step is not None and step.is_job:
            yield from self._consume_job(sequence, step, resolution)

    def _consume_job(
        self, sequence: int, step: ScheduledStep, resolution: Resolution
    ) -> Iterator[str]:
        kind = _ENDS.get(resolution.outcome)
        ends = [
            event
            for number, event in self._jobs.get(step.n, ())
            if kind is not None and isinstance(event, kind) and number < sequence
        ]
        if not ends:
            yield f"it took note of step {step.n} as {resolution.outcome}, which its job was not"
            return
        end = ends[-1]
        if isinstance(end, JobCompleted) and end.result and end.result != resolution.value:
            yield f"it took note of another result of step {step.n} than its job recorded"

    def _consume_signal(self, sequence: int, resolution: Resolution) -> Iterator[str]:
        """One that was sent before is consumed at once, and its wait is never scheduled."""
        name = resolution.key.rpartition("/")[2].partition("#")[0]
        last = self._signals.get(name, 0)
        if not last < resolution.sequence < sequence:
            yield f"it consumed signal {resolution.sequence}, after {last}, of {name!r}"
        self._signals[name] = max(last, resolution.sequence)


def _violation(workflow_id: str, sequence: int, text: str) -> Violation:
    subject = f"workflow {workflow_id}"
    return Violation(rule=Rule.WORKFLOW, subject=subject, text=text, sequence=sequence)
