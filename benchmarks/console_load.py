"""Lives of jobs, drawn from a seed, as the platform's own events: what the console is measured on.

Of 1,000 jobs 935 complete, 15 of them after a retry; 20 die of one of 40 errors, 10 are cancelled,
10 are retried later, 15 run and 10 wait. Fifty functions lie in twenty queues, a third of the jobs
have a tag, one in fifty belongs to a batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

import msgspec

from penstock.console.core.log_entry import LogEntry
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobFailed,
    JobRetrying,
    JobStarted,
)
from penstock.jobs.payloads.call_digest import call_digest

QUEUES = tuple(f"queue-{number:02}" for number in range(20))
FUNCTIONS = tuple(f"shop.part_{number % 7}.function_{number:02}" for number in range(50))
TAGS = tuple(f"tag-{number:03}" for number in range(200))
HOSTS = tuple(f"host-{number:02}" for number in range(12))
RARE_TAG = "rare-tag"
"""Of one job in 100,000: what a search has to look far for."""
_AT_ONCE = 500
"""Jobs whose events lie between one another's, as of so many slots."""
_SPREAD_SECONDS = 20 * 3_600.0
"""The console keeps completed jobs for a day."""
_KINDS = ("builtins.TimeoutError", "builtins.KeyError", "shop.errors.OutOfStock", "OSError")


def lives(jobs: int, seed: int = 1) -> Iterator[JobEvent]:
    """The events of so many jobs, interleaved, spread over the last 20 hours."""
    chance = random.Random(seed)
    begin, step = _begin(), timedelta(seconds=_SPREAD_SECONDS / jobs)
    for start in range(0, jobs, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, jobs))
        together = [_life(chance, seed, number, begin + number * step) for number in numbers]
        for events in zip_longest(*together):
            yield from (event for event in events if event is not None)


def carried(jobs: int, seed: int = 1) -> Iterator[JobEvent]:
    """So many jobs by one event each: the one that takes the place of those that left the log."""
    chance = random.Random(seed)
    begin, step = _begin(), timedelta(seconds=_SPREAD_SECONDS / jobs)
    for number in range(jobs):
        yield _carried(_life(chance, seed, number, begin + number * step))


def waiting(jobs: int, seed: int = 3) -> Iterator[JobEvent]:
    """So many jobs that wait in one queue, as :func:`carried`."""
    chance = random.Random(seed)
    begin, step = _begin(), timedelta(seconds=_SPREAD_SECONDS / jobs)
    for number in range(jobs):
        event = _carried(_life(chance, seed, number, begin + number * step)[:1])
        yield msgspec.structs.replace(event, queue=QUEUES[0])


def in_batches(events: Iterator[JobEvent], size: int = 2_000) -> Iterator[list[LogEntry]]:
    """The events as they are folded, numbered from 1."""
    batch: list[LogEntry] = []
    for sequence, event in enumerate(events, 1):
        batch.append(LogEntry(sequence, event.noun, event.job_id, event))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _begin() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=_SPREAD_SECONDS)


def _life(chance: random.Random, seed: int, number: int, at: datetime) -> Sequence[JobEvent]:
    function = chance.choice(FUNCTIONS)
    queue = QUEUES[hash_of(function)]
    job_id = f"{int(at.timestamp() * 1000):012x}-{chance.getrandbits(64):016x}"
    if chance.random() < 0.02:
        job_id = f"batch-{number // 5_000}_{seed:08x}_{number}"
    payload = msgspec.msgpack.encode({"f": function, "a": {"table": "orders", "number": number}})
    dispatched = JobDispatched(
        job_id=job_id, at=at, source="client/shop", queue=queue, function=function,
        payload=payload, tags=_tags(chance), tries=3,
    )  # fmt: skip
    kind = chance.random()
    if kind < 0.01:
        return (dispatched,)
    started = _started(dispatched, chance, 1, at + timedelta(seconds=chance.uniform(0.01, 2.0)))
    if kind < 0.025:
        return dispatched, started
    if kind < 0.035:
        return dispatched, JobCancelled(job_id=job_id, at=at, reason="not needed any more")
    if kind < 0.065:
        failed, retrying = _failed(started, chance)
        if kind < 0.045:
            return dispatched, started, failed, retrying
        if kind < 0.060:
            again = _started(dispatched, chance, 2, retrying.due_at)
            return dispatched, started, failed, retrying, again, _completed(again, chance)
    if kind < 0.080:
        failed, _ = _failed(started, chance)
        dead = JobDead(
            job_id=job_id, at=failed.at, source=started.source, queue=queue, error=failed.error,
            function=function, attempt=1,
        )  # fmt: skip
        return dispatched, started, failed, dead
    return dispatched, started, _completed(started, chance)


