"""How many workers are needed now, so that nobody starts late who can still be helped."""

from __future__ import annotations

import msgspec

from penstock.decider.core.strategies.deadline.line import Stand
from penstock.decider.core.strategies.deadline.poisson import most_arrivals
from penstock.decider.core.strategies.deadline.pool_view import LOOK_SECONDS, Sight
from penstock.decider.core.strategies.erlang import fewest
from penstock.decider.core.strategy import whole

_LEAST_SHARE = 0.25
"""Jobs that are (nearly) late are to start within starting a worker and this share of the promise:
without it one job at its last moment would ask for as many workers as there are jobs before it."""
_MARGIN_SHARE = 0.1
"""Of the promise, kept back while one worker that is not there yet would be enough."""
_STEP_SHARE = 0.15
"""A need that has grown goes on growing: so much more is asked for at once, not step by step."""


class Need(msgspec.Struct, frozen=True):
    """Attributes:
    workers: the fewest. asked: what is asked for where there are fewer.
    binding: the job that needs them; None: those do that may come, or nobody.
    """

    workers: int
    asked: int
    binding: Stand | None = None


def need(sight: Sight, rate_to_expect: float) -> Need:
    """The fewest workers.

    While a worker started later is early enough, only jobs count that exist: each has to start
    before its deadline. Else workers have to be there before their jobs: for steady traffic by
    Erlang's formula, and for those who may come before the next look.

    Args:
        rate_to_expect: jobs a second while a worker starts.
    """
    ahead = sight.blind_seconds > 0 and rate_to_expect > 0
    found, binding = _walk(sight, sight.stands)
    if not sight.planned and not ahead and _can_wait(sight, found):
        return Need(0, 0)
    workers = whole(found)
    asked = whole(found * (1 + _STEP_SHARE)) if workers > 1 else workers
    if not ahead:
        return Need(workers, asked, binding)
    coming = whole(_walk(sight, (_coming(sight, rate_to_expect),))[0])
    before = max(coming, _steady(sight, rate_to_expect))
    return Need(max(workers, before), max(asked, before), binding if workers >= before else None)


def last_moment_seconds(sight: Sight) -> float:
    """Time left to a job at which somebody has to be started for it, if nobody is there."""
    margin = _MARGIN_SHARE * sight.promise_seconds
    return sight.spawn.p95_seconds + 2 * LOOK_SECONDS + margin


def least_seconds(sight: Sight, together: float = 1.0) -> float:
    """What is always granted to a job, see `_LEAST_SHARE`."""
    return sight.spawn_seconds(together) + _LEAST_SHARE * sight.promise_seconds


def _walk(
    sight: Sight, stands: tuple[Stand, ...], later_seconds: float = 0.0
) -> tuple[float, Stand | None]:
    """May be broken. Starting many together takes longer, which takes some more."""
    found, binding = _walked(sight, stands, later_seconds, 1.0)
    more = found - sight.planned
    if more > 1 and sight.spawn.contention_seconds > 0:
        return _walked(sight, stands, later_seconds, more)
    return found, binding


def _walked(
    sight: Sight, stands: tuple[Stand, ...], later_seconds: float, together: float
) -> tuple[float, Stand | None]:
    hands, least = sight.hands(together), least_seconds(sight, together)
    found, binding = 0.0, None
    for stand in stands:
        seconds = stand.seconds - later_seconds
        workers = hands.fewest(stand.place, seconds if seconds > least else least)
        if workers > found:
            found, binding = workers, stand
    return found, binding


def _can_wait(sight: Sight, found: float) -> bool:
    """Nobody is there, one would do, also if it is started at the next look, and there is time."""
    if not sight.stands:
        return True
    if found > 1 or sight.stands[0].seconds <= last_moment_seconds(sight):
        return False
    return _walk(sight, sight.stands, LOOK_SECONDS)[0] <= 1


def _coming(sight: Sight, rate: float) -> Stand:
    """The last of those who may come before the next look."""
    most = most_arrivals(rate * LOOK_SECONDS, sight.allowed_share)
    return Stand(sight.waiting + max(most, 1), sight.promise_seconds, is_here=False)


def _steady(sight: Sight, rate: float) -> int:
    service = sight.service
    return fewest(
        rate * service.seconds,
        service.seconds,
        service.cv2,
        sight.promise_seconds,
        sight.allowed_share,
    )
