"""Whether a service does its work, by the messages that it stores on the broker."""

from __future__ import annotations

import time

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.health.survey import Trace, traces


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """How long a service has been silent; None: it never stored a message."""

    role: str
    silent_seconds: float | None
    allowed_seconds: float

    @property
    def is_recent(self) -> bool:
        return self.silent_seconds is not None and self.silent_seconds <= self.allowed_seconds


async def activity(bus: Bus, settings: Settings, role: str) -> Activity:
    """The age of the last message that a role stored.

    Of several deciders only the leader stores it, of several orchestrators any of them: a check of
    one that stands by reports that another one does the work. For an executor it is this host's.

    Args:
        bus: a connection.
        settings: of the installation.
        role: of the service.
    """
    trace = _trace(settings, role)
    last = await bus.last(trace.stream, trace.subject)
    silent = max(time.time() - last.at.timestamp(), 0.0) if last else None
    return Activity(role=role, silent_seconds=silent, allowed_seconds=trace.allowed_seconds)


def _trace(settings: Settings, role: str) -> Trace:
    subjects = Subjects(settings.prefix)
    if role == "executor":
        subject = subjects.host_snapshot(settings.host.name)
        return Trace(role, subjects.snapshots_stream, subject, settings.host.lease_seconds)
    return next(trace for trace in traces(settings, subjects) if trace.name == role)
