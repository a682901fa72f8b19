"""The workers needed now, so that no job starts late that can still start in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from penstock.decider.core.strategies.deadline.poisson import most_arrivals
from penstock.decider.core.strategies.deadline.pool_view import (
    LOOK_SECONDS,
    PoolView,
    QueuePosition,
)
from penstock.decider.core.strategies.erlang import fewest
from penstock.decider.core.strategy import whole

_MARGIN_SHARE = 0.15
"""Jobs that are (nearly) late are to start within starting a worker and this share of the promise:
without it one job at its last moment would ask for as many workers as there are jobs before it. The
last moment is a look earlier, and up to two as the error budget is used."""
_MOST_CAUTION = 0.5
"""Share of the safety for jobs with a second chance, once the error budget is used."""
_FURTHER_SHARE = 0.1
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
    if view.blind_seconds > 0 and rate_to_expect > 0:
        return _need_ahead(view, rate_to_expect)
    if not view.planned and _can_wait(view):
        # a worker started at the next look is still early enough: nothing is held for jobs to come
        return Need(0, 0)
    fewest_now, binding = _walk(view, _to_last_moment(view))
    workers = whole(fewest_now)
    return Need(workers, _requested(workers), binding)


def _need_ahead(view: PoolView, rate: float) -> Need:
    """Where a worker is ready only after the promise: chance counts in full from the start."""
    fewest_now, binding = _walk(view, view.positions)
    workers = whole(fewest_now)
    coming = whole(_walk(view, (_coming(view, rate),))[0])
    before = max(coming, _steady(view, rate))
    most = max(workers, before)
    return Need(most, _requested(most), binding if workers >= before else None)


def _requested(workers: int) -> int:
    return workers + math.floor(workers * _FURTHER_SHARE)


def _to_last_moment(view: PoolView) -> list[QueuePosition]:
    """The jobs that wait, each with the safety that it is judged with.

    A job that a worker started at the next look could still take has a second chance: for it the
    mean counts, and chance only as far as the error budget is used. For one at its last moment,
    chance counts in full.
    """
    last, positions = last_moment_seconds(view), view.positions
    used = _MOST_CAUTION * view.budget_used_share
    judged = [
        position
        if position.seconds <= last
        else QueuePosition(position.place, position.seconds, safety_share=used)
        for position in positions
    ]
    for older, newer in pairwise(positions):
        if older.seconds <= last < newer.seconds:
            between = (last - older.seconds) / (newer.seconds - older.seconds)
            place = older.place + between * (newer.place - older.place)
            judged.append(QueuePosition(place, last))
    return judged


def last_moment_seconds(view: PoolView) -> float:
    """Time left to a job at which a worker has to be started for it, if none is free in time."""
    margin = _MARGIN_SHARE * view.promise_seconds
    looks = 1.0 + view.budget_used_share
    return view.spawn.p95_seconds + looks * LOOK_SECONDS + margin


def _walk(
    view: PoolView, positions: Sequence[QueuePosition], later_seconds: float = 0.0
) -> tuple[float, QueuePosition | None]:
    """May be broken. Starting many together takes longer, which takes some more."""
    most, binding = _walked(view, positions, later_seconds, 1.0)
    together = most - view.planned
    # starting many takes longer, which needs some more: one further pass is close enough
    if together > 1 and view.spawn.contention_seconds > 0:
        return _walked(view, positions, later_seconds, together)
    return most, binding


def _walked(
    view: PoolView, positions: Sequence[QueuePosition], later_seconds: float, together: float
) -> tuple[float, QueuePosition | None]:
    shares = {position.safety_share for position in positions}
    margin = _MARGIN_SHARE * view.promise_seconds
    groups = {share: view.worker_groups(together, share, margin) for share in shares}
    # not of so many together: existing workers would get time by it, and a tighter promise, which
    # starts more, could ask for fewer
    least = view.spawn_seconds() + margin
    most, binding = 0.0, None
    for position in positions:
        seconds = position.seconds - later_seconds
        workers = groups[position.safety_share].fewest(
            position.place, seconds if seconds > least else least
        )
        if workers > most:
            most, binding = workers, position
    return most, binding


def _can_wait(view: PoolView) -> bool:
    """One worker would do, also if it is started at the next look, and there is time for that."""
    if not view.positions:
        return True
    if view.positions[0].seconds <= last_moment_seconds(view) or not view.spawn_measured:
        return False  # the first start of all shows how long one takes
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
