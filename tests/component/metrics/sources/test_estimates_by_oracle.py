"""What is estimated of a Celery queue in Redis, against an oracle that knows each message.

Messages are put and taken by Kombu on a real server; the seconds between two looks are simulated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.component.metrics.sources.test_redis import CeleryQueue
from tests.redis_server import redis_server
from tests.unit.decider.given import one_round

from penstock.config import Pool
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import WorkerReport
from penstock.metrics.core.sources.meter import SourceMeter

WORKERS = 4
SECONDS = 60


@pytest.fixture
def celery(tmp_path) -> Iterator[CeleryQueue]:
    with redis_server(tmp_path) as server:
        yield CeleryQueue(server)


def mail_pool() -> Pool:
    mail = {"source": "shop", "command": ["true"], "runtime_seconds": 1.0, "sla_seconds": 5}
    tree = {"sources": {"shop": {"kind": "celery"}}, "pools": {"mail": mail}}
    [pool] = pools(check(tree)).values()
    return pool


def report_workers(meter: SourceMeter, busy: int, second: int) -> None:
    for nth in range(WORKERS):
        report = WorkerReport(
            worker=f"w{nth}", host="a", pool="mail", pid=nth, started_at=0.0, number=second,
            at=float(second), state="busy" if nth < busy else "idle",
        )  # fmt: skip
        meter.add_report(report, float(second))


async def watched(celery: CeleryQueue, arrivals: list[int]) -> tuple[list[PoolSnapshot], list]:
    """A snapshot a second, and beside each what is true: (waiting, age of the oldest)."""
    measured, source = SourceMeter(mail_pool(), 60.0, 1.0), celery.open()
    line: list[float] = []
    snapshots, truth = [], []
    for second, come in enumerate(arrivals, start=1):
        await celery.end(len(celery.taken))
        await celery.put(come)
        line += [second - 1 + (nth + 0.5) / come for nth in range(come)]
        taken = min(WORKERS, len(line))
        await celery.take(taken)
        line = line[taken:]
        report_workers(measured, taken, second)
        now, wall_now = float(second), 1_000_000.0 + second
        measured.see_source(await source.look(["mail"]), now, wall_now)
        measured.observe(now)
        at = datetime.fromtimestamp(wall_now, UTC)
        snapshot = measured.snapshot(now, at, {"id": "1", "source": "test"}, "tick")
        assert snapshot is not None
        snapshots.append(snapshot)
        truth.append((len(line), now - line[0] if line else 0.0))
    await source.close()
    return snapshots, truth


async def test_depth_is_exact_and_age_is_right_within_a_second_or_a_tenth(celery) -> None:
    chance = random.Random(16)
    arrivals = [
        chance.choice((5, 8, 12)) if 10 < second < 20 else chance.choice((0, 2, 3, 4))
        for second in range(SECONDS)
    ]
    snapshots, truth = await watched(celery, arrivals)
    assert max(age for _, age in truth) > 5  # there was a line worth its name
    for snapshot, (waiting, age) in zip(snapshots, truth, strict=True):
        assert snapshot.waiting == waiting
        assert snapshot.oldest_waiting_seconds == pytest.approx(age, abs=1.0, rel=0.1)
    assert "oldest_waiting_seconds" in snapshots[20].estimated


async def test_arrivals_and_run_time_follow_from_what_is_seen_in_work(celery) -> None:
    snapshots, _ = await watched(celery, [0] + [3] * SECONDS)
    last = snapshots[-1]
    assert last.arrival_per_second == pytest.approx(3.0, rel=0.05)
    assert last.service is not None
    assert last.service.mean_seconds == pytest.approx(1.0, rel=0.1)
    assert {"arrival_per_second", "service"} <= set(last.estimated)


async def test_the_decider_starts_workers_for_a_line_by_the_pools_own_strategy(celery) -> None:
    calm, _ = await watched(celery, [0, 1, 0, 1, 0, 0])
    burst, _ = await watched(celery, [0, 1, 0, 1, 0, 60])
    [few, many] = (
        one_round(mail_pool(), snapshots[-1]).decisions[0].target for snapshots in (calm, burst)
    )
    assert many > few
    assert many == mail_pool().profile.max_workers
