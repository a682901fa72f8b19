"""Jobs count at the Spark pool that their sessions are on, before anything of theirs is there."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Pool, Profile
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import Claim, WorkerReport
from penstock.metrics.core.ahead import OPENING_SECONDS, Ahead, jobs_to_come
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Look, Queue
from penstock.metrics.core.tasks import AppTasks, TaskLine, TaskMeter, Waiting

SECONDS = st.lists(st.floats(0, 60), max_size=6)


@given(st.integers(0, 20), st.integers(0, 20), SECONDS, SECONDS, st.integers(0, 5))
def test_no_job_counts_twice_and_none_beyond_those_that_can_run(
    waiting: int, places: int, running: list[float], apps: list[float], at_work: int
) -> None:
    existing = waiting + len(running) + at_work
    found = jobs_to_come(existing, places, running, apps, at_work)
    assert 0 <= found <= min(existing - at_work, places)
    opening = sum(seconds < OPENING_SECONDS for seconds in running)
    assert found <= waiting + opening
    assert found >= min(waiting + opening, places - len(running) - at_work) - len(apps)

    assert found <= jobs_to_come(existing + 1, places + 1, running, apps, at_work) <= found + 1
    assert jobs_to_come(existing, places, running, [*apps, 0.0], at_work) <= found
    assert jobs_to_come(existing, places, [s + 1 for s in running], apps, at_work) <= found


class Site:
    """A pool of jobs that brings two tasks a job to a Spark pool with four slots a Worker."""

    def __init__(self, places: int = 10) -> None:
        self.queue = Queue("nightly")
        self.jobs = PoolMeter("nightly", [self.queue], Profile())
        self.line = TaskLine("etl", slots=4, sla_seconds=5)
        pool = Pool(
            name="etl", kind="spark", queues=(), profile=Profile(), slots=4, slots_per_job=2
        )
        self.meter = TaskMeter(pool, self.line, window_seconds=60, interval=1)
        self.meter.served = [Ahead(self.jobs, places)]

    def jobs_are(self, now: float, waiting: int, **running_seconds: float) -> None:
        claimed = len(running_seconds)
        self.queue.see(
            Look(at=now, waiting=waiting, claimed=claimed, delivered=9, delivered_sequence=9)
        )
        claims = tuple(
            Claim(job_id=job, ack_subject="", running_seconds=seconds)
            for job, seconds in running_seconds.items()
        )
        report = WorkerReport(
            worker="w", host="h", pool="nightly", pid=1, state="busy", number=int(now * 10) + 1,
            at=now, started_at=0.0, claims=claims,
        )  # fmt: skip
        self.jobs.add_report(report, now)
        self.jobs.observe(now)

    def snapshot(self, now: float, *apps: AppTasks) -> PoolSnapshot:
        """The Spark pool's; the wall clock is a hundred seconds ahead."""
        self.line.see(apps, now, 100 + now)
        self.meter.observe(now)
        self.meter.expect(now, 100 + now)
        at = datetime.fromtimestamp(100 + now, UTC)
        found = self.meter.snapshot(now, at, {"id": "1", "source": "m"}, "tick")
        assert found
        return found


def app(waiting: int = 0, running: int = 0, *, at: float = 0.0, jobs: str = "") -> AppTasks:
    return AppTasks(
        app_id="a", waiting=(Waiting(waiting, 100 + at),) if waiting else (), running=running,
        began_at=100 + at, jobs=frozenset(jobs.split()),
    )  # fmt: skip


def test_jobs_count_from_their_dispatch_until_their_tasks_do() -> None:
    site = Site()
    site.jobs_are(0, waiting=0)
    assert site.snapshot(0).waiting == 0

    site.jobs_are(1, waiting=3)
    told = site.snapshot(1)
    assert (told.waiting, told.expected, told.oldest_waiting_seconds) == (2, 2, 0.0)
    assert site.meter.waiting(1) == 2

    site.jobs_are(2, waiting=2, one=0.5)
    assert site.snapshot(2).expected == 2  # it opens its session
    site.jobs_are(5, waiting=2, one=3.5)
    assert site.snapshot(5, app(at=4)).expected == 2  # it has one, and no task yet
    told = site.snapshot(6, app(8, at=4))
    assert (told.waiting, told.expected) == (2 + 1, 1)
    assert told.arrival_per_second is not None  # the real ones arrived, those to come have not
    site.jobs_are(8, waiting=0, one=6.5)
    assert site.snapshot(8, app(0, 8, at=4)).expected == 0


def test_a_job_in_a_session_that_others_share_counts_until_the_session_names_it() -> None:
    site = Site()
    site.jobs_are(20, waiting=0, one=1.0, two=1.0, three=2.0)
    shared = app(4, 4, at=0, jobs="one another")
    assert site.snapshot(20, shared).expected == 1
    site.jobs_are(21, waiting=0, one=2.0, two=2.0, three=3.0)
    assert site.snapshot(21, app(4, 4, at=0, jobs="two")).expected == 1  # one's is not forgotten
    assert site.snapshot(22, app(4, 4, at=0, jobs="three")).expected == 0


def test_a_job_that_never_asks_for_spark_and_one_that_cannot_run_now_do_not_count() -> None:
    site = Site(places=2)
    site.jobs_are(0, waiting=500)
    assert site.snapshot(0).expected == 1
    site.jobs_are(20, waiting=500, one=OPENING_SECONDS, two=OPENING_SECONDS + 1)
    assert site.snapshot(20).expected == 0
