"""The past that can be gone back to, and the moments in it that a reader may look for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from penstock.bus.protocol import broker_time
from penstock.config import Settings
from penstock.console.core import tables
from penstock.console.core.decision_rows import DecisionRow
from penstock.console.core.log_entry import micros
from penstock.console.core.mark_rows import MarkRow
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.read_models.store import Snapshot
from penstock.events.orders import HostDrained, HostPaused, HostResumed
from penstock.events.scaling import PromiseBurning, SlaBreached
from penstock.events.worker import HostJoined, HostLeft, HostLost

LONGEST = timedelta(hours=48)
MOST_OF_A_KIND = 200
"""Marks of decisions, breaches and hosts each: the newest."""
Kind = Literal["decision", "breach", "host"]
_WORDS = {
    SlaBreached.__name__: "a job waits longer than promised",
    PromiseBurning.__name__: "the budget of the promise burns",
    HostJoined.__name__: "joined",
    HostLeft.__name__: "left",
    HostLost.__name__: "was lost",
    HostPaused.__name__: "was paused",
    HostDrained.__name__: "is drained",
    HostResumed.__name__: "was resumed",
}


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that a reader may look for.

    Attributes:
        at: when its event was stored: an answer as of then is the first that shows it.
        about: the pool or host.
        text: what happened, without the name of the pool or host.
    """

    at: datetime
    kind: Kind
    about: str
    text: str


class TimeMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The past that can be gone back to.

    Attributes:
        since: how far back answers reach about; None where nothing was stored yet.
        until: now, by the broker's clock.
        items: oldest first; of each kind the newest 200.
        left_out: whether there were more.
    """

    since: datetime | None
    until: datetime
    items: list[Mark]
    left_out: bool

    def before(self, moment: datetime | None) -> Mark | None:
        """The last mark before a moment, or before now."""
        earlier = (one for one in reversed(self.items) if moment is None or one.at < moment)
        return next(earlier, None)

    def after(self, moment: datetime) -> Mark | None:
        """The first mark after a moment."""
        return next((one for one in self.items if one.at > moment), None)


async def time_marks(console: Console) -> TimeMarks:
    """The marks of the past that overview and pools can be shown of."""
    now = broker_time(console.bus)
    longest = min(LONGEST, _kept(console.settings))
    begin, items, left_out = await console.read(lambda rows: _read(rows, now - longest))
    return TimeMarks(
        since=begin, until=now, items=[one for one in items if one.at <= now], left_out=left_out
    )


def _kept(settings: Settings) -> timedelta:
    """How long snapshots are kept."""
    return timedelta(hours=settings.streams.snapshots_max_age_hours)


def _read(rows: Snapshot, earliest: datetime) -> tuple[datetime | None, list[Mark], bool]:
    since_us = micros(earliest)
    newest = "WHERE at_us >= ? ORDER BY at_us DESC LIMIT ?"
    bounds = (since_us, MOST_OF_A_KIND)
    breaches = rows.rows(tables.BREACHES, newest, bounds)
    hosts = rows.rows(tables.HOST_CHANGES, newest, bounds)
    changes = "WHERE is_change = 1 ORDER BY sequence DESC LIMIT ?"
    decisions = rows.rows(tables.DECISIONS, changes, (MOST_OF_A_KIND,))
    recent = [row for row in decisions if row.stored_us >= since_us]
    left_out = max(len(breaches), len(hosts), len(recent)) == MOST_OF_A_KIND
    marks = [*map(_decided, recent), *_marks("breach", breaches), *_marks("host", hosts)]
    marks.sort(key=lambda mark: mark.at)
    return _begin(rows, earliest, marks), marks, left_out


def _begin(rows: Snapshot, earliest: datetime, marks: list[Mark]) -> datetime | None:
    """Since when the log was folded, at most ``earliest``; None where it is empty."""
    point = rows.one("SELECT min(at_us) FROM count_points")
    times = [mark.at for mark in marks[:1]]
    if point and point[0]:
        times.append(instant(point[0]))
    if not times and (as_of := rows.fact("as_of")):
        times.append(datetime.fromisoformat(as_of))
    return max(min(times), earliest) if times else None


def _decided(row: DecisionRow) -> Mark:
    text = f"{row.current} → {row.target} workers"
    return Mark(at=instant(row.stored_us), kind="decision", about=row.pool, text=text)


def _marks(kind: Kind, rows: list[MarkRow]) -> Iterator[Mark]:
    for row in rows:
        yield Mark(at=instant(row.at_us), kind=kind, about=row.about, text=_WORDS[row.kind])
