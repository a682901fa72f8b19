"""Given consumers of another system, then their own times hold, and none of our signals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.executor.making import Played, command, fleet, of, report

from penstock.events.worker import WorkerCrashLooping, WorkerStopped
from penstock.executor.core import facts
from penstock.executor.core.activity import Activity
from penstock.executor.core.fleet import Fleet, ForeignLimits, deadlines
from penstock.executor.core.instruction import Kill, Note, Pause, Resume, Start, Terminate
from penstock.executor.core.worker import Phase


def foreign() -> Fleet:
    limits = ForeignLimits(drain_seconds=120.0, ready_seconds=20.0)
    return fleet(foreign={"mail": limits}, costly=frozenset({"mail"}), costly_starts=100)


def test_each_has_the_time_of_its_own_pool_to_end() -> None:
    played = Played(foreign())
    [name] = played.start({"mail": 1})
    [terminate] = of(Terminate, played.play(command({"mail": 0}, version=2)))
    assert terminate.worker == name
    assert list(deadlines(played.fleet)) == [played.now + 120.0]
    assert of(Kill, played.play(facts.Ticked(), after=119.0)) == []
    assert of(Kill, played.play(facts.Ticked(), after=1.0)) == [Kill(worker=name, pid=1001)]


def test_idle_ones_end_first_then_the_youngest() -> None:
    played = Played(foreign())
    names = played.start({"mail": 2})
    played.now += 10
    names += played.start({"mail": 3}, version=2)
    played.play(report(names[0], "idle"), report(names[1], "busy"), report(names[2], "busy"))
    for version, (planned, ended) in enumerate([(2, names[0]), (1, names[2])], 3):
        [terminate] = of(Terminate, played.play(command({"mail": planned}, version=version)))
        assert terminate.worker == ended


def test_one_that_is_not_ready_in_time_is_drained_and_counts_as_a_failed_start() -> None:
    played = Played(foreign())
    [start] = of(Start, played.play(command({"mail": 1})))
    played.play(facts.Forked(worker=start.worker, pid=7), report(start.worker, "starting"))
    assert of(Terminate, played.play(report(start.worker, "starting"), after=20.0)) == []
    instructions = played.play(report(start.worker, "starting"), after=0.1)
    assert of(Terminate, instructions) == [Terminate(worker=start.worker, pid=7)]
    [note] = of(Note, instructions)
    assert "no sign of 'ready' within ready_seconds = 20; its output" in note.text
    assert of(Kill, instructions) == []
    assert [each.cause for each in of(Start, instructions)] == ["respawn"]
    played.play(facts.Exited(worker=start.worker, code=0))
    assert played.fleet.troubles["mail"].failures == 1


def test_starts_that_fail_wait_longer_each_time() -> None:
    played = Played(foreign())
    played.play(command({"mail": 1}))
    loops: list[WorkerCrashLooping] = []
    for _ in range(5):
        [worker] = played.fleet.of("mail")
        played.play(facts.Forked(worker=worker.name, pid=7))
        loops += of(WorkerCrashLooping, played.play(facts.Exited(worker=worker.name, code=1)))
        played.play(facts.Ticked(), after=10.0)
    assert [loop.backoff_seconds for loop in loops] == pytest.approx([0.4, 0.8, 1.6])


def test_none_of_our_signals_reaches_them_also_when_their_pool_is_gone() -> None:
    played = Played(foreign())
    [name] = played.start({"mail": 1})
    assert of(Pause, played.play(facts.PauseRequested(paused=True))) == []
    assert of(Resume, played.play(facts.PauseRequested(paused=False))) == []
    gone = fleet().limits
    played.play(facts.LimitsChanged(limits=gone, commanded={"mail": 1}))
    assert of(Pause, played.play(facts.PauseRequested(paused=True))) == []
    played.play(command({"mail": 0}, version=9))
    assert played.fleet.workers[name].drain_deadline == played.now + 120.0


def test_an_adopted_one_keeps_its_time() -> None:
    played = Played(replace(foreign(), bus_up_since=None))  # as an executor begins
    adopted = facts.Adopted(worker="w", pool="mail", pid=7, age_seconds=900, drain_seconds=60.0)
    assert of(Resume, played.play(adopted)) == []
    assert of(Terminate, played.play(command({"mail": 0}))) == [Terminate(worker="w", pid=7)]
    assert played.fleet.workers["w"].drain_deadline == played.now + 60.0


def test_one_beyond_its_limit_drains_while_another_starts() -> None:
    played = Played(foreign())
    [name] = played.start({"mail": 1})
    instructions = played.play(facts.LimitReached(worker=name, detail="used 3 GiB"))
    assert of(Terminate, instructions) == [Terminate(worker=name, pid=1001)]
    assert of(Kill, instructions) == []
    assert [each.cause for each in of(Start, instructions)] == ["respawn"]
    assert played.play(facts.LimitReached(worker=name, detail="used 3 GiB")) == []
    assert played.phases()[name] is Phase.DRAINING
    [stopped] = of(WorkerStopped, played.play(facts.Exited(worker=name, code=0)))
    assert stopped.cause == "limit"


def test_a_reload_replaces_them() -> None:
    played = Played(foreign())
    [name] = played.start({"mail": 1})
    played.play(facts.CodeReloaded(pools=frozenset({"mail"})))
    assert played.fleet.workers[name].outdated


def test_what_uses_its_processor_is_busy_and_for_a_moment_after() -> None:
    activity = Activity()
    activity.see(5.0, 100.0)
    assert not activity.is_busy(100.0), "what it used before is not known"
    activity.see(5.01, 101.0)
    assert not activity.is_busy(101.0), "it looks after its connection"
    activity.see(5.2, 102.0)
    activity.see(5.2, 104.0)
    assert activity.is_busy(104.0)
    activity.see(5.2, 106.0)
    assert not activity.is_busy(106.0)
