"""Runs one call to its end in this process: a workflow with all of its steps, or a plain job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.config import Settings
from penstock.jobs import Call, JobsError, State
from penstock.testing.bench import Bench


class RunFailed(JobsError):
    """A call that was run inline did not complete.

    Attributes:
        kind: of the error, as in ``JobView.error``; ``cancelled`` where it was cancelled, ``stuck``
            where it waits for what does not come.
    """

    def __init__(self, function: str, kind: str, message: str) -> None:
        super().__init__(f"{function}: {kind}: {message}")
        self.kind = kind


def run_inline(
    call: Call,
    *,
    settings: Settings | None = None,
    signals: Mapping[str, Any] | None = None,
    timeout_seconds: float = 300.0,
) -> Any:
    """Runs a workflow, or a job, in this process, and returns its result.

    All of it runs here, by the real worker over a broker in memory: steps in their queues, retries,
    batches, workflows below. Timers do not take time. Nothing of it is kept.

    Args:
        call: of a workflow or a job.
        settings: tries, timeouts and pools; None for the usual ones.
        signals: values that are sent to the workflow, by the names that it waits for.
        timeout_seconds: of real time, between two of its timers.

    Raises:
        RunFailed: it is dead, cancelled, or waits for a signal that does not come.
        TimeoutError: jobs run longer.
        RuntimeError: an event loop runs here; await :func:`run_inline_async` there.

    Example::

        assert run_inline(fulfil(order=7), signals={"approved": True}) == "shipped"
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(
            run_inline_async(
                call, settings=settings, signals=signals, timeout_seconds=timeout_seconds
            )
        )
    raise RuntimeError("an event loop runs in this thread: await run_inline_async(...) instead")


async def run_inline_async(
    call: Call,
    *,
    settings: Settings | None = None,
    signals: Mapping[str, Any] | None = None,
    timeout_seconds: float = 300.0,
) -> Any:
    """As :func:`run_inline`, in the event loop that runs."""
    bench = Bench(settings)
    job_id = await bench.client.dispatch(call)
    for name, value in (signals or {}).items():
        await bench.client.workflows.signal(job_id, name, value)
    while True:
        ran = await bench.run_pending(timeout_seconds)
        view = await bench.client.job(job_id)
        if view.state is State.COMPLETED:
            return view.result
        if view.state.ended:
            error = view.error
            kind, message = (error.kind, error.message) if error else (view.state.value, "")
            raise RunFailed(call.job.name, kind, message)
        blocked = view.record.workflow.blocked if view.record.workflow else ""
        # a timer may have fired since by itself: its run is the next that anything runs in
        if blocked or not (await bench.skip_to_next_timer() or ran):
            raise RunFailed(call.job.name, "stuck", blocked or await _waits_for(bench, job_id))


async def _waits_for(bench: Bench, job_id: str) -> str:
    view = await bench.client.workflows.get(job_id)
    steps = ", ".join(f"{step.kind} {step.key!r}" for step in view.waits_for)
    return f"it waits for {steps}, and nothing else happens here; see signals="
