"""The memory of `deadline`: workers planned, when they were started, and how many were needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_STEPS = 8
"""The past is kept in so many steps of the time that counts."""


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times are POSIX seconds of the broker's clock.

    Attributes:
        planned: workers planned at the last look.
        asked_at: when that was, POSIX seconds; 0 for never.
        starts: (when, how many) workers were ordered, oldest first.
        needed: (when, how many) workers were needed, ever fewer: those moments of which no later
            one had more.
    """

    planned: int = 0
    asked_at: float = 0.0
    starts: tuple[tuple[float, int], ...] = ()
    needed: tuple[tuple[float, int], ...] = ()

    def look(self, planned: int, now: float, forget_seconds: float) -> Past:
        """Takes in the plan made of the last demand: workers that were added start since then."""
        starts = [(at, count) for at, count in self.starts if now - at <= forget_seconds]
        change = planned - self.planned
        if change > 0:
            starts.append((self.asked_at or now, change))
        # the youngest workers leave first, so that their starts are forgotten first
        while change < 0 and starts:
            at, count = starts.pop()
            if count + change > 0:
                starts.append((at, count + change))
            change += count
        return msgspec.structs.replace(self, planned=planned, asked_at=now, starts=tuple(starts))

    def starting(self, workers: int) -> list[tuple[float | None, int]]:
        """When so many starting workers were ordered, oldest first; None where that is unknown."""
        ordered: list[tuple[float | None, int]] = []
        for at, count in reversed(self.starts):
            if workers <= 0:
                break
            ordered.append((at, min(count, workers)))
            workers -= count
        if workers > 0:
            ordered.append((None, workers))
        return ordered[::-1]

    def note_needed(self, workers: int, now: float, keep_seconds: float) -> Past:
        """Notes how many are needed, and forgets what was longer ago than it counts."""
        recent = [(at, count) for at, count in self.needed if now - at < keep_seconds]
        needed = [(at, count) for at, count in recent if count > workers]
        # one note a step is enough: the memory is stored with each decision
        if len(needed) < len(recent) or not needed or now - needed[-1][0] >= keep_seconds / _STEPS:
            needed.append((now, workers))
        return msgspec.structs.replace(self, needed=tuple(needed))

    @property
    def most_needed(self) -> int:
        """Within the time that counts."""
        return self.needed[0][1] if self.needed else 0


def recall(memory: Mapping[str, Any]) -> Past:
    """The remembered past; an empty one where another strategy or version left its own."""
    try:
        return msgspec.convert(memory, Past)
    except msgspec.ValidationError:
        return Past()


def remember(past: Past) -> dict[str, Any]:
    """The past as plain values, equal to those decoded from a stored decision."""
    return {
        "planned": past.planned,
        "asked_at": past.asked_at,
        "starts": [list(start) for start in past.starts],
        **({"needed": [list(peak) for peak in past.needed]} if past.needed else {}),
    }
