"""Whether a batch or graph that is no longer followed goes on, by its own events alone."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.bus.protocol import Bus, BusUnavailable
from penstock.events.batch import BATCH_EVENTS
from penstock.events.graph import GRAPH_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs.batches import batch_record
from penstock.jobs.event_store import event_log
from penstock.jobs.workflows import graph_record

_RETRY_SECONDS = 0.25
_KINDS: dict[str, tuple[Any, Any]] = {
    "batch": (BATCH_EVENTS, batch_record.fold),
    "graph": (GRAPH_EVENTS, graph_record.fold),
}


async def has_ended(bus: Bus, subjects: Subjects, noun: str, key: str, until: int) -> bool:
    """Whether it had ended, as of a sequence of the log.

    Any key that dispatches can store an event that may not follow an end. Reading the events of all
    jobs since it began, as for one that goes on, would take minutes for each of these.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        noun: ``batch`` or ``graph``.
        key: its id.
        until: later events do not count.
    """
    codec, fold = _KINDS[noun]
    stream, subject = subjects.events_stream, subjects.events(noun, key)
    while True:
        try:
            history = await event_log.read_subject(bus, stream, subject, codec)
        except BusUnavailable:
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        record = fold((sequence, event) for sequence, event in history if sequence <= until)
        return record is not None and bool(record.state.ended)
