"""`penstock simulate`: strategies against recorded arrivals, in simulated time."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.installed import is_importable
from penstock.cli.output import Column, note, write_json, write_rows
from penstock.cli.progress import progress_bar
from penstock.cli.scaling.assignments import assignments
from penstock.cli.session import Session
from penstock.config import load, topology
from penstock.config.profiles import Pool, PoolTable
from penstock.decider import plugins
from penstock.decider.core import options
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.model import durations, traces
from penstock.decider.simulator.model import load as loads
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders, study
from penstock.decider.simulator.studies.contenders import BASELINES, BLIND
from penstock.decider.simulator.studies.picture import check_name, draw
from penstock.decider.simulator.studies.study import SimulationResult, Study

_POOL = "simulated"
_OWN_POOL = re.compile(rf"\[pools\.{_POOL}\] |pools\.{_POOL}[.:] ?")
"""Names the simulated pool in an error; the pool stands in no file."""


def _promise(row: SimulationResult) -> str:
    return f"{row.quantile * 100:g} % within {row.sla_seconds:g} s"


def _cost_ratio(row: SimulationResult) -> str:
    return f"{row.cost_ratio:.2f}" if row.cost_ratio else "-"


COLUMNS = (
    Column("trace", lambda row: row.trace),
    Column("promise", _promise),
    Column("spawn", lambda row: f"{row.spawn_seconds:g} s", number=True),
    Column("strategy", lambda row: row.strategy),
    Column("jobs", lambda row: f"{row.jobs:.0f}", number=True, rank=3),
    Column("late", lambda row: f"{row.late_share:.2%}", number=True),
    Column("promise kept", lambda row: "yes" if row.keeps_promise else "no"),
    Column("p50 s", lambda row: f"{row.wait_p50:.2f}", number=True, rank=3),
    Column("p95 s", lambda row: f"{row.wait_p95:.2f}", number=True),
    Column("p99 s", lambda row: f"{row.wait_p99:.2f}", number=True, rank=3),
    Column("max s", lambda row: f"{row.wait_max:.1f}", number=True),
    Column("worker-s", lambda row: f"{row.worker_seconds:.0f}", number=True),
    Column("x bound", _cost_ratio, number=True),
    Column("actions/h", lambda row: f"{row.actions_per_hour:.1f}", number=True),
    Column("reversals/h", lambda row: f"{row.reversals / row.hours:.1f}", number=True, rank=3),
)
_DAY_SECONDS = 86_400.0
_FEW_JOBS = 100.0
"""With fewer jobs a seed may leave none: each is drawn before the run."""
_NICE = 10


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers, with commas between them."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number <= durations.MOST_SECONDS for number in numbers):
            expected = "seconds above 0, up to a year, like 5 or 5,10,30"
            self.fail(f"found {value!r}, expected {expected}", param, ctx)
        return numbers


@click.command(
    cls=Command,
    computes=True,
    example="penstock simulate requests.csv --strategy hybrid,keda:5,peak --sla 10 "
    "--service lognormal:1,1",
)
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    "names",
    default="",
    metavar="NAME[,NAME…]",
    help="Strategies (deadline:N sets its calm) and baselines (keda:N, hpa:SHARE, aws, "
    "flink, horizon, spark, peak, clairvoyant); 'all' that look at jobs; else the profile's own, "
    "hybrid and clairvoyant.",
)
@click.option(
    "--sla",
    "slas",
    type=Numbers(),
    help="Seconds within which a job starts, by the promise; else the profile's, after --set.",
)
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of the jobs for which the promise holds; else the profile's, after --set.",
)
@click.option(
    "--spawn",
    "spawns",
    type=Numbers(),
    default="1",
    show_default=True,
    help="Seconds to start a worker.",
)
@click.option(
    "--service",
    default="lognormal:1,1",
    show_default=True,
    metavar="lognormal:MEAN,CV|column:NAME[,UNIT]",
    help="How long jobs run; UNIT is the seconds that 1 in the column stands for.",
)
@click.option(
    "--thin",
    type=float,
    default=1.0,
    show_default=True,
    metavar="F",
    help="Share of the arrivals to keep; above 1: keep one in F.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="Runs with other random numbers.",
)
@click.option("--time", metavar="COLUMN", help="The time's column, if its name is unusual.")
@click.option("--value", metavar="COLUMN", help="The count's column, if its name is unusual.")
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    metavar="H",
    help="Only the busiest H hours of each trace.",
)
@click.option("--profile", default="balanced", show_default=True, help="The pool's profile.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the pool, as options.queue_size.high_watermark=50 "
    "(min_workers is 0 and max_workers 1000 unless set).",
)
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE", help="Also draw a picture."
)
@click.option(
    "--processes", type=click.IntRange(1, 256), help="Parallel processes; else one per core."
)
@click.pass_obj
def simulate(
    session: Session, /, picture: Path | None, processes: int | None, **options_given: Any
) -> None:
    """Run strategies against recorded arrivals and compare late jobs and cost.

    Traces are CSV files with a time a row, or a time and a count. The same code decides as in
    production; every strategy gets the same jobs.
    """
    if picture is not None:
        check_picture(picture)
    question = _question(session, **options_given)
    rows: list[SimulationResult] = []
    try:
        _run(session, question, processes or len(os.sched_getaffinity(0)), rows)
    except KeyboardInterrupt:
        if rows:
            _show(session, rows)
        raise
    rows = _show(session, rows)
    if picture is not None:
        draw(rows, picture)
        note(f"drawn: {picture}")


def check_picture(path: Path) -> None:
    """Raises Failed, Refused: before hours of computing, not after them."""
    if not is_importable("matplotlib"):
        raise Failed("--picture needs the package matplotlib; install it")
    try:
        check_name(path)
    except ValueError as error:
        raise Refused(f"--picture: {error}") from error


def _run(session: Session, question: Study, processes: int, rows: list[SimulationResult]) -> None:
    """Appends all rows; each is also shown as soon as it is known, above the bar of a terminal."""
    with progress_bar("simulating", wanted=not session.as_json) as progress:
        for row in study.run(question, processes, progress, _NICE):
            rows.append(row)
            if not session.as_json:
                note(_in_short(row))


def _show(session: Session, rows: Sequence[SimulationResult]) -> list[SimulationResult]:
    rows = study.with_known_bounds(rows)
    if session.as_json:
        write_json([_with_ratios(row) for row in rows])
    else:
        write_rows(session, rows, COLUMNS, "nothing was simulated")
    return rows


def _with_ratios(row: SimulationResult) -> dict[str, Any]:
    ratios = ("keeps_promise", "cost_ratio", "actions_per_hour")
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {name: getattr(row, name) for name in ratios}


def _in_short(row: SimulationResult) -> str:
    late, cost = f"{row.late_share:.2%} late", f"{_cost_ratio(row)} x bound"
    return f"{row.trace}, {_promise(row)}, {row.strategy}: {late}, {cost}"


def _question(
    session: Session,
    paths: Sequence[Path],
    names: str,
    slas: tuple[float, ...] | None,
    quantile: float | None,
    spawns: tuple[float, ...],
    service: str,
    thin: float,
    seeds: int,
    time: str | None,
    value: str | None,
    hours: float | None,
    profile: str,
    changes: Sequence[str],
) -> Study:

    strategies = plugins.strategies()
    try:
        run_times = durations.parse(service)
        loads.kept_share(thin)
        pool = _pool(session, profile, changes, strategies)
        contender_names = _names(names, pool.profile.strategy, strategies)
        for name in contender_names:
            contenders.check(name, strategies)
        options.check(pool, strategies)
    except ValueError as error:
        raise Refused(_OWN_POOL.sub("", str(error))) from error
    column = run_times.name if isinstance(run_times, durations.Column) else None
    recorded = [_trace(path, time, value, column, hours, thin) for path in paths]
    question = Study(
        traces=recorded,
        names=contender_names,
        slas=slas or (pool.profile.sla_seconds,),
        quantile=quantile or pool.profile.quantile,
        spawns=[Spawning(seconds=seconds) for seconds in spawns],
        service=service,
        durations=run_times,
        thin=[thin] * len(recorded),
        seeds=seeds,
        profile=pool.profile,
        slots=pool.job_slots,
        strategies=strategies,
    )
    for number, trace in enumerate(recorded):
        _check_jobs(question, number)
        note(_described(trace, run_times))
    return question


def _check_jobs(question: Study, number: int) -> None:
    """Raises Refused where a run would have no job."""
    trace, thin = question.traces[number], question.thin[number]
    if not trace.arrivals:
        raise Refused(f"{trace.name}: no job arrives; check the column {trace.count_column!r}")
    if trace.duration_seconds <= 0:
        raise Refused(f"{trace.name}: found one time only; take more hours (--hours)")
    if trace.arrivals * loads.kept_share(thin) < _FEW_JOBS and not all(
        study.load_of(question, number, seed).arrivals for seed in range(question.seeds)
    ):
        raise Refused(
            f"{trace.name}: of {trace.arrivals:g} jobs no job is left in some of the runs; "
            f"thin them less than by --thin {thin:g}, or take more hours"
        )


def _described(trace: loads.Trace, run_times: durations.Lognormal | durations.Column) -> str:
    """What is simulated: columns, jobs and hours of a trace."""
    counted = f"count: {trace.count_column}" if trace.count_column else "one job a row"
    lasts = trace.duration_seconds / 3600
    text = (
        f"{trace.name}: time: {trace.time_column}; {counted}: {trace.arrivals:.0f} jobs "
        f"in {lasts:.3g} h"
    )
    if isinstance(run_times, durations.Column):
        mean = float(trace.columns[run_times.name].mean()) * run_times.seconds_per_unit
        if mean > _DAY_SECONDS:
            text += (
                f"; a mean run time of {mean:.0f} s: where {run_times.name} is not in seconds, "
                f"give its unit, as column:{run_times.name},0.001 for milliseconds"
            )
    return text


def _names(text: str, usual: str, strategies: Strategies) -> list[str]:

    if not text:
        return list(dict.fromkeys((usual, "hybrid", "clairvoyant")))
    if text == "all":
        return [*(name for name in strategies if name not in BLIND), *BASELINES]
    return [name.strip() for name in text.split(",") if name.strip()]


def _trace(
    path: Path,
    time: str | None,
    value: str | None,
    column: str | None,
    hours: float | None,
    thin: float,
) -> loads.Trace:
    try:
        trace = traces.read(path, time=time, value=value, size=column, exact=True)
        if hours is not None and hours * 3600 > trace.duration_seconds:
            lasts = trace.duration_seconds / 3600
            note(f"{trace.name}: --hours {hours:g} takes all of it, which lasts {lasts:.3g} h")
        elif hours is not None:
            trace = loads.busiest(trace, hours * 3600)
        loads.check_span(trace)
        loads.check_size(trace, thin)
    except (traces.BadTrace, loads.TooMany) as error:
        raise Refused(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error
    if column is not None and trace.counts is not None:
        raise Refused(
            f"{path}: its rows count jobs (column {trace.count_column!r}), so that column:{column} "
            "has no run time of each; use --service lognormal:MEAN,CV"
        )
    return trace


def _pool(session: Session, name: str, changes: Sequence[str], strategies: Strategies) -> Pool:
    """The simulated pool, read as if the pool stood in `penstock.toml`."""

    table: dict[str, Any] = {"profile": name, "min_workers": 0, "max_workers": 1000}
    table |= assignments(changes)
    for setting in table:
        options.check_name(setting, strategies, PoolTable.__struct_fields__)
    flags = {f"pools.{_POOL}.{key}": value for key, value in table.items()}
    return topology.pools(load(session.config_file, flags=flags))[_POOL]
