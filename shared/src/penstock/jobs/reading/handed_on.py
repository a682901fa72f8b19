"""Why a job that could start has not: the workers that got it cannot run it, and handed it on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from penstock.bus.protocol import Bus, BusError, BusRefused, Headers
from penstock.events.subjects import Subjects
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages

_MAX_REASON_LENGTH = 300
_MAX_TRIED = 16
_TRIED = re.compile(r"([A-Za-z0-9_.-]{1,64})=([A-Za-z0-9_.-]{1,160})")


class HandedOn(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for a worker with other code, or with its key.

    Attributes:
        since: when a worker first could not run it.
        reason: why the last one could not.
        builds: a worker by each version of the job code that does not know the job.
        offered_at: when a worker gets it again.
        dead_at: the job is dead after this, if no worker can run it by then.
    """

    since: datetime
    reason: str
    builds: dict[str, str] = {}
    offered_at: datetime | None = None
    dead_at: datetime | None = None

    def __str__(self) -> str:
        builds = ", ".join(f"build {build} (worker {name})" for build, name in self.builds.items())
        parts = [
            f"handed on since {_clock(self.since)}: {self.reason}",
            f"refused by {builds}" if builds else "",
            f"offered again at {_clock(self.offered_at)}" if self.offered_at else "",
            f"dead at {_clock(self.dead_at)} unless a worker can run it" if self.dead_at else "",
        ]
        return "; ".join(filter(None, parts))


def headers(reason: str, dead_at: float) -> Headers:
    """What a message that is handed on says of it, beside since when and to whom.

    Args:
        reason: why it is not run.
        dead_at: POSIX seconds.
    """
    shown = " ".join(reason.split()).encode("ascii", "backslashreplace").decode()
    return {
        queue_messages.REASON: shown[:_MAX_REASON_LENGTH],
        queue_messages.DEAD_AT: f"{dead_at:.3f}",
    }


def tried(message: Mapping[str, str]) -> dict[str, str]:
    """By build that was tried, a worker that has it; out of a message's headers."""
    entries = message.get(queue_messages.UNKNOWN_TO, "").split(",")[:_MAX_TRIED]
    matches = [match for entry in entries if (match := _TRIED.fullmatch(entry))]
    return {match[1]: match[2] for match in matches}


def listed(builds: Mapping[str, str]) -> str:
    """The header that :func:`tried` reads."""
    return ",".join([f"{build}={worker}" for build, worker in builds.items()][:_MAX_TRIED])


class HandedOnReader:
    """Looks at the schedule that brings a job back to its queue.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._is_permitted = True

    async def read(self, record: JobRecord) -> HandedOn | None:
        """None where the job was not handed on, waits in its queue, or this key may not look."""
        if not self._is_permitted or record.state is State.RUNNING or record.state.ended:
            return None
        subject = self._subjects.schedule(record.queue, record.id)
        try:
            stored = await self._bus.last(self._subjects.jobs_stream, subject)
        except BusRefused:
            self._is_permitted = False
            return None
        except BusError:
            return None
        return of_headers(stored.headers) if stored else None


def of_headers(message: Mapping[str, str]) -> HandedOn | None:
    """What a stored message says; None for one that was not handed on."""
    unknown = _time(message.get(queue_messages.UNKNOWN_SINCE))
    since = unknown or _time(message.get(queue_messages.LOCKED_SINCE))
    if since is None:
        return None
    due = queue_messages.due_at(message)
    return HandedOn(
        since=since,
        reason=message.get(queue_messages.REASON, "a worker cannot run it")[:_MAX_REASON_LENGTH],
        builds=tried(message) if unknown else {},
        offered_at=None if due is None else datetime.fromtimestamp(due, UTC),
        dead_at=_time(message.get(queue_messages.DEAD_AT)),
    )


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S UTC")