def hash_of(function: str) -> int:
    """Number of the queue that a function's jobs lie in."""
    return FUNCTIONS.index(function) % len(QUEUES)


def _tags(chance: random.Random) -> tuple[str, ...]:
    if chance.random() < 1e-5:
        return (RARE_TAG,)
    return (chance.choice(TAGS),) if chance.random() < 0.33 else ()


def _started(
    dispatched: JobDispatched, chance: random.Random, attempt: int, at: datetime
) -> JobStarted:
    host = chance.choice(HOSTS)
    return JobStarted(
        job_id=dispatched.job_id, at=at, source=f"worker/{host}.7f3c", queue=dispatched.queue,
        attempt=attempt, host=host, worker=f"{host}-reports-{chance.randrange(8)}",
        message=chance.getrandbits(24), pickup_seconds=(at - dispatched.at).total_seconds(),
        function=dispatched.function, call=call_digest(dispatched.payload),
    )  # fmt: skip


def _completed(started: JobStarted, chance: random.Random) -> JobCompleted:
    seconds = round(chance.expovariate(1.0), 6)
    return JobCompleted(
        job_id=started.job_id, at=started.at + timedelta(seconds=seconds), source=started.source,
        queue=started.queue, attempt=started.attempt, run_seconds=seconds, result=b"\xcd\x04\xd2",
        cpu_seconds=round(seconds / 3, 6), function=started.function,
    )  # fmt: skip


def _failed(started: JobStarted, chance: random.Random) -> tuple[JobFailed, JobRetrying]:
    number = min(int(chance.expovariate(0.2)), 39)
    frame = (
        f'  File "/srv/shop/part_{number}.py", line {chance.randrange(400)}, in function_{number}'
    )
    error = JobError(
        kind=_KINDS[number % len(_KINDS)],
        message=f"order {chance.getrandbits(32)} of kind {'abcdefghij'[number % 10]} timed out",
        traceback=f"Traceback (most recent call last):\n{frame}\n    load(order)\n",
    )
    at = started.at + timedelta(seconds=chance.expovariate(1.0))
    failed = JobFailed(
        job_id=started.job_id, at=at, source=started.source, queue=started.queue,
        attempt=started.attempt, error=error, function=started.function,
    )  # fmt: skip
    retrying = JobRetrying(
        job_id=started.job_id, at=at, source=started.source, attempt=started.attempt + 1,
        due_at=at + timedelta(seconds=10), function=started.function,
    )  # fmt: skip
    return failed, retrying


_STATES = {
    JobDispatched: "waiting",
    JobStarted: "running",
    JobCancelled: "cancelled",
    JobRetrying: "retrying",
    JobDead: "dead",
    JobCompleted: "completed",
}


def _carried(life: Sequence[JobEvent]) -> JobCarried:
    dispatched, last = life[0], life[-1]
    assert isinstance(dispatched, JobDispatched)
    started = next((event for event in life[::-1] if isinstance(event, JobStarted)), None)
    failed = next((event for event in life[::-1] if isinstance(event, JobFailed)), None)
    has_ended = isinstance(last, JobCompleted | JobDead | JobCancelled)
    completed = last if isinstance(last, JobCompleted) else None
    return JobCarried(
        job_id=dispatched.job_id, at=last.at, source="orchestrator/a", queue=dispatched.queue,
        function=dispatched.function, payload=dispatched.payload, state=_STATES[type(last)],
        dispatched_at=dispatched.at, available_at=dispatched.at, changed_by=1, life_from=1,
        tags=dispatched.tags, tries=dispatched.tries,
        attempt=started.attempt if started else 0,
        started_at=started.at if started else None,
        finished_at=last.at if has_ended else None,
        host=started.host if started else "", worker=started.worker if started else "",
        error=failed.error if failed and not completed else None,
        run_seconds=completed.run_seconds if completed else None,
    )  # fmt: skip
