"""Whether a service does its work, seen from what it leaves on the broker."""

from __future__ import annotations

import time

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.health.survey import Trace, traces


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """How long a service has been silent; None: it never spoke."""

    role: str
    silent_seconds: float | None
    allowed_seconds: float

    @property
    def fine(self) -> bool:
        return self.silent_seconds is not None and self.silent_seconds <= self.allowed_seconds


async def look(bus: Bus, settings: Settings, role: str) -> Found:
    """The age of the last trace that ``role`` left.

    Of several deciders the one that leads leaves it, of several orchestrators any of them: a check
    of one that stands by says that somebody does the work. An executor's is its own host's.
    """
    trace = _trace(settings, role)
    last = await bus.last(trace.stream, trace.subject)
    silent = max(time.time() - last.at.timestamp(), 0.0) if last else None
    return Found(role=role, silent_seconds=silent, allowed_seconds=trace.allowed_seconds)


def _trace(settings: Settings, role: str) -> Trace:
    subjects = Subjects(settings.prefix)
    if role == "executor":
        subject = subjects.host_snapshot(settings.host.name)
        return Trace(role, subjects.snapshots_stream, subject, settings.host.lease_seconds)
    return next(trace for trace in traces(settings, subjects) if trace.name == role)
