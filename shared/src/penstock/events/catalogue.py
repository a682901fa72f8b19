"""Every event of the platform, by name: subject, stream, fields, meaning."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from penstock.events.alerting import ALERT_EVENTS
from penstock.events.batch import BATCH_EVENTS
from penstock.events.bulk import BULK_EVENTS
from penstock.events.console import CONSOLE_EVENTS
from penstock.events.dead import DEAD_EVENTS
from penstock.events.envelope import Codec, Event
from penstock.events.forecasting import FORECAST_EVENTS
from penstock.events.graph import GRAPH_EVENTS
from penstock.events.health import HEALTH_EVENTS
from penstock.events.job import JOB_EVENTS
from penstock.events.muting import MUTE_EVENTS
from penstock.events.orders import ORDERS
from penstock.events.queue import QUEUE_EVENTS
from penstock.events.record import RECORDS, CheckpointTaken, RoundDecided, SettingsAdopted
from penstock.events.saved_view import VIEW_EVENTS
from penstock.events.scaling import SCALING_EVENTS, WorkersScaled
from penstock.events.snapshot import MEASURED, HostSnapshot, PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS
from penstock.events.workflow import INBOX_EVENTS

LOGGED = Codec(
    *JOB_EVENTS,
    *QUEUE_EVENTS,
    *DEAD_EVENTS,
    *HEALTH_EVENTS,
    *BATCH_EVENTS,
    *GRAPH_EVENTS,
    *INBOX_EVENTS,
    *SCALING_EVENTS,
    *FORECAST_EVENTS,
    *WORKER_EVENTS,
    *ORDERS,
)
"""What the event log may hold."""
ON_CONSOLE = Codec(*CONSOLE_EVENTS, *ALERT_EVENTS, *BULK_EVENTS, *VIEW_EVENTS, *MUTE_EVENTS)
"""What the stream ``CONSOLE`` may hold."""
ALL = Codec(*LOGGED, *MEASURED, *RECORDS, *ON_CONSOLE)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of event as a subscriber needs to know it; ``schema`` is JSON Schema 2020-12."""

    event: str
    subject: str
    stream: str
    about: str
    schema: dict[str, Any]


def entry(event: type[Event], subjects: Subjects) -> Entry:
    subject, stream = _place(event, subjects)
    return Entry(
        event=event.__name__,
        subject=subject,
        stream=stream,
        about=inspect.getdoc(event) or "",
        schema=msgspec.json.schema(event),
    )


def _place(event: type[Event], subjects: Subjects) -> tuple[str, str]:
    key = f"<{event.key_field}>"
    if event in (PoolSnapshot, SourceUnread):
        return subjects.pool_snapshot(key), subjects.snapshots_stream
    if event is HostSnapshot:
        return subjects.host_snapshot(key), subjects.snapshots_stream
    if event in (RoundDecided, CheckpointTaken):
        return subjects.round(event.__name__), subjects.snapshots_stream
    if event is SettingsAdopted:
        return subjects.adopted_settings(f"{key}-<part>"), subjects.snapshots_stream
    if event is WorkersScaled:
        return subjects.command(key), subjects.commands_stream
    if event in tuple(ON_CONSOLE):
        return subjects.console(event.noun, key, event.__name__), subjects.console_stream
    return subjects.events(event.noun, key, event.__name__), subjects.events_stream
