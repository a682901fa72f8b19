"""Rate limits as a state that many workers share: it gives starts, or places in line. Pure.

A worker asks for several starts at a time, each good for a short life, and those it does not use
lapse: the limit is never exceeded, at worst not quite reached. A worker that gets none is given a
time to come again; those times lie as far apart as the limit's starts, so that a long line does not
come all at once, again and again.

Bucket: the generic cell rate algorithm (ITU-T I.371, annex A): one time stamp says how full the
bucket is. Sliding window: a start counts from when it was given until a window after its life.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_LIFE_SECONDS = 0.25
_LIFE_SHARE = 0.1
_LATE_SECONDS = 0.04
_ASKS_A_SECOND = 40
"""Starts are given singly below so many a second: none lapses, and asking costs little."""
_CLOCKS_SECONDS = 0.02
"""Added to a sliding window: hosts know the broker's time to within a round trip."""
_MOST_CHUNKS = 64


class Rule(msgspec.Struct, frozen=True):
    """A limit. ``burst``: starts that a bucket which was not used for long gives at once."""

    limit: int
    per_seconds: float
    burst: int
    window: Literal["bucket", "sliding"]

    @property
    def life_seconds(self) -> float:
        """How long a start that was given is good."""
        return min(_LIFE_SECONDS, _LIFE_SHARE * self.per_seconds)

    @property
    def reach_seconds(self) -> float:
        """How long a start of a sliding window counts after its life."""
        return self.per_seconds + _CLOCKS_SECONDS

    @property
    def spacing_seconds(self) -> float:
        """Between two starts when all are used, each as late as jobs usually come back."""
        if self.window == "bucket":
            return self.per_seconds / self.limit
        return (self.reach_seconds + self.life_seconds + _LATE_SECONDS) / self.limit

    @property
    def most_at_once(self) -> int:
        """Never half of all."""
        due = int(1 / (self.spacing_seconds * _ASKS_A_SECOND))
        return max(1, min(due, self.limit // 2))


class RateState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all workers share. Times are POSIX seconds, broker's clock.

    Attributes:
        full_at: when a bucket will be full again.
        line_at: the next free place in line.
        given: of a sliding window: ``(good until, starts)``, oldest first.
    """

    full_at: float = 0.0
    line_at: float = 0.0
    given: tuple[tuple[float, int], ...] = ()


class Grant(msgspec.Struct, frozen=True):
    """Either ``starts``, or none and ``places`` in line from ``again_at`` on."""

    starts: int
    again_at: float = 0.0
    places: int = 0


def ask(rule: Rule, state: RateState, want: int, now: float) -> tuple[Grant, RateState]:
    """What a worker that wants ``want`` starts at ``now`` gets, and the state after that."""
    give = _bucket if rule.window == "bucket" else _sliding
    starts, free_at, after = give(rule, state, want, now)
    if starts:
        return Grant(starts), after
    again_at = max(after.line_at, free_at)
    line_at = again_at + want * rule.spacing_seconds
    return Grant(0, again_at, want), msgspec.structs.replace(after, line_at=line_at)


def _bucket(rule: Rule, state: RateState, want: int, now: float) -> tuple[int, float, RateState]:
    spacing = rule.spacing_seconds
    full_at = max(state.full_at, now)
    free = int((now + rule.burst * spacing - full_at) / spacing + 1e-9)
    starts = max(min(want, free), 0)
    after = msgspec.structs.replace(state, full_at=full_at + starts * spacing)
    return starts, full_at - (rule.burst - 1) * spacing, after


def _sliding(rule: Rule, state: RateState, want: int, now: float) -> tuple[int, float, RateState]:
    reach = rule.reach_seconds
    given = tuple(chunk for chunk in state.given if chunk[0] + reach > now)
    starts = max(min(want, rule.limit - sum(count for _, count in given)), 0)
    if starts:
        given = _fewer((*given, (now + rule.life_seconds, starts)))
    first_until = min((until for until, _ in given), default=now)
    return starts, first_until + reach, msgspec.structs.replace(state, given=given)


def _fewer(given: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    """The two oldest become one that counts as long as the younger: never too few are counted."""
    if len(given) <= _MOST_CHUNKS:
        return given
    (_, first), (until, second), *rest = given
    return ((until, first + second), *rest)
