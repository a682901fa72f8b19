"""Given a worker that ends, then it is explained, its jobs go back, and another comes (in time)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.executor.making import HOST, Played, claim, command, fleet, of, report

from penstock.events.worker import QueueReport, WorkerCrashLooping, WorkerStopped
from penstock.executor.core import facts
from penstock.executor.core.backoff import backoff_seconds
from penstock.executor.core.fleet import by_pool, deadlines
from penstock.executor.core.instruction import Forget, GiveBack, Kill, Note, Start, Terminate
from penstock.executor.core.worker import EDGES, IllegalMove, Phase, Worker, move


def test_a_killed_worker_gives_back_is_announced_and_replaced_at_once() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", claims=(claim("a", 5.0), claim("b", 0.0))), after=60)
    instructions = played.play(facts.Exited(worker=name, code=-9))
    assert [i.ack_subjects for i in of(GiveBack, instructions)] == [("ack.a", "ack.b")]
    [stopped] = of(WorkerStopped, instructions)
    assert (stopped.cause, stopped.exit_code, stopped.job_id) == ("killed", -9, "a")
    assert stopped.lived_seconds == pytest.approx(60)
    assert of(Forget, instructions)
    [start] = of(Start, instructions)
    assert (start.cause, start.commanded_at) == ("respawn", played.now)


def test_an_end_says_how_many_jobs_the_worker_ran() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, queues={"a": QueueReport(finished=2, failed=1)}))
    played.play(report(name, queues={"a": QueueReport(finished=1), "b": QueueReport(finished=4)}))
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=name, code=0)))
    assert stopped.jobs_done == 7


@pytest.mark.parametrize(
    ("said", "code", "cause"),
    [
        ("", 1, "crashed"),
        ("", -11, "crashed"),
        ("", -15, "killed"),
        ("", None, "lost"),
        ("", 0, "crashed"),
        ("asked to end", 0, "killed"),
        ("orphaned", 0, "orphaned"),
        ("orphaned", None, "orphaned"),
        ("limit: memory", 0, "limit"),
        ("a job did not stop although it timed out", 75, "limit"),
        ("broken: ValueError()", 0, "crashed"),
    ],
)
def test_the_cause_of_an_end_that_we_did_not_ask_for(
    said: str, code: int | None, cause: str
) -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "idle", stopping_because=said))
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=name, code=code)))
    assert stopped.cause == cause


def test_one_that_ended_well_gave_back_itself() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", claims=(claim("a"),)), command({"mail": 0}, version=2))
    instructions = played.play(facts.Exited(worker=name, code=0))
    assert of(GiveBack, instructions) == []
    assert of(WorkerStopped, instructions)[0].job_id is None


def test_one_that_ends_by_its_own_will_is_replaced_while_it_drains() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.now += 60
    [start] = of(Start, played.play(report(name, "draining", stopping_because="limit: memory")))
    assert start.cause == "respawn"
    assert of(Start, played.play(facts.Exited(worker=name, code=0))) == [], "not a second time"


@pytest.mark.parametrize(
    ("code", "out_of_memory", "ended"),
    [
        (-11, False, "was killed by signal 11 (SIGSEGV)"),
        (3, False, "ended with exit code 3"),
        (0, False, "ended with exit code 0"),
        (-9, False, "was killed by signal 9 (SIGKILL)"),
        (-9, True, "was killed by signal 9 (SIGKILL) by the kernel's OOM killer"),
        (None, False, "ended, its exit code is not known"),
    ],
)
def test_the_job_that_ran_is_charged_with_the_end_of_its_worker_and_no_other(
    code: int | None, out_of_memory: bool, ended: str
) -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    held = (claim("ahead"), claim("bad"))
    exited = facts.Exited(
        worker=name, code=code, claim=claim("bad"), held=held, out_of_memory=out_of_memory
    )
    [returned] = of(GiveBack, played.play(exited))
    assert returned.job_ids == ("ahead", "bad")
    assert (returned.ran, returned.ended) == (("bad",), f"worker {name} on {HOST} {ended}")


def test_all_jobs_that_ran_beside_each_other_share_the_end_of_their_worker() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    held = (claim("ahead"), claim("a"), claim("b"))
    played.play(report(name, "busy", slots=50, slots_used=2, claims=held))
    [returned] = of(
        GiveBack,
        played.play(
            facts.Exited(worker=name, code=-9, claim=claim("b"), held=held, begun=("a", "b"))
        ),
    )
    assert (returned.job_ids, returned.ran) == (("ahead", "a", "b"), ("a", "b"))


def test_none_is_charged_where_a_worker_with_slots_had_marked_none() -> None:
    """The job begun last has ended by then; it only waits to be recorded."""
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", slots=50, slots_used=1, claims=(claim("a"),)))
    exited = facts.Exited(worker=name, code=-9, claim=claim("a"), held=(claim("a"),))
    [returned] = of(GiveBack, played.play(exited))
    assert (returned.job_ids, returned.ran) == (("a",), ())


def test_of_busy_workers_with_slots_the_one_with_fewest_jobs_ends_first() -> None:
    played = Played(fleet())
    names = played.start({"mail": 3})
    for name, used in zip(names, (30, 2, 40), strict=True):
        held = (claim(name),)
        played.play(report(name, "busy", slots=50, slots_used=used, claims=held, number=2))
    ended = of(Terminate, played.play(command({"mail": 2}, version=2)))
    assert [each.worker for each in ended] == [names[1]]


def test_workers_whose_jobs_end_them_are_replaced_at_once_however_often() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}))
    for _ in range(10):
        [name] = [w.name for w in played.fleet.workers.values() if w.active]
        played.play(facts.Forked(worker=name, pid=1), report(name), after=0.05)
        exited = facts.Exited(worker=name, code=-11, claim=claim("bad"), held=(claim("bad"),))
        instructions = played.play(exited, after=0.05)
        assert [start.cause for start in of(Start, instructions)] == ["respawn"]
        assert of(WorkerCrashLooping, instructions) == []
    assert played.fleet.troubles == {}


def test_one_that_dies_idle_as_soon_as_it_is_ready_is_a_failed_start() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(facts.Exited(worker=name, code=1, held=()), after=1)
    assert played.fleet.troubles["mail"].failures == 1


def _crash(played: Played) -> float:
    """Lets the pool's one worker crash and waits for the next; seconds until it started."""
    [worker] = [w for w in played.fleet.workers.values() if w.active]
    played.play(facts.Forked(worker=worker.name, pid=1))
    died_at = played.now
    if of(Start, played.play(facts.Exited(worker=worker.name, code=1))):
        return 0.0
    played.now = min(deadlines(played.fleet))
    assert len(of(Start, played.play(facts.Ticked()))) == 1
    return played.now - died_at


