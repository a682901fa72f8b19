"""The orchestrator cancels jobs of batches, graphs and workflows unless they have ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.jobs import job, lifecycle, registry
from penstock.jobs.lifecycle import State
from penstock.orchestrator.workflows.instruction_executor import InstructionExecutor
from penstock.testing import Bench


@job
def plain() -> None: ...


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[plain.name] = plain
    yield
    registry.REGISTRY.pop(plain.name, None)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_carried_job_is_cancelled_unless_it_had_ended(ends: bool) -> None:
    bench = Bench()
    bus, subjects = bench.bus, bench.bus.subjects
    job_id = await bench.client.dispatch(plain())
    if ends:
        await bench.client.cancel(job_id, "by hand")
    record = (await bench.client.job(job_id)).record
    [event] = lifecycle.carried(record, "retention")
    sequence = await bus.append(Outgoing(subjects.event(event), encode(event)))

    executor = InstructionExecutor(bus, subjects, bench.client)
    await executor.cancel((job_id,), "its workflow was cancelled")

    last = await bus.last(subjects.events_stream, subjects.job(job_id))
    assert last is not None
    assert (last.sequence == sequence) is ends
    assert (await bench.client.job(job_id)).record.state is State.CANCELLED
