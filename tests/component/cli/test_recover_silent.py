"""`penstock recover --silent-for`: by seconds of silence, not by the score."""

from __future__ import annotations

import msgspec
import pytest

from penstock.bus.protocol import Outgoing
from penstock.events.recovering import RecoverAnswered, RecoverAsked, Strategy, Suspect
from penstock.operations.recovering import recover_silent
from penstock.testing.memory.bus import MemoryBus

SILENT = {"quiet": 700.0, "busy": 3.0, "late": 650.0}


def suspect(job_id: str, outcome: str) -> Suspect:
    return Suspect(
        job_id=job_id, queue="q", host="h", worker="w", pool="p", pid=1, running_seconds=900.0,
        silent_seconds=SILENT[job_id], score=0.4, heartbeat=1.0, run_time=0.0, memory=0.0,
        process_part=0.0, process="sleeping", outcome=outcome,
    )  # fmt: skip


@pytest.mark.parametrize(("strategy", "recovered"), [("graceful", ["quiet", "late"]), ("off", [])])
async def test_only_those_that_are_silent_are_recovered(
    strategy: Strategy, recovered: list[str]
) -> None:
    bus = MemoryBus()
    asked: list[RecoverAsked] = []

    async def executor(_: str, body: bytes) -> None:
        request = msgspec.json.decode(body, type=RecoverAsked)
        asked.append(request)
        fitting = [name for name in SILENT if request.job_id in ("", name)]
        outcome = "" if request.strategy == "off" else request.strategy
        answer = RecoverAnswered(host="h", suspects=tuple(suspect(n, outcome) for n in fitting))
        subject = bus.subjects.recover_answered(request.answer_to)
        await bus.signal(subject, msgspec.json.encode(answer))

    await bus.append(Outgoing(bus.subjects.host_snapshot("h"), b"{}"))
    await bus.listen(bus.subjects.recover_asked("h"), executor)
    order = RecoverAsked(answer_to="x", threshold=0.0, strategy=strategy)
    suspects, silent_hosts = await recover_silent(bus, bus.subjects, order, 600.0)
    assert [one.job_id for one in suspects] == ["quiet", "late"]
    assert silent_hosts == set()
    assert asked[0].strategy == "off"
    assert [request.job_id for request in asked[1:]] == recovered
    assert {one.outcome for one in suspects} == ({strategy} if recovered else {""})
