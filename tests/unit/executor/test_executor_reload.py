"""Given workers with old code, then each is replaced, and the pool keeps what its plan needs."""

from __future__ import annotations

import pytest
from tests.unit.executor.making import Played, claim, command, fleet, of, report

from penstock.events.worker import WorkerStopped
from penstock.executor.core import facts
from penstock.executor.core.fleet import by_pool
from penstock.executor.core.instruction import GiveBack, Instruction, Kill, Start, Terminate
from penstock.executor.core.worker import Phase

RELOADED = facts.CodeReloaded(pools=frozenset({"mail", "etl"}))


def ready(played: Played, start: Start) -> list[Instruction]:
    forked = facts.Forked(worker=start.worker, pid=hash(start.worker) % 10_000 + 2_000)
    return played.play(forked, report(start.worker, pool=start.pool))


def able(played: Played, pool: str = "mail") -> int:
    """Workers that could take a job."""
    return by_pool(played.fleet, played.now)[pool].ready


@pytest.mark.parametrize("planned", [1, 2, 4, 9])
def test_workers_are_replaced_and_never_fewer_than_planned(planned: int) -> None:
    played = Played(fleet())
    old = played.start({"mail": planned})
    instructions, replaced, most = played.play(RELOADED), 0, planned
    while starts := of(Start, instructions):
        assert {start.cause for start in starts} == {"reloaded"}
        instructions = []
        for start in starts:
            instructions += ready(played, start)
            replaced += 1
            assert able(played) >= planned
            most = max(most, len(played.fleet.of("mail")))
        for worker in {order.worker for order in of(Terminate, instructions)}:
            assert worker in old
            instructions += played.play(facts.Exited(worker=worker, code=0))
    assert replaced == planned
    assert most <= planned + max(1, planned // 4)
    assert not set(old) & set(played.fleet.workers)
    assert len(played.fleet.of("mail")) == planned


def test_idle_workers_end_before_busy_ones_which_finish_their_job() -> None:
    played = Played(fleet())
    busy, idle = played.start({"mail": 2})
    played.play(report(busy, "busy", claims=(claim("a"),)))
    [start] = of(Start, played.play(RELOADED))
    instructions = ready(played, start)
    assert [order.worker for order in of(Terminate, instructions)] == [idle]
    [second] = of(Start, instructions)
    assert [order.worker for order in of(Terminate, ready(played, second))] == [busy]
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=busy, code=0)))
    assert stopped.cause == "reloaded"


def test_a_job_beyond_the_drain_deadline_goes_back_and_is_not_to_blame() -> None:
    played = Played(fleet())
    [busy] = played.start({"mail": 1})
    played.play(report(busy, "busy", claims=(claim("a"),)))
    [start] = of(Start, played.play(RELOADED))
    ready(played, start)
    played.play(report(start.worker), after=29)
    assert of(Kill, played.play(facts.Ticked(), after=2))
    instructions = played.play(facts.Exited(worker=busy, code=-9))
    [given] = of(GiveBack, instructions)
    assert (given.job_ids, given.ran) == (("a",), ())
    assert of(WorkerStopped, instructions)[0].cause == "drain-deadline"


def test_no_old_worker_ends_while_new_ones_do_not_get_ready() -> None:
    played = Played(fleet())
    old = played.start({"mail": 2})
    [start] = of(Start, played.play(RELOADED))
    for _ in range(5):
        instructions = played.play(
            facts.Forked(worker=start.worker, pid=7), facts.Exited(worker=start.worker, code=1)
        )
        assert of(Terminate, instructions) == []
        instructions += played.play(*(report(name) for name in old), after=20)
        starts = of(Start, instructions)
        assert len(starts) == 1
        start = starts[0]
    assert {played.fleet.workers[name].phase for name in old} == {Phase.IDLE}


def test_where_no_worker_more_may_run_one_ends_first() -> None:
    played = Played(fleet(max_workers=2))
    played.start({"mail": 2})
    instructions = played.play(RELOADED)
    assert len(of(Terminate, instructions)) == 1
    [start] = of(Start, instructions)
    assert len(of(Terminate, played.play(facts.Ticked()))) == 0
    assert len(of(Terminate, ready(played, start))) == 1


def test_a_plan_for_fewer_is_obeyed_meanwhile() -> None:
    played = Played(fleet())
    old = played.start({"mail": 4})
    [start] = of(Start, played.play(RELOADED))
    instructions = played.play(command({"mail": 1}, version=2))
    assert len(of(Terminate, instructions)) == 3
    instructions = ready(played, start)
    assert len(of(Terminate, instructions)) == 1
    assert {order.worker for order in of(Terminate, instructions)} <= set(old)


def test_other_pools_keep_their_workers() -> None:
    played = Played(fleet())
    played.start({"mail": 1, "etl": 1})
    instructions = played.play(facts.CodeReloaded(pools=frozenset({"etl"})))
    assert [start.pool for start in of(Start, instructions)] == ["etl"]
    sets = by_pool(played.fleet, played.now)
    assert (sets["etl"].outdated, sets["mail"].outdated) == (1, 0)


def test_nothing_starts_or_ends_while_paused() -> None:
    played = Played(fleet(max_workers=1))
    played.start({"mail": 1})
    played.play(facts.PauseRequested(paused=True))
    instructions = played.play(RELOADED)
    assert of(Start, instructions) == of(Terminate, instructions) == []
    instructions = played.play(facts.PauseRequested(paused=False))
    assert len(of(Terminate, instructions)) == len(of(Start, instructions)) == 1


def test_a_restarted_executor_replaces_only_those_that_it_adopted() -> None:
    played = Played(fleet())
    played.play(facts.Adopted(worker="left", pool="mail", pid=5, age_seconds=60.0))
    [start] = of(Start, played.play(command({"mail": 2})))
    played.play(report("left"))
    ready(played, start)
    played.play(facts.CodeReloaded(pools=frozenset({"mail"}), only_adopted=True))
    assert [w.name for w in played.fleet.outdated("mail")] == ["left"]


def test_workers_of_spark_run_no_job_code() -> None:
    played = Played(fleet(costly=frozenset({"etl"}), costly_starts=4))
    played.start({"etl": 1})
    assert of(Start, played.play(RELOADED)) == []
