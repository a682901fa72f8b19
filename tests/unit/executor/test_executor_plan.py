"""Given workers and a plan, when facts come, then these instructions."""

from __future__ import annotations

import pytest
from tests.unit.executor.making import Played, command, events, fleet, of, report

from penstock.events.worker import WorkerReady, WorkerStarted, WorkerStopped
from penstock.executor.core import facts
from penstock.executor.core.fleet import FRESH_SECONDS, by_pool
from penstock.executor.core.instruction import Kill, Note, Pause, Resume, Start, Terminate
from penstock.executor.core.worker import Phase


def test_a_command_starts_what_it_plans() -> None:
    played = Played(fleet())
    starts = played.play(command({"mail": 2, "etl": 1}))
    assert sorted(start.pool for start in of(Start, starts)) == ["etl", "mail", "mail"]
    assert all(s.together == 3 and s.cause == "planned" for s in of(Start, starts))


def test_the_same_fleet_needs_nothing_more() -> None:
    played = Played(fleet())
    played.start({"mail": 2})
    assert played.play(facts.Ticked()) == []


@pytest.mark.parametrize(
    "late",
    [
        command({"mail": 0}, version=5, epoch=2),  # repeated
        command({"mail": 0}, version=4, epoch=2),  # late
        command({"mail": 0}, version=9, epoch=1),  # from a deposed leader
        command({"mail": 0}, version=9, epoch=2, host="host-b"),
        command({"mail": -1}, version=9, epoch=2),
        command({"mail": 10**9}, version=9, epoch=2),
    ],
)
def test_a_command_that_is_not_newer_or_not_sound_changes_nothing(late: facts.Commanded) -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}, version=5, epoch=2))
    before = played.fleet
    said = played.play(late)
    assert played.fleet == before
    assert [type(i) for i in said] == [Note]


def test_a_command_of_an_epoch_that_nobody_can_have_had_is_not_obeyed() -> None:
    played = Played(fleet())
    said = played.play(command({"mail": 1}, epoch=10**9, reached=7))
    assert played.fleet.plan is None
    assert "the lease has reached 7" in of(Note, said)[0].text
    assert of(Start, played.play(command({"mail": 1}, epoch=7, reached=7)))


def test_a_forged_plan_of_before_anybody_led_stands_in_no_leaders_way() -> None:
    played = Played(fleet())
    played.play(command({}, epoch=10**9))
    assert of(Start, played.play(command({"mail": 1}, epoch=3, reached=4)))


def test_a_new_leader_starts_counting_anew() -> None:
    played = Played(fleet())
    played.play(command({"mail": 1}, version=5, epoch=2))
    assert of(Start, played.play(command({"mail": 2}, version=1, epoch=3)))


def test_a_pool_that_the_settings_lack_is_noted_and_the_rest_is_obeyed() -> None:
    instructions = Played(fleet()).play(command({"mail": 1, "new": 3}))
    assert [start.pool for start in of(Start, instructions)] == ["mail"]
    assert "'new'" in of(Note, instructions)[0].text


def test_without_a_command_nobody_is_ended() -> None:
    played = Played(fleet())
    adopted = facts.Adopted(worker="old", pool="mail", pid=7, age_seconds=60)
    assert [type(e) for e in events(played.play(adopted, facts.Ticked()))] == [WorkerStarted]
    assert played.phases() == {"old": Phase.STARTING}


def test_an_adopted_worker_fills_the_plan() -> None:
    played = Played(fleet())
    played.play(
        facts.Adopted(worker="old", pool="mail", pid=7, age_seconds=60), report("old", "busy")
    )
    assert of(Start, played.play(command({"mail": 1}))) == []
    assert by_pool(played.fleet, played.now)["mail"].ready == 1


def test_ready_counts_from_the_command() -> None:
    played = Played(fleet())
    [start] = of(Start, played.play(command({"mail": 1})))
    played.play(facts.Forked(worker=start.worker, pid=5), after=0.02)
    [ready] = of(WorkerReady, played.play(report(start.worker), after=0.06))
    assert ready.spawn_seconds == pytest.approx(0.08)
    assert ready.together == 1


def test_planned_started_and_ready_are_kept_apart() -> None:
    played = Played(fleet())
    first, second, third = (i.worker for i in of(Start, played.play(command({"mail": 3}))))
    played.play(
        facts.Forked(worker=first, pid=1), facts.Forked(worker=second, pid=2), report(first)
    )
    sets = by_pool(played.fleet, played.now)["mail"]
    assert (sets.planned, sets.started, sets.ready) == (3, 2, 1)
    played.play(facts.Forked(worker=third, pid=3), report(third, "draining"))  # paused
    assert by_pool(played.fleet, played.now)["mail"].ready == 1


def test_the_build_of_a_worker_whose_report_is_late_is_listed() -> None:
    """Workers with other code hand jobs on to it more slowly where it is not."""
    played = Played(fleet())
    [mail] = played.start({"mail": 1})
    played.play(report(mail, build="new"))
    played.now += FRESH_SECONDS + 1
    sets = by_pool(played.fleet, played.now)["mail"]
    assert (sets.ready, sets.builds) == (0, ("new",))


