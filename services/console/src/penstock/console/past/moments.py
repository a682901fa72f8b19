"""The moment that a read asks for, and what an answer about it rests on. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

PARAMETER = "as_of"
MAX_TEXT_LENGTH = 40
_LOST_PLUS = re.compile(r"(T[0-9:.]+) ([0-9]{2}:?[0-9]{2})$")
"""In an address, a plus sign that was not encoded is a space."""
_EXAMPLE = "2026-11-22T12:03:04Z"


class BadMoment(ValueError):
    """A text that names no past moment, or a read that has none."""


class NotKept(Exception):
    """What was then is not kept any more."""


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer about a past moment rests on.

    Attributes:
        moment: that was asked for.
        events_until: when the last event that it counts was stored; None where it needs none.
        snapshots_until: when the newest snapshot of a pool or host that it shows was stored.
        jobs_until: until when jobs are counted; None where none are.
        notes: what it cannot say, or not exactly, as sentences.
    """

    moment: datetime
    events_until: datetime | None = None
    snapshots_until: datetime | None = None
    jobs_until: datetime | None = None
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The same for people: ``snapshot of 12:03:02, events until 12:03:03``."""
        parts = (
            ("snapshot of", self.snapshots_until),
            ("events until", self.events_until),
            ("jobs counted until", self.jobs_until),
        )
        return ", ".join(f"{words} {_clock(at, self.moment)}" for words, at in parts if at)


def read_moment(text: str, now: datetime) -> datetime:
    """A time of ISO 8601, in UTC; one without a zone is UTC, as all times of the console.

    Args:
        text: as it stands in the request.
        now: by the broker's clock.

    Raises:
        BadMoment: it is no time, or lies in the future.
    """
    try:
        moment = datetime.fromisoformat(_LOST_PLUS.sub(r"\1+\2", text.strip()))
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadMoment(
            f"{PARAMETER} is {text[:MAX_TEXT_LENGTH]!r}, expected a time such as {_EXAMPLE}"
        ) from None
    if moment > now:
        ahead = (moment - now).total_seconds()
        raise BadMoment(
            f"{PARAMETER} lies {ahead:,.0f} s in the future: it is {now:%Y-%m-%dT%H:%M:%SZ}; leave "
            f"{PARAMETER} out for what is now"
        )
    return moment


def text_of(moment: datetime) -> str:
    """As links carry it."""
    at = moment.astimezone(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if at.microsecond else "%Y-%m-%dT%H:%M:%SZ")


def _clock(at: datetime, moment: datetime) -> str:
    same_day = at.date() == moment.date()
    return at.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
