"""What the simulated pool's snapshots say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.decider.simulating import Steps, load, simulation

from penstock.config import Profile
from penstock.decider.simulator.model.looks import Looks, Pace
from penstock.decider.simulator.model.meter import RollingRate
from penstock.decider.simulator.model.samples import Samples
from penstock.decider.simulator.model.spawning import Spawning
from penstock.events.snapshot import PoolSnapshot


def snapshots(jobs, *steps, **more) -> list[tuple[float, PoolSnapshot]]:
    found = []

    class Looking(Steps):
        def plan(self, look):
            found.append((look.now, look.meter.snapshot(look.now, look.wakeup)))
            return super().plan(look)

    simulation(jobs, Looking(*steps), **more).run()
    return found


def test_a_snapshot_is_what_was_so() -> None:
    jobs = load(*[(second / 2, 4.0) for second in range(20)])
    found = dict(snapshots(jobs, (0, 3)))
    seen = next(seen for at, seen in found.items() if at >= 8)
    assert (seen.workers_ready, seen.workers_idle, seen.running) == (3, 0, 3)
    assert seen.waiting == pytest.approx(16 - 6, abs=1)
    assert seen.oldest_waiting_seconds == pytest.approx(8 - 3, abs=1)
    assert seen.arrival_per_second == pytest.approx(2, abs=0.3)
    assert seen.spawn.mean_seconds == pytest.approx(1.0)
    assert seen.service.mean_seconds == pytest.approx(4.0)
    assert seen.service.cv2 == pytest.approx(0, abs=1e-9) or seen.service.count == 1


def test_before_anything_happened_nothing_is_known() -> None:
    _, first = snapshots(load((5.0, 1.0)), (0, 1))[0]
    known = (first.arrival_per_second, first.service, first.pickup, first.spawn)
    assert known == (None, None, None, None)
    assert first.worker_age_seconds is None


def test_running_jobs_count_as_at_least_this_long() -> None:
    found = snapshots(load((0.0, 30.0)), (0, 1))
    seen = next(seen for at, seen in found if at >= 11)
    assert seen.service.mean_seconds == pytest.approx(10, abs=1.1)


@given(some.lists(some.tuples(some.floats(0, 5), some.floats(0, 40)), min_size=1, max_size=60))
def test_samples_are_those_of_the_window_a_sixth_coarse(steps) -> None:
    samples, now, added = Samples(60), 0.0, []
    for seconds, later in steps:
        now += later
        samples.add(seconds, now)
        added.append((seconds, now))
    known = samples.quantiles(now)
    sure = [seconds for seconds, at in added if at > now - 60]
    possible = [seconds for seconds, at in added if at > now - 70]
    assert len(sure) <= known.count <= len(possible)
    assert min(possible) <= known.p50_seconds <= known.p95_seconds <= known.p99_seconds
    assert samples.quantiles(now + 1000) is None


def test_the_last_samples_stay_known_where_asked_for() -> None:
    samples = Samples(60, keeps=2)
    samples.add(3.0, 0.0)
    assert samples.quantiles(1.0).count == 1
    assert samples.quantiles(1000.0).mean_seconds == 3.0
    samples.add(5.0, 1000.0)
    assert samples.quantiles(2000.0).mean_seconds == 4.0


def test_a_rolling_rate() -> None:
    rate = RollingRate(10)
    assert rate.per_second() is None
    for second in range(20):
        rate.add(second, second + 1, 0 if second < 10 else 3)
    assert rate.per_second() == 3


def test_looks_come_sooner_while_a_backlog_grows() -> None:
    looks, told, now = Looks(), [], 0.0
    for _ in range(12):
        now = looks.next_at
        waiting = 0 if now < 1 else int(now * 10)
        if reason := looks.take(waiting, 2, waiting == 0, now):
            told.append((round(now, 2), reason))
    assert told[:5] == [
        (0.0, "tick"),
        (1.0, "backlog"),
        (1.2, "backlog"),
        (1.4, "backlog"),
        (1.6, "backlog"),
    ]


def test_the_budget_counts_jobs_started_late_and_those_that_wait_late() -> None:
    jobs = load(*[(0.0, 8.0)] * 10)
    found = snapshots(jobs, (0, 5), profile=Profile(sla_seconds=3.0, quantile=0.9))
    waiting = [seen.budget for at, seen in found if 4 < at < 8]
    assert {(b.jobs, b.late, b.waiting_late) for b in waiting} == {(5, 0, 5)}
    assert waiting[0].remaining_share == pytest.approx(1 - 5)
    last = found[-1][1].budget
    assert (last.jobs, last.late, last.waiting_late) == (10, 5, 0)


def test_spawns_are_told_with_how_many_were_starting() -> None:
    jobs = load(*[(second, 0.1) for second in range(20)])
    found = snapshots(jobs, (0, 8), spawning=Spawning(seconds=1.0, contention=0.1, cv=0.0))
    fit = found[-1][1].spawn_fit
    assert fit.most_together == 8


def test_a_pool_at_rest_is_looked_at_ever_more_seldom_and_at_once_when_a_job_comes() -> None:
    looks = Looks(Pace(interval_seconds=2.0, quiet_seconds=10.0))
    told = []
    while looks.next_at < 60.0:
        told.append(looks.next_at)
        looks.take(0, 0, True, looks.next_at, at_rest=True)
    assert told[1] == pytest.approx(3.0)
    assert told[-1] - told[-2] == pytest.approx(10.0)
    looks.arrived(50.0)
    assert looks.next_at < 51.0
    looks.take(0, 1, True, 60.0, at_rest=False)
    assert looks.next_at == pytest.approx(62.0)
