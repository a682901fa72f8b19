"""A call that was encoded before, dispatched under another identifier."""

from __future__ import annotations

import time

import msgspec

from penstock.events.job import JobDispatched
from penstock.events.subjects import check_name
from penstock.jobs.payloads import payload


def dispatched(
    body: bytes,
    job_id: str,
    source: str,
    *,
    causation_id: str | None = None,
    correlation_id: str = "",
    handed: dict[str, msgspec.Raw] | None = None,
) -> JobDispatched:
    """The event that dispatches an encoded call as job ``job_id``.

    Args:
        handed: arguments that were not known when it was encoded.

    Raises:
        msgspec.MsgspecError, ValueError: it is no encoded call.
    """
    old = payload.decode(body)
    check_name("queue", old.queue)
    all_handed = {**(old.handed or {}), **(handed or {})} or None
    new = msgspec.structs.replace(old, id=job_id, dispatched_at=time.time(), handed=all_handed)
    return JobDispatched(
        job_id=job_id,
        correlation_id=correlation_id or None,
        causation_id=causation_id,
        source=source,
        queue=old.queue,
        function=old.function,
        payload=payload.encode(new),
        tags=old.tags,
        tries=old.tries,
    )
