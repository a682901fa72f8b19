"""Workflows that no code at hand can go on with, for the report on health."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from penstock.bus import bounded, lookback
from penstock.bus.protocol import Bus, BusError, broker_time
from penstock.bus.since import first_since
from penstock.config import Settings
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.events.workflow import WorkflowBlocked
from penstock.health.facts import BlockedFacts, Facts
from penstock.jobs.event_store.dispatched import dispatched
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.workflows.coded.blocking import MOST_SECONDS

ROLLOUT_SECONDS = 60.0
"""Those that are blocked for less are not reported: in a rolling deployment other workers may have
their code."""
_SLACK = timedelta(seconds=120)
"""A blocked workflow that is offered again is recorded as such again, so much later at most."""
_MOST_CHARACTERS = 200
_MOST_EVENTS, _MOST_LOOKED_AT, _AT_ONCE = 10_000, 200, 50


async def with_blocked(facts: Facts, bus: Bus, settings: Settings) -> Facts:
    """The facts with the functions whose workflows are blocked."""
    if facts.broker.error:
        return facts
    try:
        return replace(facts, blocked=await blocked_workflows(bus, settings))
    except BusError:
        return facts


async def blocked_workflows(bus: Bus, settings: Settings) -> tuple[BlockedFacts, ...]:
    """Functions with workflows that are blocked for a minute and longer, the most first.

    Raises:
        BusError
    """
    subjects, now = Subjects(settings.prefix), broker_time(bus)
    recorded = await _recorded(bus, subjects, now)
    dispatched_ids = await dispatched(bus, subjects, list(recorded))
    blocked = {job_id: recorded[job_id] for job_id in dispatched_ids}
    ids = dispatched_ids[:_MOST_LOOKED_AT]

    async def goes_on(job_id: str) -> bool:
        last = await bus.last(subjects.events_stream, subjects.job(job_id))
        return last is None or last.subject.rpartition(".")[2] != WorkflowBlocked.__name__

    for job_id, does in zip(ids, await bounded.gather(goes_on, ids, _AT_ONCE), strict=True):
        if does:
            del blocked[job_id]
    by_function: dict[str, list[datetime]] = {}
    for event in blocked.values():
        by_function.setdefault(event.function[:_MOST_CHARACTERS], []).append(
            event.since or event.at
        )
    facts = [
        BlockedFacts(function=function, workflows=len(times), since=min(times).timestamp())
        for function, times in by_function.items()
    ]
    return tuple(sorted(facts, key=lambda one: -one.workflows))


async def _recorded(bus: Bus, subjects: Subjects, now: datetime) -> dict[str, WorkflowBlocked]:
    """The last such event of each that may still be blocked."""
    stream = subjects.events_stream
    pattern = subjects.events("job", "*", WorkflowBlocked.__name__)
    last = await bus.last(stream, pattern)
    start = await first_since(bus, stream, pattern, now - timedelta(seconds=MOST_SECONDS) - _SLACK)
    if last is None or start > last.sequence:
        return {}
    blocked: dict[str, WorkflowBlocked] = {}
    async for stored in lookback.between(bus, stream, pattern, start, last.sequence):
        event = read_event(stored, JOB_EVENTS)
        if not isinstance(event, WorkflowBlocked):
            continue
        blocked.pop(event.job_id, None)
        since = event.since or event.at
        is_lasting = (event.due_at - since).total_seconds() >= ROLLOUT_SECONDS
        if is_lasting and event.due_at + _SLACK > now:
            blocked[event.job_id] = event
        if len(blocked) >= _MOST_EVENTS:
            break
    return blocked
