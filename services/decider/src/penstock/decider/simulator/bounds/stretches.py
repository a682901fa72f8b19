"""Dynamic programming over the fluid of a load: what a schedule costs from each state on.

State: work left undone, and workers there. Choice: how many workers in the next step, a whole
number. Cost: worker-seconds; for each worker that starts, the seconds it needs for that; for each
job that starts late, a price. All stretches of a load go through the arrays at once, which is what
makes weeks affordable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.decider.simulator.bounds.fluid import Fluid

Array = NDArray[np.float64]

LEVELS = 24
"""Steps of undone work, of what the promise allows; half as many again beyond it."""
_MOST_COUNTS = 64
"""Different numbers of workers that are tried; if there are more, only each second, third, …"""
_TINY = 1e-9


class Stretches(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a load of the same length, side by side: P of them, K steps each.

    Attributes:
        came: work that becomes possible in each step, (P, K).
        limit: work that may be left undone, (P, K + 1).
        due: jobs whose time to start ends in each step, (P, K).
        shares: levels of undone work as shares of the limit, (J,).
        counts: workers, (C,).
    """

    step_seconds: float
    came: Array
    limit: Array
    due: Array
    shares: Array
    counts: Array

    def some(self, which: NDArray[np.intp]) -> Stretches:
        """Those of these numbers, with as many workers as they may need."""
        came = self.came[which]
        return msgspec.structs.replace(
            self,
            came=came,
            limit=self.limit[which],
            due=self.due[which],
            counts=_counts(came, self.step_seconds),
        )

    def groups(self, size: int) -> Iterator[Stretches]:
        """All of them, so many at a time, each group with the workers of all."""
        for first in range(0, len(self.came), size):
            group = slice(first, first + size)
            yield msgspec.structs.replace(
                self, came=self.came[group], limit=self.limit[group], due=self.due[group]
            )

    def between(self, start: int, end: int) -> Stretches:
        """Some of the steps."""
        return msgspec.structs.replace(
            self,
            came=self.came[:, start:end],
            limit=self.limit[:, start : end + 1],
            due=self.due[:, start:end],
        )


def cut(water: Fluid, seconds: float) -> Stretches:
    """Stretches of about this length (infinite: one); the last one is filled up with quiet."""
    parts = max(1, min(round(len(water.due) * water.step_seconds / seconds), len(water.due)))
    steps = math.ceil(len(water.due) / parts)
    missing = parts * steps - len(water.due)
    limit = np.append(water.limit, np.zeros(missing))
    inside = limit[:-1].reshape(parts, steps)
    came = np.append(np.diff(water.possible), np.zeros(missing)).reshape(parts, steps)
    return Stretches(
        step_seconds=water.step_seconds,
        came=came,
        limit=np.concatenate((inside, limit[steps::steps, None]), axis=1),
        due=np.append(water.due, np.zeros(missing)).reshape(parts, steps),
        shares=np.arange(LEVELS + LEVELS // 2 + 1) / LEVELS,
        counts=_counts(came, water.step_seconds),
    )


def _counts(came: Array, step_seconds: float) -> Array:
    """Up to one for every job at once, as a mean over any one step."""
    most = math.ceil(came.max(initial=0.0) / step_seconds)
    group = max(1, math.ceil((most + 1) / _MOST_COUNTS))
    return np.arange(0, most + group, group, dtype=np.float64)


def backwards(parts: Stretches, spawn_seconds: float, price: float) -> Iterator[tuple[int, Array]]:
    """For each step from the last to the first, the cost from its beginning on, (P, J, C).

    ``C`` is here the number of workers before the step.
    """
    counts = parts.counts
    up = spawn_seconds * counts
    cost = last_costs(parts)
    for step in range(parts.came.shape[1] - 1, -1, -1):
        chosen = choices(parts, cost, step, price)
        fewer = np.minimum.accumulate(chosen, axis=2)
        larger = np.minimum.accumulate((chosen + up)[:, :, ::-1], axis=2)[:, :, ::-1] - up
        cost = np.minimum(fewer, larger)
        yield step, cost


def last_costs(parts: Stretches) -> Array:
    """At the end of a stretch, what is left costs the work that it is, (P, J, C)."""
    left = parts.shares[None, :, None] * parts.limit[:, -1, None, None]
    return np.broadcast_to(left, (*left.shape[:2], len(parts.counts)))


def choices(parts: Stretches, after: Array, step: int, price: float) -> Array:
    """Cost from a step on, by state and by the number of workers chosen for it, (P, J, C)."""
    left = parts.shares[None, :] * parts.limit[:, step, None] + parts.came[:, step, None]
    return following(parts, after, step, left, price)


def following(parts: Stretches, after: Array, step: int, left: Array, price: float) -> Array:
    """The same for any amounts of work to do in the step, (P, any)."""
    seconds, top = parts.step_seconds, len(parts.shares) - 1
    done = parts.counts * seconds
    allowed = np.maximum(parts.limit[:, step + 1], _TINY)[:, None, None]
    at = np.maximum(left[:, :, None] - done, 0.0) * (LEVELS / allowed)
    late = (at > LEVELS * (1 + _TINY)) * (price * parts.due[:, step])[:, None, None]
    beyond = np.maximum(at - top, 0.0) * (allowed / LEVELS)
    np.minimum(at, top - _TINY, out=at)
    low = at.astype(np.intp)
    part, count = np.ogrid[: len(after), : after.shape[2]]
    here, above = after[part[:, None], low, count], after[part[:, None], low + 1, count]
    result: Array = done + late + beyond + here + (above - here) * (at - low)
    return result
