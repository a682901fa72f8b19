"""The simulator for programs: arrivals and settings in, one result a strategy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from penstock.config import Pool, topology
from penstock.config.load import check as checked_settings
from penstock.decider import plugins
from penstock.decider.core import options
from penstock.decider.simulator.model import durations, traces
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders, study
from penstock.decider.simulator.studies.study import SimulationResult, Study

_POOL = "simulated"
_RUN_SECONDS = "run_seconds"


def simulate(
    arrivals: Trace | str | Path | Sequence[float] | Sequence[datetime],
    pool: Mapping[str, Any] | Pool | None = None,
    *,
    strategies: Sequence[str] = (),
    run_seconds: str | float | Sequence[float] = "lognormal:1,1",
    spawn_seconds: float = 1.0,
    seeds: int = 5,
    processes: int = 1,
) -> list[SimulationResult]:
    """Lets recorded jobs arrive again, decided upon by the code that decides in production.

    Args:
        arrivals: when jobs could start: a CSV file with a time a row, or a time and a count (see
            :func:`read_trace`); or times, as POSIX seconds or ``datetime`` with a zone.
        pool: settings as of ``[pools.NAME]`` in ``penstock.toml``, such as ``{"profile": "bursty",
            "sla_seconds": 10}``; or a pool that was loaded. None for the usual profile.
        strategies: names of strategies and baselines, as for ``penstock simulate --strategy``;
            empty for that of the pool.
        run_seconds: how long jobs run: ``lognormal:MEAN,CV``, ``column:NAME``, one number for all
            jobs, or one for each arrival.
        spawn_seconds: how long a worker takes to start.
        seeds: runs with other random numbers, whose means the results are.
        processes: that simulate at a time; more than one are forked.

    Returns:
        One result a strategy, in the order of ``strategies``.

    Raises:
        ValueError: something cannot be simulated: says what was found and what was expected. Its
            subclasses are ConfigError (settings), BadTrace (arrivals), UnknownContender (a name).
        OSError: the file cannot be read.
    """
    if seeds < 1 or not spawn_seconds > 0:
        raise ValueError(
            f"found seeds={seeds} and spawn_seconds={spawn_seconds:g}, expected 1 or more seeds, "
            "and more than 0 seconds"
        )
    run_times = _durations(run_seconds)
    column = run_times.name if isinstance(run_times, durations.Column) else None
    trace = _trace(arrivals, run_seconds, column)
    settings = pool if isinstance(pool, Pool) else _pool(pool or {})
    installed = plugins.strategies()
    names = list(strategies) or [settings.profile.strategy]
    for name in names:
        contenders.check(name, installed)
    options.check(settings, installed)
    question = Study(
        traces=[trace],
        names=names,
        slas=[settings.profile.sla_seconds],
        quantile=settings.profile.quantile,
        spawns=[Spawning(seconds=spawn_seconds)],
        service=run_seconds if isinstance(run_seconds, str) else "given",
        durations=run_times,
        thin=[1.0],
        seeds=seeds,
        profile=settings.profile,
        strategies=installed,
    )
    return list(study.run(question, processes))


def read_trace(
    path: str | Path, *, time: str | None = None, value: str | None = None, size: str | None = None
) -> Trace:
    """The arrivals in a CSV file; columns are found by their usual names.

    Counts that are whole numbers are kept: so many jobs arrive, at random times until the next row.

    Args:
        path: of the file.
        time: name of the column of times, where it is unusual.
        value: name of the column of counts, where it is unusual.
        size: a column to keep, for ``run_seconds="column:NAME"``.

    Raises:
        BadTrace: the file holds no arrivals.
        OSError: it cannot be read.
    """
    return traces.read(Path(path), time=time, value=value, size=size, exact=True)


def _durations(
    run_seconds: str | float | Sequence[float],
) -> durations.Lognormal | durations.Column:
    if isinstance(run_seconds, str):
        return durations.parse(run_seconds)
    if isinstance(run_seconds, int | float):
        return durations.parse(f"lognormal:{run_seconds},0")
    return durations.Column(_RUN_SECONDS)


def _trace(
    arrivals: Trace | str | Path | Sequence[float] | Sequence[datetime],
    run_seconds: str | float | Sequence[float],
    column: str | None,
) -> Trace:
    if isinstance(arrivals, Trace):
        return arrivals
    if isinstance(arrivals, str | Path):
        return read_trace(arrivals, size=column)
    moments = np.array([_posix(moment) for moment in arrivals], dtype=float)
    if not len(moments) or not np.isfinite(moments).all():
        raise traces.BadTrace(f"found {len(moments)} arrivals, expected one or more finite times")
    order = np.argsort(moments, kind="stable")
    origin = float(moments[order[0]])
    columns = {}
    if column == _RUN_SECONDS and not isinstance(run_seconds, str | int | float):
        seconds = np.asarray(run_seconds, dtype=float)
        if len(seconds) != len(moments) or not (seconds >= 0).all():
            raise ValueError(
                f"found {len(seconds)} run times for {len(moments)} arrivals, expected one of zero "
                "or more seconds for each"
            )
        columns[_RUN_SECONDS] = seconds[order]
    return Trace(name="arrivals", origin=origin, times=moments[order] - origin, columns=columns)


def _posix(moment: float | datetime) -> float:
    if not isinstance(moment, datetime):
        return float(moment)
    if moment.tzinfo is None:
        raise traces.BadTrace(f"found {moment.isoformat()}, expected a time with its zone")
    return moment.timestamp()


def _pool(table: Mapping[str, Any]) -> Pool:
    """The pool, read as if its table stood in `penstock.toml`."""
    return topology.pools(checked_settings({"pools": {_POOL: dict(table)}}))[_POOL]
