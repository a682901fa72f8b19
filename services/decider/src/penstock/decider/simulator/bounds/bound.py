"""A lower bound of worker-seconds that keep the promise, with all arrivals and run times known.

Jobs may be split, and their order is free, which no real fleet can do: what comes out is below
everything that is possible. The promise lets a share of the jobs start late: each costs a price,
and whatever the price, the cheapest schedule's value less the price of the allowed share is a
bound; the price that makes it highest is looked for (Lagrangian duality).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from penstock.decider.simulator.bounds.fluid import fluid
from penstock.decider.simulator.bounds.stretches import Stretches, backwards, cut
from penstock.decider.simulator.model.load import Load

_STRETCH_SECONDS = 1800.0
_SHORTEST, _LONGEST = 0.25, 2.0
_STEPS_A_PROMISE = 10
_SAMPLED_STRETCHES = 5
"""The price is looked for on so many stretches."""
_PLENTY_WORKERS, _USUALLY = 3.0, 0.1
_LOOKS = 6
_TOGETHER = 512
"""Stretches in the arrays at once: their memory is bounded, however long the load."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_CHEAPEST = 1e-3


def step_seconds(sla_seconds: float) -> float:
    """A grid fine enough for a promise."""
    return min(max(sla_seconds / _STEPS_A_PROMISE, _SHORTEST), _LONGEST)


def bound_worker_seconds(
    load: Load, *, sla_seconds: float, late_share: float, spawn_seconds: float
) -> float:
    """Least worker-seconds for which no more than ``late_share`` of the jobs start late.

    A stretch with hardly ever less than some workers' work in it costs its work, and nothing worth
    computing besides.
    """
    if not load.arrivals:
        return 0.0
    parts = cut(fluid(load, sla_seconds, step_seconds(sla_seconds)), _STRETCH_SECONDS)
    work = sum(load.services)
    light = np.quantile(parts.limit, _USUALLY, axis=1) < _PLENTY_WORKERS * sla_seconds
    numbers = np.flatnonzero(light)
    if not len(numbers):
        return work + spawn_seconds
    sample = numbers[:: math.ceil(len(numbers) / _SAMPLED_STRETCHES)]
    allowed = late_share * len(load.arrivals)
    price = _best(
        lambda tried: (
            _value(parts.some(sample), spawn_seconds, tried)
            - tried * allowed * len(sample) / len(numbers)
        ),
        dearest=spawn_seconds + sla_seconds + work / len(load.arrivals),
    )
    heavy = float(parts.came[~light].sum())
    best = heavy + _value(parts.some(numbers), spawn_seconds, price) - price * allowed
    return max(best, work + spawn_seconds)


def _value(parts: Stretches, spawn_seconds: float, price: float) -> float:
    """Each stretch may begin with as many workers as it likes, but the first one with none."""
    costs = np.concatenate(
        [
            next(cost for step, cost in backwards(group, spawn_seconds, price) if step == 0)[:, 0]
            for group in parts.groups(_TOGETHER)
        ]
    )
    return float(costs[0, 0] + costs[1:].min(axis=1).sum())


def _best(value: Callable[[float], float], dearest: float) -> float:
    """The price with the highest value, by golden-section search over its logarithm."""
    low, high = math.log(dearest * _CHEAPEST), math.log(dearest)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(math.exp(left)), value(math.exp(right))
    for _ in range(_LOOKS - 2):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(math.exp(right))
    return math.exp(left if at_left > at_right else right)
