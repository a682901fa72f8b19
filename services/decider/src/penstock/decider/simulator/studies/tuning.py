"""The best settings of a pool: its recorded days, simulated under each of them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.config import ConfigError, Pool, Profile
from penstock.config.explain import explain
from penstock.config.load import nested
from penstock.config.profiles import ProfileOverride
from penstock.decider import plugins
from penstock.decider.core import options
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.model.load import Load
from penstock.decider.simulator.model.looks import Pace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies.contenders import Scene, controller
from penstock.decider.simulator.studies.study import figures

Floats = NDArray[np.float64]
AS_IT_IS = "as it is"
MOST_SETTINGS = 1000
_LOOKS_A_PROMISE = 10
"""The pool is looked at so often within its promise: seldom enough to be quick."""
_QUIET_SECONDS = 60.0
_CERTAIN = NormalDist().inv_cdf(0.9)

Settings = Mapping[str, Mapping[str, Any]]
"""Changed settings of a pool's profile by dotted name, under a name of their own."""


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's jobs of a day, or some hours of it, under one setting.

    Attributes:
        hours: that were simulated.
        late: jobs that started later than promised.
        wait_p95_seconds: from being due to the start.
        actions: changes of the number of workers.
    """

    setting: str
    hours: float
    jobs: int
    late: float
    wait_p95_seconds: float
    worker_seconds: float
    actions: float


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """A pool under one setting, over all days. ``worker_hours``, ``actions``: a day."""

    pool: str
    setting: str
    days: int
    jobs: int
    late_share: float
    wait_p95_seconds: float
    worker_hours: float
    actions: float
    best: bool = False
    """The cheapest that keeps the promise, not by luck; where none does, that with fewest late."""
    frontier: bool = False
    """None of the others is both cheaper and less often late."""


def combinations(choices: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Every choice of one setting with every one of the others.

    Raises:
        ConfigError: too many.
    """
    count = int(np.prod([len(values) for values in choices.values()], dtype=float))
    if count > MOST_SETTINGS:
        raise ConfigError(f"found {count} combinations of settings, expected {MOST_SETTINGS}")
    combinations = itertools.product(*choices.values())
    tables = [dict(zip(choices, values, strict=True)) for values in combinations]
    return {", ".join(f"{name}={value}" for name, value in t.items()): t for t in tables if t}


def changed(pool: Pool, table: Mapping[str, Any]) -> Pool:
    """The pool with other settings. Raises ConfigError: a name or a value that cannot be."""
    tree = nested(table)
    try:
        override = msgspec.convert(tree, ProfileOverride, strict=False)
    except msgspec.ValidationError as error:
        text = explain(str(error), tree, {}, root=ProfileOverride, above=("pools", pool.name))
        raise ConfigError(text) from error
    return msgspec.structs.replace(pool, profile=override.over(pool.profile))


def check(pools: Iterable[Pool], settings: Settings) -> None:
    """Raises ConfigError: settings that mean nothing."""
    strategies = plugins.strategies()
    for name in dict.fromkeys(itertools.chain.from_iterable(settings.values())):
        options.check_name(name, strategies)
    for pool, table in itertools.product(pools, settings.values()):
        options.check(changed(pool, table), strategies)


def simulate(
    pools: Mapping[str, Pool],
    settings: Settings,
    spawn_seconds: float,
    pool: str,
    origin: float,
    hours: float,
    arrivals: Floats,
    services: Floats,
) -> list[Day]:
    """A stretch of a pool's jobs under each setting, and as it is.

    Args:
        origin: POSIX seconds of the stretch.
        arrivals: seconds from there, in order.
        services: how long each of the jobs runs, in seconds.
    """
    if pool not in pools:
        return []
    load = Load(
        origin=origin,
        arrivals=arrivals.tolist(),
        services=services.tolist(),
        duration_seconds=hours * 3600.0,
    )
    days: list[tuple[Profile, Day]] = []
    for name, table in {AS_IT_IS: {}, **settings}.items():
        profile = changed(pools[pool], table).profile
        same = next((day for simulated, day in days if simulated == profile), None)
        day = same or _day(profile, pools[pool].job_slots, load, spawn_seconds)
        days.append((profile, msgspec.structs.replace(day, setting=name)))
    return [day for _, day in days]


