"""Queues: how many jobs each holds, as the event log adds up, and which are paused."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.config import Settings
from penstock.config.serving import serving
from penstock.console.core import tables
from penstock.console.core.log_entry import micros
from penstock.console.core.queue_rows import QueueStateRow
from penstock.console.core.times import instant
from penstock.console.past.past import Past
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import utc_now

WAITING, RUNNING, LATER = ("waiting",), ("running",), ("scheduled", "retrying")


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """One queue.

    Attributes:
        pool: that serves it; empty where none does: its jobs wait for ever.
        delayed: jobs that are scheduled or wait for their next try.
        dead: jobs that failed for good, of the last 14 days.
        oldest_waiting_since: since when its oldest waiting job could start.
        paused_since: None where it is not paused.
        paused_until: when the pause ends by itself; None for one that does not.
        pause_reason: given by the person who paused it.
    """

    queue: str
    pool: str
    waiting: int = 0
    running: int = 0
    delayed: int = 0
    dead: int = 0
    oldest_waiting_since: datetime | None = None
    paused_since: datetime | None = None
    paused_until: datetime | None = None
    pause_reason: str = ""


def queue_items(rows: Snapshot, settings: Settings, past: Past | None = None) -> list[QueueItem]:
    """All queues that are configured or hold jobs, by name.

    Args:
        rows: the database.
        settings: for the pools that serve them.
        past: the moment that is asked for; None for now.
    """
    owners = serving(settings)
    if past is not None:
        counts, stored, now_us = past.jobs.counts, past.paused, micros(past.moment)
    else:
        counts, now_us = rows.counts(tables.JOBS), micros(utc_now())
        stored = {row.queue: row for row in rows.rows(tables.QUEUES, "WHERE is_paused")}
    # The orchestrator records the end of a pause later; the broker ends it in time.
    paused = {
        name: row for name, row in stored.items() if not row.until_us or row.until_us > now_us
    }
    has_lines = past is None
    names = {*owners.owners, *paused, *(queue for queue, _ in counts)}

    def count(queue: str, *states: str) -> int:
        return sum(counts.get((queue, state), 0) for state in states)

    return [
        QueueItem(
            queue=name,
            pool=owners.pool(name),
            waiting=count(name, *WAITING),
            running=count(name, *RUNNING),
            delayed=count(name, *LATER),
            dead=count(name, "dead"),
            oldest_waiting_since=(
                _oldest(rows, name) if has_lines and count(name, *WAITING) else None
            ),
            paused_since=instant(paused[name].changed_us) if name in paused else None,
            paused_until=_pause_end(paused.get(name)),
            pause_reason=paused[name].reason if name in paused else "",
        )
        for name in sorted(names)
    ]


def _pause_end(row: QueueStateRow | None) -> datetime | None:
    return instant(row.until_us) if row and row.until_us is not None else None


def _oldest(rows: Snapshot, queue: str) -> datetime | None:
    oldest = rows.one(
        "SELECT available_us FROM jobs WHERE queue = ? AND state = 'waiting'"
        " ORDER BY dispatched_us LIMIT 1",
        (queue,),
    )
    return instant(oldest[0]) if oldest else None
