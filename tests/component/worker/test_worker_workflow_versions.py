"""Workers with different versions of a workflow on one queue, as in a rolling deployment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.component.worker import test_worker_unknown_jobs as unknown
from tests.component.worker.given import QUEUE
from tests.component.worker.test_worker_unknown_jobs import AFTER, Site

from penstock.bus.protocol import Outgoing
from penstock.jobs import WorkflowContext, registry, workflow
from penstock.jobs.job_type import JobType
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages

NAME = "shop.fulfil"


async def fulfil(ctx: WorkflowContext, order: int) -> None: ...


def kind_of(*versions: int) -> JobType[..., None]:
    registry.REGISTRY.pop(NAME, None)
    for version in versions:
        workflow(queue=QUEUE, name=NAME, version=version)(fulfil)
    return registry.REGISTRY.pop(NAME)


@pytest.fixture(autouse=True)
def versions() -> Iterator[None]:
    known = {
        "wf-1": {NAME: kind_of(1)},
        "wf-2": {NAME: kind_of(2)},
        "wf-both": {NAME: kind_of(1, 2)},
        "wf-none": {},
    }
    unknown.VERSIONS.update(known)
    yield
    for name in known:
        del unknown.VERSIONS[name]


async def test_a_worker_without_the_version_hands_it_on_to_one_that_has_it(site: Site) -> None:
    await site.live("wf-1", "wf-2")
    new, old = await site.worker("wf-2"), await site.worker("wf-1")
    workflow_id = await site.client.dispatch(kind_of(1)(order=7))
    assert await new.win() == []
    assert (await site.view(workflow_id)).state is State.WAITING  # neither blocked nor dead
    site.pass_seconds(0.05)
    [held] = await old.win()
    assert (held.id, held.kind.version) == (workflow_id, 1)
    assert await site.story(workflow_id) == ["JobDispatched", "JobStarted"]


async def test_where_no_live_worker_may_have_it_it_is_blocked_at_once(site: Site) -> None:
    await site.live("wf-2")
    new = await site.worker("wf-2")
    workflow_id = await site.client.dispatch(kind_of(1)(order=7))
    assert await new.win() == []
    view = await site.view(workflow_id)
    assert view.state is State.SUSPENDED
    assert view.record.workflow is not None
    assert "it is of version 1, here is version 2" in view.record.workflow.blocked
    for _ in range(6):  # far beyond what a job lives for
        site.pass_seconds(AFTER)
        assert await new.win() == []
    assert (await site.view(workflow_id)).state is State.SUSPENDED
    old = await site.worker("wf-both")
    site.pass_seconds(AFTER)
    [held] = await old.win()
    assert held.kind.version == 1
    assert held.attempt == 1  # no try was used


async def test_each_version_runs_on_its_own_function(site: Site) -> None:
    both = await site.worker("wf-both")
    for version in (1, 2):
        await site.client.dispatch(kind_of(version)(order=7))
    assert [held.kind.version for held in await both.win()] == [1, 2]


async def test_a_message_of_an_earlier_wait_does_not_block_it(site: Site) -> None:
    """It names the version of before, which a worker of the new one lacks."""
    new, old = await site.worker("wf-2"), await site.worker("wf-1")
    workflow_id = await site.client.dispatch(kind_of(1)(order=7))
    stale = site.bus.stored(site.subjects.jobs_stream, site.subjects.queue(QUEUE))[0]
    assert await new.win() == []  # blocked
    await site.client.workflows.fix(workflow_id, version=2)
    await site.bus.append(Outgoing(stale.subject, stale.body, stale.headers))
    [held] = await new.win()
    assert (held.kind.version, held.id) == (2, workflow_id)
    assert (await site.story(workflow_id))[-1] == "JobStarted"
    assert await old.win() == []


@pytest.mark.parametrize("header", ["", "x", "-1", "1.0", "9" * 30, "²"])
async def test_a_header_that_names_no_version_leaves_it_to_the_newest(
    site: Site, header: str
) -> None:
    both = await site.worker("wf-both")
    await site.client.dispatch(kind_of(1)(order=7))
    stored = site.bus.stored(site.subjects.jobs_stream, site.subjects.queue(QUEUE))[0]
    await site.bus.remove(site.subjects.jobs_stream, stored.subject)
    headers = {**stored.headers, queue_messages.VERSION: header}
    await site.bus.append(Outgoing(stored.subject, stored.body, headers))
    [held] = await both.win()
    assert held.kind.version == 2


@pytest.fixture
async def site() -> Site:
    return Site()