@cache
def _strategies() -> Strategies:
    """To look through the installed packages takes a tenth of a simulated day."""
    return plugins.strategies()


def _day(profile: Profile, slots: int, load: Load, spawn_seconds: float) -> Day:
    scene = Scene(
        load=load,
        profile=profile,
        strategies=_strategies(),
        spawning=Spawning(seconds=spawn_seconds),
        seed=0,
        pace=Pace(
            interval_seconds=max(1.0, profile.sla_seconds / _LOOKS_A_PROMISE),
            quiet_seconds=_QUIET_SECONDS,
        ),
        slots=slots,
    )
    result = figures(scene.run(controller(profile.strategy, scene)), profile.sla_seconds)
    return Day(
        setting="",
        hours=load.duration_seconds / 3600.0,
        jobs=len(load.arrivals),
        late=result.late_share * len(load.arrivals),
        wait_p95_seconds=result.wait_p95,
        worker_seconds=result.worker_seconds,
        actions=result.actions,
    )


def sum_up(days: Iterable[tuple[str, Day]], pools: Mapping[str, Pool]) -> list[Outlook]:
    """The settings of each pool, with marks on the best one and on those that none beats.

    Args:
        days: with the pool's name.
    """
    by_pool: dict[str, dict[str, list[Day]]] = defaultdict(lambda: defaultdict(list))
    for pool, day in days:
        by_pool[pool][day.setting].append(day)
    return [
        outlook
        for name, settings in sorted(by_pool.items())
        for outlook in _marked(
            [_outlook(name, simulated) for simulated in settings.values()],
            1 - pools[name].profile.quantile,
        )
    ]


def _outlook(pool: str, days: Sequence[Day]) -> Outlook:
    hours, jobs = sum(day.hours for day in days), sum(day.jobs for day in days)
    return Outlook(
        pool=pool,
        setting=days[0].setting,
        days=len(days),
        jobs=jobs,
        late_share=sum(day.late for day in days) / max(jobs, 1),
        wait_p95_seconds=sum(day.wait_p95_seconds * day.jobs for day in days) / max(jobs, 1),
        worker_hours=sum(day.worker_seconds for day in days) / 3600.0 / hours * 24,
        actions=sum(day.actions for day in days) / hours * 24,
    )


def _marked(rows: Sequence[Outlook], allowed_share: float) -> list[Outlook]:
    kept = [row for row in rows if _upper_late_share(row) <= allowed_share]
    best = (
        min(kept, key=lambda row: (row.worker_hours, row.late_share))
        if kept
        else min(rows, key=lambda row: (row.late_share, row.worker_hours))
    )
    return [
        msgspec.structs.replace(row, best=row is best, frontier=not _is_beaten(row, rows))
        for row in sorted(rows, key=lambda row: row.worker_hours)
    ]


def _upper_late_share(row: Outlook) -> float:
    """Upper bound of a share with a certainty of 90 % (Wilson 1927, one-sided)."""
    share, jobs, square = row.late_share, max(row.jobs, 1), _CERTAIN * _CERTAIN
    spread = math.sqrt(share * (1 - share) / jobs + square / (4 * jobs * jobs))
    return (share + square / (2 * jobs) + _CERTAIN * spread) / (1 + square / jobs)


def _is_beaten(row: Outlook, rows: Sequence[Outlook]) -> bool:
    return any(
        other.worker_hours <= row.worker_hours
        and other.late_share <= row.late_share
        and (other.worker_hours, other.late_share) != (row.worker_hours, row.late_share)
        for other in rows
    )
