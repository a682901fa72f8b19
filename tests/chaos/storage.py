"""Faults of what the broker stores on, and of its event log."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import Counter
from contextlib import suppress

import nats
from nats.aio.client import Client as RawClient
from tests.chaos.chaos_jobs import touch
from tests.chaos.disks import Disk
from tests.chaos.plan import Fault
from tests.chaos.recovery import STALLED_SECONDS, refuses
from tests.chaos.site import CLAIM_SECONDS, FORGED, Site
from tests.integration.guarded import GuardedBroker, join
from tests.waiting import eventually

from penstock.bus.protocol import BusError, Outgoing
from penstock.cli.up.disk_guard import DiskGuard
from penstock.events.envelope import new_id
from penstock.jobs.errors import NotFound

LOG_BYTES = 4_000_000
"""Of the event log, where it is to turn over."""
BATCHES = 50
"""As many as the broker lets be open in a stream."""
_LEAST_OPEN = 40
"""The installation's own batches, which are short, may take some of them."""
_KEPT_OPEN_SECONDS = 3.0
"""The broker forgets a batch that nothing is added to for 10 s."""
_JOBS_MEANWHILE = 40
_FILLER_BYTES, _FILLER_MESSAGES = 2_000, 200
_LIVING, _LIVING_DELAY_SECONDS = 8, 8.0
_LOOK_SECONDS = 0.1


# --- the disk ------------------------------------------------------------------------------------
async def fill_disk(site: Site, _: Fault) -> None:
    """As under `penstock up`: a guard ends a broker that does not store, its keeper starts it."""
    disk = _disk(site)
    guard = DiskGuard(site.broker, disk.folder / "store", lambda _: None)
    tasks = [asyncio.create_task(guard.run()), asyncio.create_task(_keep_broker(site))]
    try:
        await asyncio.to_thread(disk.fill)
        await refuses(site)
        disk.make_room()
        await eventually(lambda: _stores(site), STALLED_SECONDS, "a broker that stores again")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _start_broker(site)


async def _keep_broker(site: Site) -> None:
    while True:
        _start_broker(site)
        await asyncio.sleep(_LOOK_SECONDS)


def _start_broker(site: Site) -> None:
    if site.broker.child is None or site.broker.child.exit_code is not None:
        site.broker.start()


async def _stores(site: Site) -> bool:
    with suppress(BusError):
        site.acknowledged.append(await site.client.dispatch(touch(witness=str(site.witness))))
        return True
    return False


async def hang_disk(site: Site, _: Fault) -> None:
    with _disk(site).hanging():
        await refuses(site)
        await asyncio.sleep(2 * CLAIM_SECONDS)


def _disk(site: Site) -> Disk:
    assert site.disk, "the plan has no disk of its own"
    return site.disk


# --- the event log -------------------------------------------------------------------------------
async def open_batches(site: Site, _: Fault) -> None:
    client = await _stranger(site)
    begun: list[str] = []
    holding = asyncio.create_task(_hold(site, client, begun))
    try:
        # Those of an earlier fault stay open until the broker forgets them.
        await eventually(
            lambda: _begin(site, client, begun), STALLED_SECONDS, f"{_LEAST_OPEN} batches begun"
        )
        meanwhile = len(site.ended) + _JOBS_MEANWHILE
        await eventually(
            lambda: len(site.ended) >= min(meanwhile, len(site.acknowledged)),
            STALLED_SECONDS,
            f"{_JOBS_MEANWHILE} jobs ended beside {len(begun)} open batches",
        )
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await client.close()


async def _stranger(site: Site) -> RawClient:
    """A plain connection of one who may dispatch."""
    if isinstance(site.broker, GuardedBroker):
        return await join(site.broker, "dispatcher")
    return await nats.connect(site.broker.url, allow_reconnect=False)


async def _begin(site: Site, client: RawClient, begun: list[str]) -> bool:
    """Whether so many are open that only a few are left for others."""
    for name in (uuid.uuid4().hex for _ in range(BATCHES - len(begun))):
        headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": "1"}
        with suppress(TimeoutError, nats.errors.Error):
            answer = await client.request(_subject(site, name), b"{}", 2.0, headers=headers)
            if not answer.data:  # else an error
                begun.append(name)
    return len(begun) >= _LEAST_OPEN


async def _hold(site: Site, client: RawClient, begun: list[str]) -> None:
    """Adds a message to each, again and again, so that none is forgotten."""
    added: Counter[str] = Counter()
    while True:
        await asyncio.sleep(_KEPT_OPEN_SECONDS)
        for name in tuple(begun):
            added[name] += 1
            headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(1 + added[name])}
            await client.publish(_subject(site, name), b"{}", headers=headers)


def _subject(site: Site, name: str) -> str:
    return site.subjects.events("job", f"{FORGED}{name}", "JobDispatched")


async def turn_log_over(site: Site, fault: Fault) -> None:
    """Jobs that wait for their time live from before until after it."""
    living = [new_id() for _ in range(_LIVING)]
    for job_id in living:
        with suppress(BusError):
            call = touch(witness=str(site.witness))
            await site.client.dispatch(call, delay=_LIVING_DELAY_SECONDS, job_id=job_id)
            site.acknowledged.append(job_id)
    site.turned_over = True
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            await _fill_log(site)
    except TimeoutError:
        raise AssertionError("the event log takes no other events") from None
    for job_id in living:
        if job_id in site.acknowledged and job_id not in site.ended:
            await eventually(lambda: _shown(site, job_id), 10.0, f"job {job_id}, which lives")  # noqa: B023


async def _fill_log(site: Site) -> None:
    """Until the log's oldest event is none that it holds now; or three times its size was stored.

    What is recorded of the jobs for the verdict keeps up: a reader that lags would be blamed.
    """
    mark = (await _ends(site))[1]
    written = 0
    while written < 3 * LOG_BYTES and (await _ends(site))[0] <= mark:
        await eventually(lambda: _caught_up(site), STALLED_SECONDS, "all events recorded")
        subject = site.subjects.events("health", f"{FORGED}{written}", "Filler")
        answers = await site.bus.append_many(
            [Outgoing(subject, os.urandom(_FILLER_BYTES))] * _FILLER_MESSAGES
        )
        stored = sum(isinstance(answer, int) for answer in answers)
        written += _FILLER_BYTES * stored
        if not stored:  # the log is full until what lives was carried on
            await asyncio.sleep(_LOOK_SECONDS)


async def _ends(site: Site) -> tuple[int, int]:
    """The first and the last sequence in the event log."""
    while True:
        with suppress(BusError):
            for state in await site.bus.stream_states():
                if state["config"]["name"] == site.subjects.events_stream:
                    return state["state"]["first_seq"], state["state"]["last_seq"]
        await asyncio.sleep(_LOOK_SECONDS)


async def _caught_up(site: Site) -> bool:
    with suppress(BusError):
        return await site.up_to_date()
    return False


async def _shown(site: Site, job_id: str) -> bool:
    with suppress(BusError, NotFound):
        await site.client.job(job_id)
        return True
    return False