def test_starting_ones_end_first_then_idle_then_the_youngest_busy() -> None:
    played = Played(fleet())
    oldest, older = played.start({"mail": 2})
    played.now += 10
    [young] = played.start({"mail": 3}, version=2)
    played.play(report(oldest, "busy"), report(young, "busy"))
    played.now += 10
    [starting] = of(Start, played.play(command({"mail": 4}, version=3)))
    played.play(facts.Forked(worker=starting.worker, pid=9))
    for version, victim in enumerate([starting.worker, older, young, oldest], 4):
        instructions = played.play(command({"mail": 7 - version}, version=version))
        assert [i.worker for i in of(Terminate, instructions)] == [victim]


def test_a_draining_worker_does_not_count_and_is_killed_at_its_deadline() -> None:
    played = Played(fleet(drain_seconds=30))
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy"))
    played.play(command({"mail": 0}, version=2))
    assert of(Start, played.play(command({"mail": 1}, version=3))), "its place is free"
    assert of(Kill, played.play(facts.Ticked(), after=29.9)) == []
    assert [k.worker for k in of(Kill, played.play(facts.Ticked(), after=0.2))] == [name]
    assert of(Kill, played.play(facts.Ticked(), after=1)) == [], "once is enough"
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=name, code=-9)))
    assert stopped.cause == "drain-deadline"


def test_one_that_is_not_wanted_before_its_fork_is_ended_after_it() -> None:
    played = Played(fleet())
    [start] = of(Start, played.play(command({"mail": 1})))
    assert of(Terminate, played.play(command({"mail": 0}, version=2))) == []
    instructions = played.play(facts.Forked(worker=start.worker, pid=5))
    assert [i.worker for i in of(Terminate, instructions)] == [start.worker]


def test_only_so_many_start_at_once_and_the_emptiest_pool_first() -> None:
    played = Played(fleet(parallel_starts=2))
    first = of(Start, played.play(command({"mail": 3, "etl": 3})))
    assert sorted(start.pool for start in first) == ["etl", "mail"]
    [then] = of(
        Start, played.play(facts.Forked(worker=first[0].worker, pid=1), report(first[0].worker))
    )
    assert then.together == 2
    stuck = played.play(facts.Ticked(), after=11)
    assert len(of(Start, stuck)) == 2, "a start that hangs does not hold up the others for ever"


def test_of_those_that_keep_a_core_busy_no_more_start_at_once_than_there_are_cores() -> None:
    played = Played(fleet(costly=frozenset({"etl"}), costly_starts=2))
    first = of(Start, played.play(command({"etl": 5, "mail": 4})))
    assert sorted(start.pool for start in first) == ["etl"] * 2 + ["mail"] * 4
    assert of(Start, played.play(facts.Ticked())) == []
    worker = next(start.worker for start in first if start.pool == "etl")
    [then] = of(Start, played.play(facts.Forked(worker=worker, pid=1), report(worker, pool="etl")))
    assert then.pool == "etl"


def test_paused_it_starts_nobody_and_tells_every_worker_to_take_no_jobs() -> None:
    played = Played(fleet(costly=frozenset({"etl"}), costly_starts=1))
    played.start({"mail": 1, "etl": 1})
    [mail], [spark] = played.phases("mail"), played.phases("etl")
    paused = played.play(facts.PauseRequested(paused=True))
    assert [each.worker for each in of(Pause, paused)] == [mail], "Spark's own take no jobs"
    assert of(Start, played.play(command({"mail": 2, "etl": 1}, version=2))) == []
    assert of(Pause, played.play(facts.Ticked(), after=1)) != [], "it was not ready to hear it"
    played.play(report(mail, "draining"))
    assert of(Pause, played.play(facts.Ticked(), after=1)) == []
    resumed = played.play(facts.PauseRequested(paused=False))
    assert mail in [each.worker for each in of(Resume, resumed)]
    assert len(of(Start, resumed)) == 1
    assert spark not in [each.worker for each in of(Resume, resumed)]


def test_an_adopted_worker_that_its_last_executor_paused_goes_on() -> None:
    played = Played(fleet())
    adopted = facts.Adopted(worker="a", pool="mail", pid=7, age_seconds=60)
    assert [each.worker for each in of(Resume, played.play(adopted))] == ["a"]


def test_the_hosts_own_ceiling_stands_above_the_plan() -> None:
    assert len(of(Start, Played(fleet(max_workers=2)).play(command({"mail": 9})))) == 2


def test_told_to_end_it_ends_everybody_and_starts_nobody() -> None:
    played = Played(fleet())
    one, other = played.start({"mail": 2})
    played.play(report(other, "draining", stopping_because="orphaned"))
    instructions = played.play(facts.EndRequested())
    assert {i.worker for i in of(Terminate, instructions)} >= {one, other}
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=one, code=0)))
    assert stopped.cause == "shutdown"
    assert of(Start, played.play(command({"mail": 5}, version=9))) == []
