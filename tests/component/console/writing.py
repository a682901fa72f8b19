"""A process that folds one endless log into a database, until it is killed.

python -m tests.component.console.writing FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from penstock.console.core.log_entry import LogEntry
from penstock.console.read_models.store import Store
from penstock.events.envelope import Event
from penstock.events.job import JobCompleted, JobDispatched, JobStarted

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EVENTS_OF_A_JOB = 3


def events_of(job_id: str) -> list[Event]:
    """The life of one job."""
    return [
        JobDispatched(job_id=job_id, queue="mail", function="f", payload=b"", at=BEGIN),
        JobStarted(job_id=job_id, queue="mail", attempt=1, host="h", worker="w", at=BEGIN),
        JobCompleted(job_id=job_id, queue="mail", attempt=1, run_seconds=1.0, at=BEGIN),
    ]


def batches(position: int) -> Iterator[list[LogEntry]]:
    """Batches of all sizes of one log, from after a position on."""
    job, size = position // EVENTS_OF_A_JOB, 1
    while True:
        batch = [
            LogEntry(EVENTS_OF_A_JOB * number + place, "job", f"j{number}", event)
            for number in range(job, job + size)
            for place, event in enumerate(events_of(f"j{number}"), 1)
        ]
        job, size = job + size, size % 50 + 1
        yield [entry for entry in batch if entry.sequence > position]


if __name__ == "__main__":
    store = Store(Path(sys.argv[1]))
    sys.stdout.write("it begins\n")
    sys.stdout.flush()
    for batch in batches(store.position):
        store.apply(batch)
