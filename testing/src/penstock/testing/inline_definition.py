"""Runs a declared workflow to its end in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.bus.protocol import broker_time
from penstock.config import Settings
from penstock.events.graph import Join
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows import graph_states, graph_waits
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.step_state import StepState
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.testing.bench import Bench
from penstock.testing.inline import RunFailed

_JUST_AFTER_SECONDS = 0.001


def run_definition(
    definition: Definition,
    context: Mapping[str, Any] | None = None,
    *,
    inner: Iterable[Definition] = (),
    signals: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    timeout_seconds: float = 300.0,
) -> dict[str, Any]:
    """Runs a declared workflow in this process, and returns the results of its steps.

    All of it runs here, by the real worker and orchestrator over a broker in memory. Timers do not
    take time. Nothing of it is kept.

    Args:
        definition: of the workflow.
        context: values of keys that it declares.
        inner: workflows that are steps of it.
        signals: values that are sent to it, by their names.
        settings: tries, timeouts and pools; None for the usual ones.
        timeout_seconds: of real time, between two of its timers.

    Returns:
        By the names of the steps that have completed; of a branch, that of the call that was made.

    Raises:
        RunFailed: it failed, with the reason, or waits for a signal that does not come.
        BadDefinition: it, or its context, cannot run.
        TimeoutError: jobs run longer.
        RuntimeError: an event loop runs here; await :func:`run_definition_async` there.

    Example::

        results = run_definition(from_toml(path.read_text()), {"order": {"id": 17}})
        assert results["check"]["total"] == 90
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = run_definition_async(
            definition,
            context,
            inner=inner,
            signals=signals,
            settings=settings,
            timeout_seconds=timeout_seconds,
        )
        return asyncio.run(running)
    raise RuntimeError("an event loop runs in this thread: await run_definition_async(...) instead")


async def run_definition_async(
    definition: Definition,
    context: Mapping[str, Any] | None = None,
    *,
    inner: Iterable[Definition] = (),
    signals: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    timeout_seconds: float = 300.0,
) -> dict[str, Any]:
    """As :func:`run_definition`, in the event loop that runs."""
    bench = Bench(settings)
    graphs = bench.client.graphs
    graph_id = await bench.client.definitions.run(definition, context, inner=inner)
    for name, value in (signals or {}).items():
        await graphs.signal(graph_id, name, value)
    while True:
        await bench.run_pending(timeout_seconds)
        graph = await graphs.show(graph_id)
        if graph.state is GraphState.COMPLETED:
            return await _results(bench, graph)
        if graph.state.ended:
            raise RunFailed(definition.name, graph.state.value, graph.reason)
        due = [*bench.bus.due_times().values(), *_times(graph)]
        if not due:
            raise RunFailed(definition.name, "stuck", _waits_for(graph))
        now = broker_time(bench.bus).timestamp()
        await bench.advance(max(0.0, min(due) - now) + _JUST_AFTER_SECONDS)


async def _results(bench: Bench, graph: GraphRecord) -> dict[str, Any]:
    jobs = await bench.client.graphs.jobs(graph)
    progress = graph_states.progress(graph, jobs)
    values = {**graph_states.results(graph, jobs), **progress.values}
    completed = {at for at, state in enumerate(progress.states) if state is StepState.COMPLETED}
    for position, step in enumerate(graph.steps):  # what a step needs stands before it
        if step.join is Join.BRANCH:
            made = completed.intersection(step.needs)
            values[position] = next((values[case] for case in made if case in values), None)
    return {graph.steps[position].name: values.get(position) for position in sorted(completed)}


def _times(graph: GraphRecord) -> list[float]:
    """When it goes on by time, in POSIX seconds."""
    times = [graph.waits[position] for position in _waiting(graph)]
    return [at.timestamp() for at in (*times, graph.deadline) if at is not None]


def _waiting(graph: GraphRecord) -> list[int]:
    slots = graph_waits.slots(graph)
    return [position for position, slot in slots.items() if slot is Slot.PENDING]


def _waits_for(graph: GraphRecord) -> str:
    names = ", ".join(repr(graph.steps[position].name) for position in _waiting(graph))
    return f"step {names} waits for a signal, and nothing else happens here; see signals="