def test_a_crash_loop_waits_longer_each_time() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}))
    waits = []
    for _ in range(12):
        played.now += 0.001
        waits.append(_crash(played))
    assert waits == pytest.approx([backoff_seconds(n) for n in range(1, 13)])
    assert waits[0] == 0.0
    assert waits[-1] == 30.0


def test_a_crash_loop_is_reported_from_the_third_failure() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}))
    for _ in range(2):
        played.now += 0.001
        _crash(played)
    [worker] = played.fleet.workers
    instructions = played.play(facts.Exited(worker=worker, code=3), after=0.1)
    [looping] = of(WorkerCrashLooping, instructions)
    assert (looping.failures, looping.last_exit_code) == (3, 3)
    assert looping.backoff_seconds == pytest.approx(0.4)
    assert by_pool(played.fleet, played.now)["mail"].crash_loop


def test_many_that_die_together_are_one_failure() -> None:
    played = Played(fleet())
    names = played.start({"mail": 10})
    played.now += 1
    instructions = played.play(*(facts.Exited(worker=name, code=-9) for name in names))
    assert len(of(Start, instructions)) == 10
    assert played.fleet.troubles["mail"].failures == 1


def test_in_a_crash_loop_one_tries_for_all() -> None:
    played = Played(fleet())
    played.start({"mail": 1})
    for _ in range(3):
        for name in [w.name for w in played.fleet.workers.values() if w.active]:
            played.play(facts.Exited(worker=name, code=1), after=0.01)
        played.play(facts.Ticked(), after=1)
    [probe] = [w.name for w in played.fleet.workers.values()]
    assert of(Start, played.play(command({"mail": 5}, version=2), after=1)) == []
    played.play(facts.Forked(worker=probe, pid=1))
    assert len(of(Start, played.play(report(probe)))) == 1, "it is ready: the next one may"


def test_trouble_is_over_when_one_lived_long_enough() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(facts.Exited(worker=name, code=1), after=0.1)
    assert "mail" in played.fleet.troubles
    [name] = played.fleet.workers
    played.play(facts.Ticked(), after=1)
    [worker] = played.fleet.workers
    played.play(facts.Forked(worker=worker, pid=1), report(worker))
    assert "mail" in played.fleet.troubles
    played.play(report(worker), after=10)
    assert "mail" not in played.fleet.troubles


def test_a_fork_that_fails_counts_as_a_failed_start() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}))
    for _ in range(2):
        [name] = played.fleet.workers
        instructions = played.play(facts.ForkFailed(worker=name, error="no memory"), after=0.01)
        assert "no memory" in of(Note, instructions)[0].text
    assert of(Start, instructions) == []
    assert of(Start, played.play(facts.Ticked(), after=0.25))


