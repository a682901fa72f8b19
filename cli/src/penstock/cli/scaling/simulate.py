"""`penstock simulate`: strategies against recorded arrivals, in simulated time."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.installed import is_importable
from penstock.cli.output import Column, note, write_rows
from penstock.cli.progress import progress_bar
from penstock.cli.scaling.assignments import assignments
from penstock.cli.session import Session
from penstock.config import load, topology
from penstock.config.profiles import Pool
from penstock.decider import plugins
from penstock.decider.core import options
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.model import durations, traces
from penstock.decider.simulator.model import load as loads
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders, study
from penstock.decider.simulator.studies.contenders import BASELINES, BLIND
from penstock.decider.simulator.studies.picture import draw
from penstock.decider.simulator.studies.study import SimulationResult, Study

_POOL = "simulated"


def _an_hour(count: float, hours: float) -> str:
    """One arrival has no duration, so no rate."""
    return f"{count / hours:.1f}" if hours else "-"


COLUMNS = (
    Column("trace", lambda row: row.trace),
    Column("promise", lambda row: f"{row.quantile * 100:g} % in {row.sla_seconds:g} s"),
    Column("spawn", lambda row: f"{row.spawn_seconds:g} s", number=True),
    Column("strategy", lambda row: row.strategy),
    Column("late", lambda row: f"{row.late_share:.2%}", number=True),
    Column("p50", lambda row: f"{row.wait_p50:.2f}", number=True),
    Column("p95", lambda row: f"{row.wait_p95:.2f}", number=True),
    Column("p99", lambda row: f"{row.wait_p99:.2f}", number=True),
    Column("max s", lambda row: f"{row.wait_max:.1f}", number=True),
    Column("worker-s", lambda row: f"{row.worker_seconds:.0f}", number=True),
    Column("x bound", lambda row: f"{row.cost_ratio:.2f}", number=True),
    Column("actions/h", lambda row: _an_hour(row.actions, row.hours), number=True),
    Column("reversals/h", lambda row: _an_hour(row.reversals, row.hours), number=True),
)


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
    default="30",
    help="Seconds within which a job starts, by the promise.",
)
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Share of the jobs for which the promise holds.",
)
@click.option("--spawn", "spawns", type=Numbers(), default="1", help="Seconds to start a worker.")
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
@click.option("--hours", type=float, metavar="H", help="Only the busiest H hours of each trace.")
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
    if picture is not None and not is_importable("matplotlib"):
        raise Failed("--picture needs the package matplotlib; install it")
    question = _question(session, **options_given)
    rows = _rows(session, question, processes or len(os.sched_getaffinity(0)))
    write_rows(session, rows, COLUMNS, "nothing was simulated")
    if picture is not None:
        draw(rows, picture)
        note(f"drawn: {picture}")


def _rows(session: Session, question: Study, processes: int) -> list[SimulationResult]:
    """All rows. On a terminal a bar shows how far they are, and each is shown as soon as it is
    known."""
    rows: list[SimulationResult] = []
    on_terminal = sys.stderr.isatty() and not session.as_json
    with progress_bar("simulating", wanted=on_terminal) as progress:
        for row in study.run(question, processes, progress):
            rows.append(row)
            if on_terminal:
                note(_in_short(row))
    return rows


def _in_short(row: SimulationResult) -> str:
    promise = f"{row.quantile * 100:g} % in {row.sla_seconds:g} s"
    late, cost = f"{row.late_share:.2%} late", f"{row.cost_ratio:.2f} x bound"
    return f"{row.trace}, {promise}, {row.strategy}: {late}, {cost}"


def _question(
    session: Session,
    paths: Sequence[Path],
    names: str,
    slas: tuple[float, ...],
    quantile: float,
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
        pool = _pool(session, profile, changes)
        contender_names = _names(names, pool.profile.strategy, strategies)
        for name in contender_names:
            contenders.check(name, strategies)
        options.check(pool, strategies)
    except ValueError as error:
        raise Refused(str(error)) from error
    column = run_times.name if isinstance(run_times, durations.Column) else None
    recorded = [_trace(path, time, value, column, hours) for path in paths]
    return Study(
        traces=recorded,
        names=contender_names,
        slas=slas,
        quantile=quantile,
        spawns=[Spawning(seconds=seconds) for seconds in spawns],
        service=service,
        durations=run_times,
        thin=[thin] * len(recorded),
        seeds=seeds,
        profile=pool.profile,
        slots=pool.job_slots,
        strategies=strategies,
    )


def _names(text: str, usual: str, strategies: Strategies) -> list[str]:

    if not text:
        return list(dict.fromkeys((usual, "hybrid", "clairvoyant")))
    if text == "all":
        return [*(name for name in strategies if name not in BLIND), *BASELINES]
    return [name.strip() for name in text.split(",") if name.strip()]


def _trace(
    path: Path, time: str | None, value: str | None, column: str | None, hours: float | None
) -> loads.Trace:

    try:
        trace = traces.read(path, time=time, value=value, size=column)
        trace = trace if hours is None else loads.busiest(trace, hours * 3600)
        loads.check_span(trace)
    except (traces.BadTrace, loads.TooMany, OSError, UnicodeDecodeError) as error:
        text = str(error) if isinstance(error, traces.BadTrace) else f"{path}: {error}"
        raise Refused(text) from error
    return trace


def _pool(session: Session, name: str, changes: Sequence[str]) -> Pool:
    """The simulated pool, read as if the pool stood in `penstock.toml`."""

    table: dict[str, Any] = {"profile": name, "min_workers": 0, "max_workers": 1000}
    table |= assignments(changes)
    flags = {f"pools.{_POOL}.{key}": value for key, value in table.items()}
    return topology.pools(load(session.config_file, flags=flags))[_POOL]
