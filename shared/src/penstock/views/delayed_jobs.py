"""Jobs that are to start later: scheduled ones, and those that wait for their next try.

The broker keeps a schedule for each of them, but not only for them: a suspended workflow has one
for its next timer, and one that went on or ended before its timer may leave it until it fires.
"""

from __future__ import annotations

from collections import Counter

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State

MOST_READ = 2_000
"""Schedules whose jobs are looked up; of more of them, all count."""
_AT_ONCE = 50
_SURELY_DELAYED = frozenset({"JobDispatched", "JobRetrying"})
_DELAYED = frozenset({State.SCHEDULED, State.RETRYING, State.WAITING})
"""A waiting job has a schedule where no worker had the key or the code for it."""


async def delayed_jobs(bus: Bus, subjects: Subjects) -> Counter[str]:
    """How many jobs of each queue start later."""
    schedules = await bus.count(subjects.jobs_stream, subjects.schedule("*", "*"))
    keys = [_key(subject) for subject, number in schedules.items() if number]
    if len(keys) > MOST_READ:
        return Counter(queue for queue, _ in keys)
    log = JobLog(bus, subjects)

    async def is_delayed(key: tuple[str, str]) -> bool:
        _, job_id = key
        last = await bus.last(subjects.events_stream, subjects.job(job_id))
        if last is not None and last.subject.rpartition(".")[2] in _SURELY_DELAYED:
            return True
        record = await log.read(job_id)
        return record is not None and record.state in _DELAYED

    answers = await bounded.gather(is_delayed, keys, _AT_ONCE)
    return Counter(queue for (queue, _), counts in zip(keys, answers, strict=True) if counts)


def _key(subject: str) -> tuple[str, str]:
    """Queue and job of a schedule."""
    _, queue, job_id = subject.rsplit(".", 2)
    return queue, job_id