def test_a_silent_worker_that_computes_is_left_alone_until_it_does_not() -> None:
    played = Played(fleet(silent_seconds=30))
    [name] = played.start({"mail": 1})
    assert played.play(facts.Computing(worker=name), after=29) == []
    assert played.play(facts.Ticked(), after=29) == []
    assert played.play(facts.Ticked(), after=2) != []


def test_a_silent_worker_is_replaced_but_not_while_the_broker_is_away() -> None:
    played = Played(fleet(silent_seconds=30))
    [name] = played.start({"mail": 1})
    played.play(facts.BusChecked(up=False))
    assert played.play(facts.Ticked(), after=1000) == []
    played.play(facts.BusChecked(up=True))
    assert by_pool(played.fleet, played.now)["mail"].ready == 0, "it is not known to be ready"
    assert played.play(facts.Ticked(), after=29) == []
    instructions = played.play(facts.Ticked(), after=2)
    assert [i.worker for i in of(Terminate, instructions)] == [name]
    assert len(of(Start, instructions)) == 1
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=name, code=-9), after=30))
    assert stopped.cause == "lost"


def test_a_broker_that_is_back_gives_everybody_another_chance() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}), facts.BusChecked(up=False))
    for _ in range(9):
        _crash(played)
    [name] = [w.name for w in played.fleet.workers.values()]
    assert of(Start, played.play(facts.Exited(worker=name, code=1), after=0.01)) == []
    assert len(of(Start, played.play(facts.BusChecked(up=True)))) == 1


def test_facts_about_strangers_lead_to_nothing() -> None:
    played = Played(fleet())
    before = played.fleet
    assert played.play(report("ghost"), facts.Exited(worker="ghost", code=1)) == []
    assert played.fleet == before


def test_a_move_that_does_not_exist_tells_the_workers_story() -> None:
    worker = move(Worker(name="w", pool="mail", cause="planned", requested_at=0.0), Phase.IDLE, 1.0)
    with pytest.raises(IllegalMove, match=r"from idle to starting.*1\.000 idle: asked for its"):
        move(worker, Phase.STARTING, 2.0)


def test_every_edge_of_the_table_can_be_walked_and_no_other() -> None:
    start = Worker(name="w", pool="mail", cause="planned", requested_at=0.0)
    for origin in Phase:
        for to in Phase:
            worker = replace(start, phase=origin)
            if (origin, to) in EDGES:
                assert move(worker, to, 0.0).history[-1][2] == EDGES[origin, to]
            else:
                with pytest.raises(IllegalMove):
                    move(worker, to, 0.0)


def test_a_drained_worker_finishes_its_job_and_is_replaced_meanwhile() -> None:
    played = Played(fleet())
    first, second = played.start({"mail": 2})
    played.play(report(first, "busy", claims=(claim("a", 5.0),)))
    instructions = played.play(facts.DrainRequested(worker=first))
    assert [i.worker for i in of(Terminate, instructions)] == [first]
    [start] = of(Start, instructions)
    assert (start.pool, start.cause) == ("mail", "respawn")
    assert played.phases()[first] is Phase.DRAINING
    assert played.phases()[second] is Phase.IDLE
    assert played.play(facts.DrainRequested(worker=first)) == [], "it comes twice"
    assert played.play(facts.DrainRequested(worker="gone")) == []
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=first, code=0)))
    assert stopped.cause == "drained"
    assert len(played.fleet.of("mail")) == 2


def test_a_worker_is_drained_before_it_has_a_process() -> None:
    played = Played(fleet())
    [start] = of(Start, played.play(command({"mail": 1})))
    assert of(Terminate, played.play(facts.DrainRequested(worker=start.worker))) == []
    forked = played.play(facts.Forked(worker=start.worker, pid=7))
    assert [i.pid for i in of(Terminate, forked)] == [7]


def test_a_drained_worker_that_does_not_end_is_killed_and_its_job_is_not_charged() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", claims=(claim("a", 5.0),)))
    played.play(facts.DrainRequested(worker=name))
    assert of(Kill, played.play(facts.Ticked(), after=31))
    ended = played.play(facts.Exited(worker=name, code=-9))
    assert [i.ran for i in of(GiveBack, ended)] == [()]
    assert [i.cause for i in of(WorkerStopped, ended)] == ["drain-deadline"]


def test_what_is_not_planned_any_more_is_not_replaced() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(facts.DrainRequested(worker=name), command({"mail": 0}, version=2))
    ended = played.play(facts.Exited(worker=name, code=0))
    assert of(Start, ended) == []
