"""A workflow whose jobs end as a test says, one event after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.planning import plan
from penstock.jobs.workflows.declared.progress import End, Plan, Progress
from penstock.jobs.workflows.declared.step_state import StepState


class WorkflowRun:
    """Given a definition and the context; when jobs end; then steps are due."""

    def __init__(self, definition: Definition, **context: Any) -> None:
        self.planned = plan(definition)
        self.names = [planned.step.name for planned in self.planned]
        self.plan = Plan(
            [planned.step for planned in self.planned],
            definition.on_failure,
            {**definition.context, **context},
        )
        self.slots: dict[int, Slot] = {}
        self.results: dict[int, Any] = {}
        self.all_results: dict[int, Any] = {}
        self.is_cancelled = False

    def progress(self) -> Progress:
        """What is due, after the results that are needed for it were read."""
        progress = self._progress()
        while progress.unread:
            self.results.update({at: self.all_results[at] for at in progress.unread})
            progress = self._progress()
        return progress

    def _progress(self) -> Progress:
        return self.plan.progress(self.slots, self.results, is_cancelled=self.is_cancelled)

    @property
    def due(self) -> list[str]:
        return [self.names[at] for at in self.progress().ready]

    @property
    def states(self) -> dict[str, StepState]:
        return dict(zip(self.names, self.progress().states, strict=True))

    @property
    def end(self) -> End | None:
        return self.progress().end

    def dispatch(self) -> list[str]:
        """Dispatches what is due."""
        due = self.progress().ready
        self.slots.update(dict.fromkeys(due, Slot.PENDING))
        return [self.names[at] for at in due]

    def job_ends(self, name: str, slot: Slot = Slot.COMPLETED, result: Any = None) -> None:
        """The job of a step that was dispatched ends."""
        position = self.names.index(name)
        assert self.slots[position] is Slot.PENDING, f"{name} does not run"
        self.slots[position], self.all_results[position] = slot, result

    def run(self, outcomes: Mapping[str, Any] | None = None) -> list[str]:
        """To the end: jobs complete with these results, or end as these slots.

        Returns:
            The names of the steps that ran, in order.
        """
        ran: list[str] = []
        while started := self.dispatch():
            ran += started
            for name in started:
                outcome = (outcomes or {}).get(name)
                if isinstance(outcome, Slot):
                    self.job_ends(name, outcome)
                else:
                    self.job_ends(name, result=outcome)
        return ran
