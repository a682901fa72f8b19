"""One advance of a workflow that has recorded many steps, in a worker that knows nothing of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

import workflow_flows as flows
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Delivery
from penstock.events.envelope import new_id
from penstock.events.job import JobDispatched, JobStarted
from penstock.events.job_event import JobEvent
from penstock.events.subjects import Subjects
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import (
    InlineResult,
    RefusedSignal,
    Resolution,
    WorkflowMemo,
)
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.running.advancing import advance
from penstock.jobs.workflows.coded.running.nodes import Leaf, Suspension
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.workflows.recent_workflows import RecentWorkflows
from penstock.worker.workflows.workflow_reader import WorkflowReader

_SETTLING_SECONDS = 2.0
"""Orchestrator and broker are busy with the stored events for a while."""


class _Surroundings:
    """All steps but the last have ended.

    Args:
        ends: how many of the open steps end.
    """

    def __init__(self, ends: int) -> None:
        self._ends = ends

    def now(self) -> datetime:
        return datetime.now(UTC)

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        if not self._ends or not open_steps:
            return None
        self._ends -= 1
        return Resolution(key=next(iter(open_steps)), outcome="completed", value=encode_result(1))

    def refused(self, open_steps: Mapping[str, Leaf]) -> tuple[RefusedSignal, ...]:
        return ()

    def record_step(
        self, now: datetime, consumed: tuple[Resolution, ...], result: InlineResult
    ) -> None:
        raise NotImplementedError

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        return b"\x80"


async def cold_advance(bus: NatsBus, steps: int) -> dict[str, Any]:
    """Stores the history of such a workflow, and times what a worker does with it.

    Args:
        steps: recorded ones, one after another.
    """
    log, workflow_id, history = JobLog(bus, Subjects(), "bench"), new_id(), memo.EMPTY
    about: dict[str, Any] = {"job_id": workflow_id, "source": "bench", "queue": "cold"}
    events: list[JobEvent] = [JobDispatched(function="flow", payload=b"\x80", **about)]
    for number in range(steps):
        suspension = _advance(workflow_id, history, steps, min(number, 1))
        fields = msgspec.structs.asdict(suspension)
        advanced = WorkflowAdvanced(number=number + 1, **fields, **about)
        history = memo.advanced(history, advanced)
        events += [JobStarted(attempt=1, host="h", worker="w", **about), advanced]
    last = 0
    for event in events:  # each on condition of the one before, which proves the history
        last = await bus.append(log.outgoing(event, last))
    job = _claimed(workflow_id, last, steps)
    reader = WorkflowReader(bus, log, RecentWorkflows())
    await asyncio.sleep(_SETTLING_SECONDS)
    started = time.perf_counter()
    histories = await reader.read_ahead([job])
    read = time.perf_counter()
    workflow_memo = histories[workflow_id].record.workflow
    assert workflow_memo == history
    _advance(workflow_id, workflow_memo, steps, 1)
    ended = time.perf_counter()
    return {
        "ms": round((ended - started) * 1000, 1),
        "read_ms": round((read - started) * 1000, 1),
        "run_ms": round((ended - read) * 1000, 1),
    }


def _claimed(workflow_id: str, sequence: int, advances: int) -> ClaimedJob:
    """The workflow as a worker holds it that took its wake-up message."""
    message = queue_messages.headers(workflow_id, sequence, 1, {})
    delivery = Delivery(
        subject="",
        body=b"\x80",
        headers={**message, **queue_messages.recorded_header(advances, 0)},
        ack_subject="",
        sequence=0,
        deliveries=1,
        stored_at=0.0,
        pending=0,
    )
    call = Payload(
        id=workflow_id,
        function="flow",
        queue="cold",
        arguments=msgspec.Raw(b"\x80"),
        dispatched_at=0.0,
    )
    return ClaimedJob(
        delivery=delivery,
        payload=call,
        kind=flows.chain,
        arguments={},
        attempt=1,
        token=sequence + 1,
        sequence=sequence + 1,
        pickup_seconds=0.0,
        timeout_seconds=0.0,
        tries=1,
        started_at=0.0,
    )


def _advance(workflow_id: str, history: WorkflowMemo, steps: int, ends: int) -> Suspension:
    function, arguments = flows.chain.function, {"steps": steps + 1}
    suspension = advance(function, arguments, workflow_id, history, _Surroundings(ends))
    assert isinstance(suspension, Suspension)
    return suspension
