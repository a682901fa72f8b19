"""Queue messages of a client that may store them: neither their call nor their counts count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import Outgoing
from penstock.jobs import Call, State, WorkflowContext, job, workflow
from penstock.jobs.payloads import payload
from penstock.jobs.queues import queue_messages
from penstock.testing import Bench

ran: list[str] = []


@job(queue="work")
def tell(what: str) -> str:
    ran.append(what)
    return what


def first() -> str:
    ran.append("inline")
    return "inline"


@workflow(queue="work")
async def flow(ctx: WorkflowContext) -> list[Any]:
    return [await ctx.step("first", first), await ctx.wait_signal("approved", bool)]


@pytest.fixture(autouse=True)
def _ran() -> None:
    ran.clear()


async def forge(penstock: Bench, job_id: str, call: Call[Any] | None, recorded: str = "") -> None:
    """Stores a message that names the job's last event."""
    record = (await penstock.client.job(job_id)).record
    body = record.payload
    if call is not None:
        arguments = msgspec.Raw(call.arguments)
        own = payload.decode(body)
        body = payload.encode(
            msgspec.structs.replace(own, function=call.job.name, arguments=arguments)
        )
    headers = queue_messages.headers(job_id, record.sequence, 1, {})
    if recorded:
        headers = {**headers, queue_messages.RECORDED: recorded}
    await penstock.bus.append(Outgoing(penstock.bus.subjects.queue("work"), body, headers))


async def test_a_job_does_not_end_by_another_call_than_its_own() -> None:
    penstock = Bench()
    job_id = await penstock.client.dispatch(tell(what="own"), delay=60)
    await forge(penstock, job_id, tell(what="forged"))
    while await penstock.run_pending():
        pass
    assert not (await penstock.client.job(job_id)).state.ended
    await penstock.advance(61)
    while await penstock.run_pending():
        pass
    assert (await penstock.client.job(job_id)).result == "own"


async def test_a_message_that_no_worker_can_run_does_not_bury_the_job_that_it_names() -> None:
    penstock = Bench()
    job_id = await penstock.client.dispatch(tell(what="own"), delay=60)
    record = (await penstock.client.job(job_id)).record
    odd = msgspec.structs.replace(
        payload.decode(record.payload), arguments=msgspec.Raw(msgspec.msgpack.encode({"no": 1}))
    )
    headers = queue_messages.headers(job_id, record.sequence, 1, {})
    subject = penstock.bus.subjects.queue("work")
    await penstock.bus.append(Outgoing(subject, payload.encode(odd), headers))
    while await penstock.run_pending():
        pass
    await penstock.advance(61)
    while await penstock.run_pending():
        pass
    assert (await penstock.client.job(job_id)).result == "own"


async def test_a_suspended_workflow_does_not_end_by_another_call_than_its_own() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(flow())
    await penstock.run_pending()
    await forge(penstock, workflow_id, tell(what="forged"))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == ["inline", True]


async def test_a_workflow_that_is_said_to_be_new_takes_no_step_a_second_time() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(flow())
    await penstock.run_pending()
    await forge(penstock, workflow_id, None, recorded="0 0")
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == ["inline", True]
    assert ran == ["inline"]
