"""One workflow of a test: run to its end or to a wait, with the time skipped; what it did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.events.workflow_memo import Status
from penstock.jobs import derived_ids
from penstock.jobs.job_type import JobType
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.step_view import StepView
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.testing.dispatched import Dispatched
from penstock.testing.endings import ANY_RESULT

if TYPE_CHECKING:
    from penstock.testing.bench import Bench

_MOST_SKIPS = 10_000
_MARGIN_SECONDS = 0.001


class WorkflowRun:
    """A workflow that was dispatched by :meth:`Bench.start`.

    Attributes:
        id: of the workflow.
        view: as it was after the last run: its state, steps, and what it waits for.
    """

    def __init__(self, bench: Bench, view: WorkflowView) -> None:
        self._bench = bench
        self.id, self.view = view.id, view

    # --- going on ---------------------------------------------------------------------------------
    async def run(self, until: str = "", timeout_seconds: float = 30.0) -> WorkflowView:
        """Runs all that waits; each time that nothing moves the time is moved to the next timer.

        Args:
            until: key or name of a step, timer or signal: it returns as soon as the workflow waits
                for that. By default it runs to its end.
            timeout_seconds: of each stretch without a timer.

        Raises:
            AssertionError: it comes to a stand before, with what it waits for; or is blocked.
        """
        __tracebackhide__ = True
        for _ in range(_MOST_SKIPS):
            await self._bench.run_pending(timeout_seconds)
            await self._look()
            if self._is_there(until):
                return self.view
            if not await self._bench.skip_to_next_timer(_MARGIN_SECONDS):
                break
        raise AssertionError(self._why_not(until))

    async def signal(self, name: str, value: Any = None, *, signal_id: str = "") -> None:
        """Sends it a signal; :meth:`run` lets it go on."""
        await self._bench.client.workflows.signal(self.id, name, value, signal_id=signal_id)

    async def cancel(self, reason: str = "cancelled by a test") -> None:
        """Cancels it."""
        self.view = await self._bench.client.workflows.cancel(self.id, reason)

    async def _look(self) -> None:
        self.view = await self._bench.client.workflows.get(self.id, with_attempts=True)

    def _is_there(self, until: str) -> bool:
        __tracebackhide__ = True
        if self.view.state.ended and not until:
            return True
        if self.view.state.ended:
            raise AssertionError(f"expected it to wait for {until!r}; {self}")
        if self.view.blocked and self.view.state is State.SUSPENDED:
            raise AssertionError(f"it is blocked: {self.view.blocked}; {self}")
        return bool(until) and any(until in (step.key, step.signal) for step in self.view.waits_for)

    def _why_not(self, until: str) -> str:
        wanted = f"expected it to wait for {until!r}" if until else "expected it to end"
        waits = ", ".join(f"{step.kind} {step.key}" for step in self.view.waits_for) or "nothing"
        return f"{wanted}; it waits for {waits}, and nothing more is due; {self}"

    # --- what it did ------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """Of its job."""
        return self.view.state

    @property
    def result(self) -> Any:
        """What it returned, as plain values; None before its end."""
        return self.view.job.result

    @property
    def status(self) -> Status:
        """What it shows of itself."""
        return self.view.status

    @property
    def steps(self) -> tuple[StepView, ...]:
        """All that it recorded, in that order."""
        return self.view.steps

    @property
    def waits_for(self) -> list[str]:
        """Keys of the steps, timers and signals that have not ended."""
        return [step.key for step in self.view.waits_for]

    def assert_completed(self, result: Any = ANY_RESULT) -> None:
        """It completed.

        Args:
            result: what it returned, compared as it travels; any if it is left out.
        """
        __tracebackhide__ = True
        assert self.state is State.COMPLETED, f"expected it to complete; {self}"
        if result is not ANY_RESULT:
            wanted = msgspec.msgpack.decode(msgspec.msgpack.encode(result))
            assert self.result == wanted, f"expected the result {wanted!r}, found {self.result!r}"

    def assert_steps(self, *keys: str) -> None:
        """Just these steps, timers and signals were recorded, in this order."""
        __tracebackhide__ = True
        recorded = [step.key for step in self.steps]
        assert recorded == list(keys), f"expected the steps {', '.join(keys)}; {self}"

    def assert_in_order(self, *keys: str) -> None:
        """These were recorded, one after another; others may lie in between."""
        __tracebackhide__ = True
        recorded = iter(step.key for step in self.steps)
        for key in keys:
            assert key in recorded, f"expected {', '.join(keys)} in this order; {self}"

    def assert_ran(
        self, job: JobType[Any, Any], /, *, times: int | None = None, **arguments: Any
    ) -> list[Dispatched]:
        """Steps of it are such jobs; returns them.

        Args:
            job: the function.
            times: how many there must be; None for at least one.
            arguments: those named must be equal; others may be any.
        """
        __tracebackhide__ = True
        jobs = self._jobs(job, arguments)
        is_right = len(jobs) == times if times is not None else bool(jobs)
        wanted = "a step" if times is None else f"{times} steps"
        assert is_right, (
            f"expected {wanted} of {job.name} with {arguments or 'any arguments'}, found "
            f"{len(jobs)}; {self}"
        )
        return jobs

    def assert_not_ran(self, job: JobType[Any, Any], /, **arguments: Any) -> None:
        """No step of it is such a job."""
        __tracebackhide__ = True
        self.assert_ran(job, times=0, **arguments)

    def _jobs(self, job: JobType[Any, Any], arguments: dict[str, Any]) -> list[Dispatched]:
        matching = self._bench.matching(job, arguments)
        return [one for one in matching if self._is_step(one.job_id)]

    def _is_step(self, job_id: str) -> bool:
        step = derived_ids.step(job_id)
        return step is not None and step[0] == self.id

    def __str__(self) -> str:
        steps = "\n".join(f"  {step.key} ({step.kind}): {step.outcome}" for step in self.steps)
        error = self.view.job.error
        why = f": {error.kind}: {error.message}" if error else ""
        return f"workflow {self.id} is {self.state}{why}; recorded are:\n{steps or '  no steps'}"


class SyncWorkflowRun(WorkflowRun):
    """The same for plain tests."""

    def __init__(
        self, bench: Bench, view: WorkflowView, call: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        super().__init__(bench, view)
        self._call = call

    def run(self, until: str = "", timeout_seconds: float = 30.0) -> WorkflowView:  # type: ignore[override]
        """See :meth:`WorkflowRun.run`."""
        __tracebackhide__ = True
        view: WorkflowView = self._call(super().run(until, timeout_seconds))
        return view

    def signal(self, name: str, value: Any = None, *, signal_id: str = "") -> None:  # type: ignore[override]
        """See :meth:`WorkflowRun.signal`."""
        self._call(super().signal(name, value, signal_id=signal_id))

    def cancel(self, reason: str = "cancelled by a test") -> None:  # type: ignore[override]
        """See :meth:`WorkflowRun.cancel`."""
        self._call(super().cancel(reason))
