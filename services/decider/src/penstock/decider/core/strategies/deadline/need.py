"""The workers needed now, so that no job starts late that can still start in time."""

from __future__ import annotations

import msgspec

from penstock.decider.core.strategies.deadline.poisson import most_arrivals
from penstock.decider.core.strategies.deadline.pool_view import (
    LOOK_SECONDS,
    PoolView,
    QueuePosition,
)
from penstock.decider.core.strategies.erlang import fewest
from penstock.decider.core.strategy import whole

_LEAST_SHARE = 0.25
"""Jobs that are (nearly) late are to start within starting a worker and this share of the promise:
without it one job at its last moment would ask for as many workers as there are jobs before it."""
_MARGIN_SHARE = 0.1
"""Share of the promise kept in reserve while one worker, not started yet, is enough."""
_STEP_SHARE = 0.15
"""A need that has grown goes on growing: so much more is requested at once, not in steps."""


class Need(msgspec.Struct, frozen=True):
    """Workers that a pool needs.

    Attributes:
        workers: the fewest.
        requested: to be planned where there are fewer than ``workers``.
        binding: the job that needs them; None: jobs that may arrive do, or none does.
    """

    workers: int
    requested: int
    binding: QueuePosition | None = None


def need(view: PoolView, rate_to_expect: float) -> Need:
    """The fewest workers.

    While a worker started later is early enough, only jobs count that exist: each has to start
    before its deadline. Else workers have to be there before their jobs: for steady traffic by
    Erlang's formula, and for jobs that may arrive before the next look.

    Args:
        view: the pool.
        rate_to_expect: jobs a second while a worker starts.
    """
    ahead = view.blind_seconds > 0 and rate_to_expect > 0
    fewest_now, binding = _walk(view, view.positions)
    if not view.planned and not ahead and _can_wait(view, fewest_now):
        # a worker started at the next look is still early enough: nothing is held for jobs to come
        return Need(0, 0)
    workers = whole(fewest_now)
    requested = whole(fewest_now * (1 + _STEP_SHARE)) if workers > 1 else workers
    if not ahead:
        return Need(workers, requested, binding)
    coming = whole(_walk(view, (_coming(view, rate_to_expect),))[0])
    before = max(coming, _steady(view, rate_to_expect))
    return Need(
        max(workers, before), max(requested, before), binding if workers >= before else None
    )


def last_moment_seconds(view: PoolView) -> float:
    """Time left to a job at which a worker has to be started for it, if there is none."""
    margin = _MARGIN_SHARE * view.promise_seconds
    return view.spawn.p95_seconds + 2 * LOOK_SECONDS + margin


def least_seconds(view: PoolView, together: float = 1.0) -> float:
    """The time that is always granted to a job, see `_LEAST_SHARE`."""
    return view.spawn_seconds(together) + _LEAST_SHARE * view.promise_seconds


def _walk(
    view: PoolView, positions: tuple[QueuePosition, ...], later_seconds: float = 0.0
) -> tuple[float, QueuePosition | None]:
    """May be broken. Starting many together takes longer, which takes some more."""
    most, binding = _walked(view, positions, later_seconds, 1.0)
    together = most - view.planned
    # starting many takes longer, which needs some more: one further pass is close enough
    if together > 1 and view.spawn.contention_seconds > 0:
        return _walked(view, positions, later_seconds, together)
    return most, binding


def _walked(
    view: PoolView, positions: tuple[QueuePosition, ...], later_seconds: float, together: float
) -> tuple[float, QueuePosition | None]:
    worker_groups, least = view.worker_groups(together), least_seconds(view, together)
    most, binding = 0.0, None
    for position in positions:
        seconds = position.seconds - later_seconds
        workers = worker_groups.fewest(position.place, seconds if seconds > least else least)
        if workers > most:
            most, binding = workers, position
    return most, binding


def _can_wait(view: PoolView, fewest_now: float) -> bool:
    """One worker would do, also if it is started at the next look, and there is time for that."""
    if not view.positions:
        return True
    if fewest_now > 1 or view.positions[0].seconds <= last_moment_seconds(view):
        return False
    return _walk(view, view.positions, LOOK_SECONDS)[0] <= 1


def _coming(view: PoolView, rate: float) -> QueuePosition:
    """The last of the jobs that may arrive before the next look."""
    most = most_arrivals(rate * LOOK_SECONDS, view.allowed_share)
    return QueuePosition(view.waiting + max(most, 1), view.promise_seconds, is_waiting=False)


def _steady(view: PoolView, rate: float) -> int:
    service = view.service
    return fewest(
        rate * service.seconds,
        service.seconds,
        service.cv2,
        view.promise_seconds,
        view.allowed_share,
    )
