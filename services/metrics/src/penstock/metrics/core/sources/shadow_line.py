"""The line of waiting messages, reconstructed from counts: how old its head is, and who left late.

With A(t) messages come and D(t) left by t, first come first served, the head of the line is the one
that came at A⁻¹(D(now)). Between two looks messages are taken to have come evenly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_MOST_POINTS = 1024
"""Beyond it every other point of the older half goes: old ages are known more coarsely."""


class ShadowLine:
    """Arrivals by time, as far back as the oldest message that waits.

    Args:
        at: of the first look, in seconds of a steady clock.
        waiting: messages that waited then; they are taken to have come at that moment.
    """

    def __init__(self, at: float, waiting: int) -> None:
        self._times = [at]
        self._counts = [float(waiting)]
        self._left = 0.0
        self._reported_early = 0

    @property
    def waiting(self) -> int:
        """Messages in the line."""
        return round(self._counts[-1] - self._left)

    def move(self, at: float, came: int, waiting: int) -> int:
        """The queue was looked at again.

        Args:
            at: seconds of the same clock, later than before.
            came: messages since the look before; below 0: so many never came that were counted.
            waiting: messages that wait now.

        Returns:
            How many left the line since.
        """
        self._forget()
        arrived = self._counts[-1] + came
        if arrived < waiting:  # more wait than are known to have come: the rest came just now
            arrived = float(waiting)
        left = arrived - waiting
        departed = round(left - self._left)
        self._left = left
        if came < 0:
            self._take_back(arrived)
            self._reported_early += max(-departed, 0)
        surplus = min(self._reported_early, max(departed, 0))
        self._reported_early -= surplus
        departed -= surplus
        if at > self._times[-1]:
            self._times.append(at)
            self._counts.append(arrived)
        else:
            self._counts[-1] = arrived
        return max(departed, 0)

    def _take_back(self, arrived: float) -> None:
        """Those that were counted last did not come."""
        for index in range(bisect_right(self._counts, arrived), len(self._counts)):
            self._counts[index] = arrived

    def age_seconds(self, place: int, now: float) -> float:
        """Age of the message at a place in the line, the head being at 0."""
        return max(now - self._came_at(self._left + place), 0.0)

    def ages(self, now: float, places: int) -> Iterator[tuple[int, float]]:
        """(place, age) at up to so many evenly spaced places, from the head to the last."""
        last = self.waiting - 1
        spots = min(places, last + 1)
        for spot in range(spots):
            place = round(spot * last / max(spots - 1, 1))
            yield place, self.age_seconds(place, now)

    def waits(self, departed: int, left_at: float, most: int) -> list[float]:
        """How long those waited that left last, evenly chosen.

        Args:
            departed: how many left.
            left_at: when, about.
            most: so many waits at most.
        """
        samples = min(departed, most)
        first = self._left - departed
        return [
            max(left_at - self._came_at(first + (sample + 0.5) * departed / samples), 0.0)
            for sample in range(samples)
        ]

    def _came_at(self, count: float) -> float:
        """When the message after the first ``count`` came."""
        index = bisect_right(self._counts, count)
        if index == 0:
            return self._times[0]
        if index == len(self._counts):
            return self._times[-1]
        before, after = self._counts[index - 1], self._counts[index]
        start, end = self._times[index - 1], self._times[index]
        return start + (end - start) * (count - before) / (after - before)

    def _forget(self) -> None:
        """Drops what came before the head; called before a look, as its leavers are asked about."""
        keep = max(bisect_left(self._counts, self._left) - 2, 0)
        del self._times[:keep], self._counts[:keep]
        if len(self._times) > _MOST_POINTS:
            half = len(self._times) // 2
            del self._times[1:half:2], self._counts[1:half:2]
