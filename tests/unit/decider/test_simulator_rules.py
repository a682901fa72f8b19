"""The rules of others, each by its own definition."""

from __future__ import annotations

import pytest
from tests.unit.decider.simulating import poisson, scene

from penstock.decider.simulator.studies import contenders
from penstock.decider.simulator.studies.contenders import UnknownContender
from penstock.decider.simulator.studies.rules import (
    BacklogPerInstance,
    CatchUp,
    Doubling,
    PoolView,
    QueueLength,
    TimeToClear,
    Utilisation,
)


def sight(
    now: float = 0.0,
    waiting: int = 0,
    running: int = 0,
    planned: int = 0,
    rate: float = 0.0,
    idle: int = 0,
) -> PoolView:
    """Jobs of 2 s."""
    return PoolView(
        now=now,
        waiting=waiting,
        running=running,
        planned=planned,
        job_seconds=lambda: 2.0,
        arrival_per_second=lambda: rate,
        idle_since=lambda moment: idle,
    )


def test_queue_length_counts_what_is_not_acknowledged_too() -> None:
    assert QueueLength(5).workers(sight(waiting=8, running=4)) == pytest.approx(2.4)


def test_utilisation_is_left_alone_within_a_tenth_of_its_target() -> None:
    def asked(running: int) -> float:
        return Utilisation(0.7).workers(sight(running=running, planned=10))

    assert (asked(7), asked(9), asked(0)) == (10, pytest.approx(9 / 0.7), 1)


def test_utilisation_is_a_mean_over_a_quarter_of_a_minute() -> None:
    rule = Utilisation(0.5)
    rule.workers(sight(now=0, running=10, planned=10))
    assert rule.workers(sight(now=10, running=0, planned=10)) == 10
    assert rule.workers(sight(now=20, running=0, planned=10)) == 1


def test_backlog_per_instance() -> None:
    rule = BacklogPerInstance(sla_seconds=10)
    assert rule.workers(sight(waiting=50)) == 10
    assert rule.workers(sight()) == 1


def test_catch_up_stays_within_its_boundaries() -> None:
    rule = CatchUp(catch_up_seconds=10)
    load = sight(rate=3, waiting=5, planned=9)  # (3 + 0.5) * 2 s = 7 workers' work
    assert rule.workers(load) == 9
    assert rule.workers(sight(rate=3, waiting=5, planned=6)) == pytest.approx(10)
    assert rule.workers(sight(rate=3, waiting=5, planned=18)) == pytest.approx(10)


def test_time_to_clear_goes_up_and_down_by_one_each_three_seconds() -> None:
    rule = TimeToClear(least=0, most=50)
    asked = [(0, 4, 2), (1, 4, 3), (3, 4, 3), (6, 0, 4), (9, 0, 3)]
    found = [rule.workers(sight(now=n, waiting=w, planned=p)) for n, w, p in asked]
    assert found == [3, 3, 4, 3, 2]


def test_doubling_while_a_backlog_lasts() -> None:
    rule, planned, story = Doubling(), 0, []
    for second in range(6):
        planned = rule.workers(sight(now=second, waiting=12, planned=planned))
        story.append(planned)
    assert story == [0, 1, 3, 7, 12, 12]
    assert rule.workers(sight(now=99, planned=12, idle=4)) == 8


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hybird", "did you mean 'hybrid'"),
        ("keda:x", "expected keda:NUMBER"),
        ("keda:0", "expected keda:NUMBER, above 0"),
        ("deadline:-1", "expected deadline:NUMBER, 0 or more"),
        ("spark:3", "spark takes no figure"),
    ],
)
def test_an_unknown_name_is_refused(name, said) -> None:
    with pytest.raises(UnknownContender, match=said):
        contenders.check(name, {"hybrid": None})


def test_a_figure_behind_a_strategy_is_its_setting() -> None:
    jobs = poisson(0.5, 300)
    quick, calm = (
        contenders.run(name, given_scene)
        for given_scene in (scene(jobs, sla_seconds=10.0),)
        for name in ("deadline:0", "deadline:100")
    )
    assert calm.actions < quick.actions
    assert calm.worker_seconds > quick.worker_seconds


def test_every_baseline_of_the_leaderboard_can_be_made(jobs_scene=None) -> None:
    given_scene = scene(poisson(1.0, 60))
    for name in contenders.BASELINES:
        run = contenders.run(name, given_scene)
        assert run.unstarted == 0, name
