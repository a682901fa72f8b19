"""`penstock tune`: the best settings of each pool, by its recorded days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.installed import required
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import LAKE, MASTER, POOL, SECONDS
from penstock.cli.scaling.assignments import toml_value
from penstock.cli.scaling.simulate import check_picture
from penstock.cli.session import Session
from penstock.config import Pool
from penstock.config.topology import pools as configured_pools
from penstock.decider.simulator.studies import pareto, tuning
from penstock.decider.simulator.studies.tuning import Outlook
from penstock.events.envelope import utc_now

CHOICES: dict[str, Sequence[Any]] = {"strategy": ["deadline", "hybrid"], "min_workers": [0, 1, 2]}
"""Tried where no ``--try`` is given."""
COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("settings", lambda row: row.setting),
    Column("days", lambda row: str(row.days), number=True),
    Column("jobs", lambda row: str(row.jobs), number=True),
    Column("late", lambda row: f"{row.late_share:.2%}", number=True),
    Column("p95 s", lambda row: f"{row.wait_p95_seconds:.1f}", number=True),
    Column("worker-h/day", lambda row: f"{row.worker_hours:.2f}", number=True),
    Column("actions/day", lambda row: f"{row.actions:.0f}", number=True),
    Column("", lambda row: "best" if row.best else ""),
)
CAVEAT = (
    "Simulated, with the jobs' recorded arrivals and run times; nothing was changed. "
    "Settings that look good on few jobs may have been lucky."
)


SINCE = click.option("--since", type=SECONDS, default="7d", show_default=True, help="How far back.")
HOURS = click.option(
    "--hours",
    type=click.FloatRange(0.1, 24),
    default=24.0,
    show_default=True,
    help="Hours of each day, other ones each day: 2 take a twelfth of the time.",
)
SPAWN = click.option(
    "--spawn",
    type=SECONDS,
    default="2s",
    show_default=True,
    help="Start time of a worker.",
)


@click.command(
    cls=Command,
    computes=True,
    example="penstock tune --lake /data/lake --since 14d --hours 2 --picture pareto.svg\n"
    "penstock tune --lake /data/lake --pool reports --try min_workers=0,1,3 --try strategy=hybrid",
)
@LAKE
@MASTER
@SINCE
@click.option("--pool", type=POOL, help="Only this pool.")
@click.option(
    "--try",
    "choices",
    multiple=True,
    metavar="NAME=VALUE[,VALUE…]",
    help="A setting of pools and values to try; each is combined with each of the others.",
)
@SPAWN
@HOURS
@click.option("--all", "everything", is_flag=True, help="Show every setting that was tried.")
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE", help="Also draw a picture."
)
@click.pass_obj
def tune(
    session: Session,
    /,
    choices: Sequence[str],
    everything: bool,
    picture: Path | None,
    **wanted: Any,
) -> None:
    """Simulate each pool's recorded days under many settings and recommend the best.

    The best is the cheapest that keeps the pool's promise. The production core decides in the
    simulation; Spark spreads the days over its cores. Nothing is applied.
    """
    if picture is not None:
        check_picture(picture)
    tables = _combinations(choices)
    pools, rows = simulate_days(session, tables, **wanted)
    if session.as_json:
        write_json([_summary(name, rows) for name in dict.fromkeys(row.pool for row in rows)])
    else:
        shown = [row for row in rows if everything or row.best or row.setting == "as it is"]
        write_rows(session, shown, COLUMNS, nothing_came())
        write_line(CAVEAT)
    if picture is not None and rows:
        allowed = {name: 1 - pool.profile.quantile for name, pool in pools.items()}
        pareto.draw(rows, allowed, picture)
        note(f"drawn: {picture}")


def nothing_came() -> str:
    """The remark where no job was found: on the first day there is no whole day yet."""
    midnight = utc_now().replace(hour=0, minute=0, second=0, microsecond=0)
    return (
        f"no job of a pool came in whole days (UTC) up to {midnight:%Y-%m-%d %H:%M}, the last "
        "midnight: jobs of today count from tomorrow on; 'penstock simulate' takes a recording of "
        "any length"
    )


def simulate_days(
    session: Session,
    tables: Mapping[str, Mapping[str, Any]],
    lake: str,
    master: str,
    since: float,
    pool: str | None,
    spawn: float,
    hours: float,
) -> tuple[dict[str, Pool], list[Outlook]]:
    """Simulates the recorded days of pools under several settings, on Spark.

    Args:
        session: of this command.
        tables: settings of pools by a name for them; the present ones are simulated, too.
        lake: the lake's folder.
        master: Spark's.
        since: seconds to go back, in whole days.
        pool: only this one; None for all.
        spawn: seconds that a worker takes to start.
        hours: simulated hours of each day.

    Returns:
        The pools by name, and a row for each pool and setting.

    Raises:
        Refused: no such pool is configured.
        Failed: the lake holds nothing to simulate.
    """
    with required("penstock-pipeline"):
        from penstock.pipeline.analysis import whatif  # noqa: PLC0415 - loads Spark

    configured = configured_pools(session.settings())
    pools = {name: one for name, one in configured.items() if pool in (None, name)}
    if not pools:
        raise Refused(f"found no pool {pool!r} in the settings" if pool else "found no pool")
    tuning.check(pools.values(), tables)
    begin, end = whatif.days_back(since / 86_400, utc_now())
    wanted = whatif.Wanted(
        lake=lake, master=master, since=begin, until=end, pool=pool or "", hours=hours
    )
    try:
        simulate = partial(tuning.simulate, pools, tables, spawn)
        days = whatif.simulate(pools, wanted, simulate, tuning.Day)
    except ValueError as error:
        raise Failed(str(error)) from error
    return pools, tuning.sum_up(days, pools)


def _combinations(choices: Sequence[str]) -> dict[str, dict[str, Any]]:
    tried: dict[str, list[Any]] = {}
    for text in choices:
        name, mark, values = text.partition("=")
        if not mark or not values:
            raise Refused(f"--try: found {text!r}, expected NAME=VALUE[,VALUE…]")
        tried.setdefault(name.strip(), []).extend(
            toml_value(value.strip()) for value in values.split(",")
        )
    return tuning.combinations(tried or CHOICES)


def _summary(pool: str, rows: Sequence[Outlook]) -> dict[str, Any]:
    pool_rows = [row for row in rows if row.pool == pool]
    return {
        "pool": pool,
        "recommended": next(row for row in pool_rows if row.best),
        "as_it_is": next(row for row in pool_rows if row.setting == "as it is"),
        "settings": pool_rows,
    }
