"""Does to an installation what a plan says, each fault when its moment has come."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import psutil
from tests.chaos.chaos_jobs import QUEUE
from tests.chaos.clocks import HOUR
from tests.chaos.forgery import forge
from tests.chaos.plan import Fault, Kind, Plan, choose
from tests.chaos.recovery import STALLED_SECONDS, recovers, refuses
from tests.chaos.site import CLAIM_SECONDS, Site
from tests.chaos.storage import fill_disk, hang_disk, open_batches, turn_log_over
from tests.waiting import eventually

from penstock.bus.protocol import BusError, Delivery, Outgoing
from penstock.jobs.errors import NotFound
from penstock.jobs.queues import queue_messages

Harm = Callable[[Site, Fault], Coroutine[Any, Any, None]]

_PAST_THE_CLAIM_SECONDS = 2.5 * CLAIM_SECONDS
_SOME = 8


async def befall(site: Site, plan: Plan) -> None:
    """Returns when all faults have happened and what they broke is whole again."""
    healing: list[asyncio.Task[None]] = []
    try:
        for fault in plan.faults:
            await eventually(
                lambda: len(site.ended) >= fault.after,  # noqa: B023
                STALLED_SECONDS,
                f"{fault.after} jobs ended ({len(site.ended)} have)",
            )
            healing.append(asyncio.create_task(DO[fault.kind](site, fault)))
            if fault.kind in _ONE_AT_A_TIME:
                await healing[-1]
                await recovers(site, str(fault))
        await asyncio.gather(*healing)
    finally:
        for task in healing:
            task.cancel()
        await asyncio.gather(*healing, return_exceptions=True)


# --- processes ------------------------------------------------------------------------------------
def _signal_worker(number: int) -> Harm:
    async def send(site: Site, fault: Fault) -> None:
        _signal(_some_worker(site, fault), number)

    return send


def _some_worker(site: Site, fault: Fault) -> int | None:
    workers = site.workers()
    return choose(workers, fault.pick).pid if workers else None


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(psutil.Error):
            psutil.Process(pid).send_signal(number)


async def _stop_worker(site: Site, fault: Fault) -> None:
    pid = _some_worker(site, fault)
    _signal(pid, signal.SIGSTOP)
    await _taken_over(site)
    _signal(pid, signal.SIGCONT)


async def _kill_executor(site: Site, fault: Fault) -> None:
    choose(site.executors, fault.pick).signal(signal.SIGKILL)


async def _kill_orchestrator(site: Site, fault: Fault) -> None:
    choose(site.orchestrators, fault.pick).signal(signal.SIGKILL)


async def _cut_host(site: Site, fault: Fault) -> None:
    link = choose(site.hosts, fault.pick).link
    link.cut()
    try:
        await _taken_over(site)
    finally:
        link.heal()


async def _taken_over(site: Site) -> None:
    """A job was; or time enough has passed, where there was none to be taken."""
    before = site.recovered
    with suppress(AssertionError):
        await eventually(lambda: site.recovered > before, _PAST_THE_CLAIM_SECONDS)


async def _shift_clock(site: Site, fault: Fault) -> None:
    """Of a host or an orchestrator; one that is wrong already is set right."""
    clock = choose(site.parts.clocks, fault.pick)
    ahead = choose((HOUR, -HOUR), fault.pick * len(site.parts.clocks) % 1)
    clock.set(0 if clock.ahead_seconds else ahead)
    for worker in site.workers():
        host = next(host for host in site.hosts if worker in host.workers())
        assert host.clock is None or host.clock.rules(worker.pid), "a worker without its clock"


# --- the broker -----------------------------------------------------------------------------------
async def _kill_broker(site: Site, _: Fault) -> None:
    site.broker.restart()


async def _freeze_broker(site: Site, _: Fault) -> None:
    site.broker.freeze()
    try:
        await refuses(site)
    finally:
        site.broker.thaw()


# --- messages -------------------------------------------------------------------------------------
async def _double(site: Site, fault: Fault) -> None:
    for job_id in _some_jobs(site, fault):
        with suppress(BusError, NotFound):
            view = await site.client.job(job_id)
            headers = queue_messages.headers(job_id, view.events[0][0], 1, {})
            subject = site.subjects.queue(view.record.queue)
            double = Outgoing(subject, view.record.payload, headers)
            await site.bus.append_many([double] * 3)


async def _reorder(site: Site, fault: Fault) -> None:
    """One in three is kept until its claim has lapsed, as by a client that died with it."""
    bus = site.buses["worker"]
    puller = bus.puller(QUEUE)
    with suppress(BusError):
        taken = await puller.fetch(_SOME, CLAIM_SECONDS)
        random.Random(fault.pick).shuffle(taken)
        back: list[Delivery] = [each for n, each in enumerate(taken) if n % 3]
        await bus.give_back([each.ack_subject for each in back])
    await puller.close()


async def _cancel(site: Site, fault: Fault) -> None:
    for job_id in _some_jobs(site, fault):
        with suppress(BusError, NotFound):
            await site.client.cancel(job_id)


def _some_jobs(site: Site, fault: Fault) -> list[str]:
    """Of those dispatched last, so that some wait, some run and some have ended."""
    latest = site.acknowledged[-10 * _SOME :]
    return random.Random(fault.pick).sample(latest, min(_SOME, len(latest)))


_ONE_AT_A_TIME = (
    Kind.KILL_BROKER,
    Kind.FREEZE_BROKER,
    Kind.FILL_DISK,
    Kind.HANG_DISK,
    Kind.OPEN_BATCHES,
    Kind.TURN_LOG_OVER,
    Kind.FORGE,
)
"""What befalls the whole installation: after each, it recovers before the next."""
DO: dict[Kind, Harm] = {
    Kind.KILL_WORKER: _signal_worker(signal.SIGKILL),
    Kind.STOP_WORKER: _stop_worker,
    Kind.END_WORKER: _signal_worker(signal.SIGTERM),
    Kind.KILL_EXECUTOR: _kill_executor,
    Kind.KILL_ORCHESTRATOR: _kill_orchestrator,
    Kind.KILL_BROKER: _kill_broker,
    Kind.FREEZE_BROKER: _freeze_broker,
    Kind.CUT_HOST: _cut_host,
    Kind.FILL_DISK: fill_disk,
    Kind.HANG_DISK: hang_disk,
    Kind.OPEN_BATCHES: open_batches,
    Kind.TURN_LOG_OVER: turn_log_over,
    Kind.SHIFT_CLOCK: _shift_clock,
    Kind.FORGE: forge,
    Kind.DOUBLE: _double,
    Kind.REORDER: _reorder,
    Kind.CANCEL: _cancel,
}
