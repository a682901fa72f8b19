"""Random workflows while things go wrong, and what must become of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from tests.chaos.chaos_jobs import follow, mended_file
from tests.chaos.site import Site
from tests.histories import Breach, Evidence
from tests.programs.program import UNMENDED, Story
from tests.programs.timeless import draw_timeless

from penstock.bus.protocol import BusError
from penstock.events.envelope import Event
from penstock.events.job import JobCancelled, JobCarried, JobCompleted, JobDead
from penstock.jobs.errors import AlreadyDispatched, JobRefused, NotFound

_BEGUN_AT_ONCE = 3
_AGAIN_SECONDS = 0.05
_LOOK_SECONDS = 0.1
_LIMIT_SECONDS = 120.0


async def run_workflows(site: Site, seed: int, count: int, *, breaks: bool = True) -> None:
    """Until so many have ended.

    Args:
        site: the installation.
        seed: of the programs.
        count: how many.
        breaks: whether some are dead until their code is mended, and requeued then.
    """
    at_once = asyncio.Semaphore(_BEGUN_AT_ONCE)

    async def one(number: int) -> None:
        drawn = partial(draw_timeless, 1_000 * seed + number, breaks=breaks)
        story, end = await asyncio.to_thread(drawn)  # the model has an event loop of its own
        workflow_id = f"flow-{number}"
        site.stories[workflow_id] = story, end
        async with at_once:
            await _run(site, workflow_id, story)

    await asyncio.gather(*map(one, range(count)))


async def _run(site: Site, workflow_id: str, story: Story) -> None:
    call = follow(str(site.witness), msgspec.to_builtins(story.program))
    await _stubbornly(site, lambda: site.client.dispatch(call, job_id=workflow_id))
    site.acknowledged.append(workflow_id)
    chance = random.Random(story.seed)
    for number, sent in enumerate(story.sent):
        await asyncio.sleep(chance.choice([0, sent.at]))
        for _ in range(sent.times):
            await _signal(site, workflow_id, sent.signal, sent.value, f"{number}")
    async with asyncio.timeout(_LIMIT_SECONDS):
        while await _goes_on(site, workflow_id):
            pass


async def _goes_on(site: Site, workflow_id: str) -> bool:
    """Waits for its end; whether it was dead then, its code was mended, and it was requeued."""
    while workflow_id not in site.ended:  # noqa: ASYNC110 - events are recorded elsewhere
        await asyncio.sleep(_LOOK_SECONDS)
    if not _is_broken(site, workflow_id):
        return False
    mended_file(site.witness, workflow_id).touch()
    await _stubbornly(site, lambda: site.client.retry(workflow_id))
    while _is_broken(site, workflow_id):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)
    return True


async def _signal(site: Site, workflow_id: str, name: str, value: int, signal_id: str) -> None:
    async def send() -> None:
        while True:
            try:
                await site.client.workflows.signal(workflow_id, name, value, signal_id=signal_id)
            except JobRefused:  # it has ended
                if await _goes_on(site, workflow_id):
                    continue
            return

    await _stubbornly(site, send)


async def _stubbornly(site: Site, ask: Callable[[], Awaitable[object]]) -> None:
    """Until the broker has taken it."""
    while True:
        try:
            await ask()
        except (AlreadyDispatched, NotFound):  # our own, whose answer was lost; requeued before
            return
        except BusError:
            site.refused += 1
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            return


def _is_broken(site: Site, workflow_id: str) -> bool:
    """Whether it is dead and its code can be mended."""
    last = _last(site, workflow_id)
    return isinstance(last, JobDead) and UNMENDED in last.error.message


def _last(site: Site, workflow_id: str) -> Event | None:
    """What happened to it last: that it was carried past the end of the log is nothing."""
    history = [event for _, event in site.histories.get(workflow_id, ())]
    return next((event for event in reversed(history) if not isinstance(event, JobCarried)), None)


def misled(site: Site, *, may_be_cancelled: bool) -> list[Breach]:
    """Workflows that ended otherwise than their programs say."""
    breaches = []
    for workflow_id, (story, end) in site.stories.items():
        ended = _last(site, workflow_id)
        match ended:
            case JobCompleted():
                found = "completed", msgspec.msgpack.decode(ended.result)
            case JobDead():
                found = "dead", ended.error.kind.rpartition(".")[2]
            case JobCancelled() if may_be_cancelled:
                continue
            case _:
                found = type(ended).__name__, None
        if found != (end.state, end.outcome):
            why = f"found {found}, expected {(end.state, end.outcome)}: {story}"
            breaches.append(Breach(Evidence.OUTCOME, workflow_id, why))
    return breaches
