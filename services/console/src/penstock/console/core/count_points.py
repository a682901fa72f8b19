"""How many jobs were in each state at former moments: kept each second, thinned as they age. Pure.

A point holds the counts after the last event of its stretch of time, so that few events lie between
a point and any moment: these are read from the log and added.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.console.core.times import instant

KEPT_SECONDS: Mapping[int, int] = {1: 900, 10: 6 * 3600, 60: 48 * 3600}
"""By distance of points in seconds, how long they are kept."""
_SECOND_US = 1_000_000
_GROUPS_PER_SECOND = 100
"""With more queues points are rarer, so that they take no more room."""
_MOST_BYTES = 16 * 1024 * 1024


class CountPoint(NamedTuple):
    """The counts after an entry of the log, as they are stored.

    Attributes:
        position: sequence of that entry.
        at_us: when that entry was stored.
        step: distance in seconds of the points that it is one of.
        body: counts by group and state, packed.
    """

    position: int
    at_us: int
    step: int
    body: bytes

    @classmethod
    def of(
        cls, position: int, at_us: int, step: int, counts: Mapping[tuple[str, str], int]
    ) -> CountPoint:
        """A point of these counts."""
        groups = [(*group, number) for group, number in counts.items()]
        return cls(position, at_us, step, zlib.compress(msgspec.json.encode(groups), 1))

    @property
    def at(self) -> datetime:
        """When the last event that it counts was stored."""
        return instant(self.at_us)

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """By (queue, state)."""
        text = zlib.decompressobj().decompress(self.body, _MOST_BYTES)
        groups = msgspec.json.decode(text, type=list[tuple[str, str, int]])
        return {(queue, state): number for queue, state, number in groups}


class Pace:
    """When a point is due: before the first event of a later second, or of a longer stretch."""

    def __init__(self) -> None:
        self._reached_us = self._kept_us = 0
        self._spacing = 1

    def reached(self, at_us: int) -> None:
        """Notes the time of the last event that was folded."""
        self._reached_us = max(self._reached_us, at_us)

    def due(self, next_us: int) -> tuple[int, int] | None:
        """Time and distance of the point to keep before an event of this time; None for none."""
        before, former = self._reached_us, self._kept_us
        if not before or not self._is_later(next_us, before, 1):
            return None
        self._kept_us = before
        steps = (step for step in (60, 10) if self._is_later(before, former, step))
        return before, next(steps, 1)

    def kept(self, groups: int) -> None:
        """Notes how large the last point was."""
        self._spacing = max(1, groups // _GROUPS_PER_SECOND)

    def _is_later(self, at_us: int, before_us: int, step: int) -> bool:
        """Whether it lies in a later stretch of so many seconds."""
        stretch_us = max(step, self._spacing) * _SECOND_US
        return at_us // stretch_us > before_us // stretch_us


def kept_until(now_us: int) -> list[tuple[int, int]]:
    """By distance of points, the time before which they are removed."""
    return [(step, now_us - seconds * _SECOND_US) for step, seconds in KEPT_SECONDS.items()]
