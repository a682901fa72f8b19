"""Makes what the executor's tests begin with, and plays facts to a fleet."""

from __future__ import annotations

from typing import Any

from penstock.events.scaling import WorkersScaled
from penstock.events.worker import Claim, WorkerEvent, WorkerReport
from penstock.executor.core import facts
from penstock.executor.core.fleet import Fleet, Limits
from penstock.executor.core.instruction import Announce, Instruction, Start
from penstock.executor.core.reconcile import handle
from penstock.executor.core.worker import Phase

HOST = "host-a"


def fleet(**limits: Any) -> Fleet:
    known = {"pools": frozenset({"mail", "etl"}), "parallel_starts": 100, "drain_seconds": 30.0}
    return Fleet(host=HOST, instance="x", limits=Limits(**{**known, **limits}), bus_up_since=0.0)


def command(
    pools: dict[str, int],
    version: int = 1,
    epoch: int = 1,
    host: str = HOST,
    reached: int | None = None,
) -> Any:
    plan = WorkersScaled(host=host, epoch=epoch, version=version, pools=pools)
    return facts.Commanded(command=plan, reached=reached)


def report(worker: str, state: str = "idle", **fields: Any) -> facts.Reported:
    known = {"host": HOST, "pool": "mail", "pid": 1, "number": 1, "at": 0.0, "started_at": 0.0}
    return facts.Reported(report=WorkerReport(worker=worker, state=state, **{**known, **fields}))


def claim(job_id: str, running_seconds: float = 1.0) -> Claim:
    return Claim(job_id=job_id, ack_subject=f"ack.{job_id}", running_seconds=running_seconds)


class Played:
    """A fleet that facts are played to; remembers what came of each."""

    def __init__(self, fleet: Fleet, now: float = 100.0) -> None:
        self.fleet, self.now = fleet, now

    def play(self, *facts: facts.Fact, after: float = 0.0) -> list[Instruction]:
        """What facts lead to, ``after`` seconds later."""
        self.now += after
        instructions: list[Instruction] = []
        for fact in facts:
            self.fleet, more = handle(self.fleet, fact, self.now)
            instructions += more
        return instructions

    def start(self, pools: dict[str, int], version: int = 1) -> list[str]:
        """Plans, forks and has ready; the names of the new workers."""
        starts = [i for i in self.play(command(pools, version)) if isinstance(i, Start)]
        names = [each.worker for each in starts]
        for number, name in enumerate(names, 1):
            self.play(facts.Forked(worker=name, pid=1000 + number), report(name))
        return names

    def phases(self, pool: str = "mail") -> dict[str, Phase]:
        return {w.name: w.phase for w in self.fleet.workers.values() if w.pool == pool}


def of(kind: type[Any], instructions: list[Instruction]) -> list[Any]:
    """The instructions, or announced events, of one kind."""
    found = [i.event if isinstance(i, Announce) else i for i in instructions]
    return [each for each in found if isinstance(each, kind)]


def events(instructions: list[Instruction]) -> list[WorkerEvent]:
    return [i.event for i in instructions if isinstance(i, Announce)]
