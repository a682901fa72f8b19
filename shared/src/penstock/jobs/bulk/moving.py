"""Moving a job that does not run to another queue."""

from __future__ import annotations

import msgspec

from penstock.events.job import JobMoved
from penstock.jobs.errors import JobRefused, MissingKey, Undecryptable
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import encryption, payload
from penstock.jobs.payloads.encryption import KeyRing


def moved(record: JobRecord, queue: str, reason: str, source: str, ring: KeyRing) -> JobMoved:
    """The event that moves a job.

    Args:
        record: the job; it does not run.
        queue: where it waits then.
        reason: given by the person who moves it.
        source: what the event names as its origin.
        ring: keys, since what is sealed is bound to its queue.

    Raises:
        JobRefused: it cannot be moved, and why.
    """
    try:
        call = payload.decode(record.payload)
        if record.attempt and encryption.holds_sealed(call):
            raise JobRefused("it was started, and its encrypted checkpoint is bound to its queue")
        body = payload.encode(encryption.for_queue(call, queue, ring))
    except (MissingKey, Undecryptable, msgspec.MsgspecError) as error:
        raise JobRefused(str(error)) from error
    is_later = record.state in (State.SCHEDULED, State.RETRYING)
    return JobMoved(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        queue=queue,
        from_queue=record.queue,
        payload=body,
        due_at=record.available_at if is_later else None,
        reason=reason,
    )
