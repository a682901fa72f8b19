"""Jobs by state at any event are those of a fold from zero, from what is kept and what followed."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.protocol import Outgoing
from penstock.console.core import tables
from penstock.console.core.count_points import KEPT_SECONDS
from penstock.console.core.job_rows import JobRow, counted
from penstock.console.past import job_counts
from penstock.console.past.job_counts import JobCounts, counts_at, kept_counts
from penstock.console.read_models.log_batches import entry
from penstock.console.read_models.store import Store
from penstock.events.envelope import Event, encode
from penstock.events.job import JobCompleted, JobDispatched, JobReleased, JobStarted
from penstock.events.subjects import Subjects
from penstock.testing.memory.bus import MemoryBus

BEGIN = 1_800_000_000.0
SUBJECTS = Subjects()


class Installation:
    """Jobs at random, their events in a bus whose clock the test moves, and their rows."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.clock = BEGIN
        self.bus = MemoryBus(now=lambda: self.clock)
        self.store = Store(folder)
        self.random = random.Random(seed)
        self.attempts = Counter[str]()

    def event(self) -> Event:
        job_id = f"j{self.random.randrange(40)}"
        if job_id not in self.attempts:  # compare-and-set sees to it that nothing is before it
            self.attempts[job_id] = 0
            queue = self.random.choice(("mail", "reports"))
            return JobDispatched(job_id=job_id, queue=queue, function="f", payload=b"")
        about: dict[str, Any] = {"job_id": job_id, "queue": self.random.choice(("mail", "reports"))}
        kind = self.random.choice(("start", "start", "release", "complete"))
        if kind == "start":
            self.attempts[job_id] += 1
            return JobStarted(**about, attempt=self.attempts[job_id], host="h", worker="w")
        attempt = self.attempts[job_id]
        if kind == "release":
            return JobReleased(job_id=job_id, reason="drain")
        return JobCompleted(**about, attempt=attempt, run_seconds=1.0)

    async def live(self, batches: int) -> None:
        """Stores and folds so many batches, up to two seconds apart."""
        for _ in range(batches):
            self.clock += self.random.uniform(0.0, 2.0)
            for _ in range(self.random.randrange(1, 9)):
                event = self.event()
                await self.bus.append(Outgoing(SUBJECTS.event(event), encode(event)))
            self.fold()

    def fold(self) -> None:
        stored = self.bus.stored(SUBJECTS.events_stream, SUBJECTS.events())
        self.store.apply([entry(one) for one in stored if one.sequence > self.store.position])

    async def at(self, position: int) -> JobCounts:
        with self.store.reading() as rows:
            kept = kept_counts(rows, position)
        return await counts_at(self.bus, SUBJECTS, kept, position, datetime.now(UTC))

    def folded(self, position: int) -> dict[tuple[str, str], int]:
        """The same from the first event on."""
        rows: dict[str, JobRow] = {}
        for one in self.bus.stored(SUBJECTS.events_stream, SUBJECTS.events()):
            logged = entry(one)
            row = tables.JOBS.advance(rows.get(logged.key), logged)
            if one.sequence <= position and row is not None:
                rows[logged.key] = row
        return dict(Counter(counted(row) for row in rows.values()))


@pytest.mark.parametrize("seed", range(5))
async def test_counts_at_each_event_are_those_of_a_fold_from_zero(
    tmp_path: Path, seed: int
) -> None:
    jobs = Installation(tmp_path, seed)
    await jobs.live(40)
    for position in range(1, jobs.store.position + 1):
        then = await jobs.at(position)
        assert (dict(then.counts), then.is_exact) == (jobs.folded(position), True)


async def test_with_too_many_events_the_counts_are_those_that_were_kept_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Installation(tmp_path, 1)
    await jobs.live(30)
    with jobs.store.reading() as rows:
        point = rows.count_point(jobs.store.position - 1)
    assert point is not None
    monkeypatch.setattr(job_counts, "MOST_EVENTS", 0)
    then = await jobs.at(jobs.store.position - 1)
    is_exact = point.position == jobs.store.position - 1
    assert then == JobCounts(point.counts, then.until if is_exact else point.at, is_exact)
    assert then.counts == jobs.folded(point.position)


async def test_points_are_thinned_as_they_age(tmp_path: Path) -> None:
    jobs = Installation(tmp_path, 2)
    await jobs.live(200)

    def points(now: float) -> list[int]:
        jobs.store.trim(round(now * 1e6))
        with jobs.store.reading() as rows:
            return [step for (step,) in rows.all("SELECT step FROM count_points ORDER BY 1")]

    assert set(points(jobs.clock)) == {1, 10, 60}
    assert set(points(jobs.clock + KEPT_SECONDS[1] + 1)) == {10, 60}
    assert set(points(jobs.clock + KEPT_SECONDS[10] + 1)) == {60}
    assert points(jobs.clock + KEPT_SECONDS[60] + 1) == []
