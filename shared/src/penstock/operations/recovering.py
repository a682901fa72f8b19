"""Asks the executors of all hosts about stuck jobs, and to recover them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.events.envelope import new_id
from penstock.events.recovering import RecoverAnswered, RecoverAsked, Suspect
from penstock.events.subjects import Subjects

PATIENCE_SECONDS = 5.0
"""How long to wait for answers of hosts."""


async def recover_silent(
    bus: Bus, subjects: Subjects, order: RecoverAsked, silent_seconds: float
) -> tuple[list[Suspect], set[str]]:
    """The same for jobs that have been silent for so long, each asked for by its id.

    So executors of any version recover these only.
    """
    look = replace(order, answer_to=new_id(), strategy="off")
    suspects, silent_hosts = await recover_on_hosts(bus, subjects, look)
    chosen = [one for one in suspects if one.silent_seconds >= silent_seconds]
    if order.strategy == "off":
        return chosen, silent_hosts
    recovered: list[Suspect] = []
    for suspect in chosen:
        single = replace(order, answer_to=new_id(), job_id=suspect.job_id)
        answers, _ = await recover_on_hosts(bus, subjects, single)
        recovered += answers
    return recovered, silent_hosts


async def recover_on_hosts(
    bus: Bus, subjects: Subjects, order: RecoverAsked
) -> tuple[list[Suspect], set[str]]:
    """Sends a request to the executors of all hosts.

    Args:
        bus: a connection.
        subjects: of the installation.
        order: the request.

    Returns:
        The stuck jobs that they report, worst first, and the hosts that did not answer.
    """
    stream, every = subjects.snapshots_stream, subjects.host_snapshot("*")
    latest = await lookback.latest(bus, stream, every)
    silent = {stored.subject.split(".")[-1] for stored in latest}
    suspects: list[Suspect] = []
    complete = asyncio.Event()

    def take(_: str, body: bytes) -> None:
        with suppress(msgspec.MsgspecError):
            answer = msgspec.json.decode(body, type=RecoverAnswered)
            suspects.extend(answer.suspects)
            silent.discard(answer.host)
            if not silent:
                complete.set()

    listening = await bus.listen(subjects.recover_answered(order.answer_to), take)
    try:
        for host in tuple(silent):
            await bus.signal(subjects.recover_asked(host), msgspec.json.encode(order))
        if silent:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await complete.wait()
    finally:
        await listening.unsubscribe()
    return sorted(suspects, key=lambda suspect: -suspect.score), silent
