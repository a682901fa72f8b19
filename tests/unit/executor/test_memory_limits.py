"""An executor kills the worker whose job uses too much memory, when the worker does not."""

from __future__ import annotations

import pytest

from penstock.config.load import check
from penstock.events.worker import Claim, WorkerStopped
from penstock.executor.core.facts import Condemned, Exited
from penstock.executor.core.fleet import Fleet, Limits
from penstock.executor.core.instruction import Announce, GiveBack, Kill
from penstock.executor.core.reconcile import handle
from penstock.executor.core.worker import Phase, Worker
from penstock.executor.recovering.memory_limits import MemoryLimits

LIMIT = 1000 << 20
SETTINGS = check(
    {
        "jobs": {"cancel_grace_seconds": 5},
        "pools": {"heavy": {"limit_job_memory_bytes": LIMIT}, "free": {}},
    }
)


def worker(name: str = "w1", pool: str = "heavy", phase: Phase = Phase.BUSY) -> Worker:
    return Worker(name=name, pool=pool, cause="planned", requested_at=0.0, phase=phase, pid=7)


class Looks:
    """Looks at one worker each second, and what was learned."""

    def __init__(self, one: Worker) -> None:
        self.learned: list[Condemned] = []
        self.bytes = 0
        self._one, self._now = one, 0.0
        self._limits = MemoryLimits(SETTINGS, self.learned.append, lambda _: self.bytes)

    def look(self, used: int, seconds: int) -> None:
        self.bytes = used
        for _ in range(seconds):
            self._now += 1
            self._limits.look({self._one.name: self._one}, {self._one.name: 7}, self._now)


def test_a_worker_has_time_to_end_the_job_itself() -> None:
    looks = Looks(worker())
    looks.look(LIMIT + (1 << 20), seconds=8)
    assert looks.learned == []
    looks.look(LIMIT + (1 << 20), seconds=1)
    [condemned] = looks.learned
    assert (condemned.worker, condemned.because) == ("w1", "memory-limit")
    assert condemned.detail == ("used 1001 MiB, limit_job_memory_bytes of its pool allows 1000 MiB")


def test_one_that_came_back_below_begins_anew() -> None:
    looks = Looks(worker())
    looks.look(LIMIT + 1, seconds=7)
    looks.look(LIMIT, seconds=1)
    looks.look(LIMIT + 1, seconds=7)
    assert looks.learned == []


def test_one_that_is_far_beyond_is_killed_at_the_second_look() -> None:
    looks = Looks(worker())
    looks.look(2 * LIMIT, seconds=1)
    assert looks.learned == []
    looks.look(2 * LIMIT, seconds=1)
    assert len(looks.learned) == 1


@pytest.mark.parametrize(
    "one", [worker(pool="free"), worker(phase=Phase.STARTING)], ids=["no limit", "starting"]
)
def test_others_are_left_alone(one: Worker) -> None:
    looks = Looks(one)
    looks.look(9 * LIMIT, seconds=20)
    assert looks.learned == []


def test_the_job_is_charged_with_the_loss_and_told_why() -> None:
    claim = Claim(job_id="j1", ack_subject="$JS.ACK.x", running_seconds=3.0)
    limits = Limits(
        pools=frozenset({"heavy"}), parallel_starts=4, drain_seconds=5, silent_seconds=30
    )
    fleet = Fleet(host="h", instance="i", limits=limits).having(worker())
    detail = "used 2000 MiB, limit_job_memory_bytes of its pool allows 1000 MiB"
    fact = Condemned(worker="w1", because="memory-limit", detail=detail)
    fleet, instructions = handle(fleet, fact, 1.0)
    assert any(isinstance(one, Kill) for one in instructions)
    fleet, instructions = handle(
        fleet, Exited(worker="w1", code=-9, claim=claim, held=(claim,)), 2.0
    )
    [given_back] = [one for one in instructions if isinstance(one, GiveBack)]
    assert given_back.ran == ("j1",)
    assert given_back.ended == f"worker w1 on h was killed (memory-limit): it {detail}"
    [stopped] = [one.event for one in instructions if isinstance(one, Announce)]
    assert isinstance(stopped, WorkerStopped)
    assert stopped.cause == "memory-limit"
