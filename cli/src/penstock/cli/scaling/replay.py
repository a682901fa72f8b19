"""`penstock replay`: past decisions computed again, and proved equal or compared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.errors import FAILED, Failed, Refused
from penstock.cli.output import Column, write_json, write_lines, write_rows
from penstock.cli.parameters import POOL, SECONDS
from penstock.cli.progress import progress_bar, progress_lines
from penstock.cli.scaling import recorded_arrivals, recorded_rounds
from penstock.cli.scaling.assignments import assignments
from penstock.cli.scaling.recorded_rounds import Span
from penstock.cli.scaling.tune import COLUMNS as ON_SPARK
from penstock.cli.scaling.tune import nothing_came, simulate_days
from penstock.cli.scaling.verdict_text import sentences
from penstock.cli.session import Session
from penstock.config import Pool, Settings
from penstock.decider.program import program
from penstock.decider.publishing.adopting import Adopted
from penstock.decider.replay import stretches, whatif
from penstock.decider.replay.recompute import recorded_settings
from penstock.decider.replay.whatif import Change, Comparison
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.views import wording

COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("decisions", lambda row: str(row.rounds), number=True),
    Column("unlike", lambda row: str(row.unlike), number=True),
    Column("worker-s", lambda row: f"{row.recorded_worker_seconds:.0f}", number=True),
    Column("would be", lambda row: f"{row.other_worker_seconds:.0f}", number=True),
    Column("actions", lambda row: str(row.recorded_actions), number=True),
    Column("would be", lambda row: str(row.other_actions), number=True),
)
SIMULATED = (
    Column("settings", lambda row: row.settings),
    Column("jobs", lambda row: str(row.jobs), number=True),
    Column("late", lambda row: f"{row.late_share:.2%}", number=True),
    Column("p95 s", lambda row: f"{row.wait_p95:.2f}", number=True),
    Column("max s", lambda row: f"{row.wait_max:.1f}", number=True),
    Column("worker-s", lambda row: f"{row.worker_seconds:.0f}", number=True),
    Column("actions", lambda row: f"{row.actions:.0f}", number=True),
)
_WEEK_SECONDS = 7 * 86_400.0
CAVEAT = (
    "The queues are as they were measured: with other workers they would have been longer or "
    "shorter. '--simulate' lets the recorded jobs arrive again."
)
_SIMULATED_CAVEAT = (
    "'as set' are the pool's latest settings, not what happened: hosts have room for every worker, "
    "each starts within the time given, and no job fails. 'penstock report' says what happened."
)


@click.command(
    cls=Command,
    computes=True,
    example="penstock replay --since 2h\n"
    "penstock replay --since 1d --pool reports --set pools.reports.sla_seconds=10\n"
    "penstock replay --on-spark --lake /data/lake --since 30d --set pools.*.min_workers=2",
)
@click.option("--since", type=SECONDS, help="Start this long ago, such as 90s, 10m, 2h; else all.")
@click.option("--until", type=SECONDS, help="End this long ago.")
@click.option("--pool", type=POOL, help="Compare only the decisions of this pool.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read a saved log; no broker is needed.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep the log in a file.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Decide by another setting, such as pools.reports.sla_seconds=10, and compare.",
)
@click.option(
    "--simulate",
    "spawn",
    type=SECONDS,
    metavar="TIME",
    help="With --set and --pool: let the jobs of the log arrive again under both, and with a "
    "fixed fleet, a worker starting within TIME.",
)
@click.option(
    "--most-jobs",
    type=click.IntRange(min=1),
    help="With --simulate: refuse a part of the log in which more jobs arrived.",
)
@click.option(
    "--progress",
    "shows_progress",
    is_flag=True,
    help="With --simulate: write the share that is done to standard error, for programs.",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), help="Parallel processes; else one per core."
)
@click.option(
    "--on-spark",
    is_flag=True,
    help="With --set and --lake: simulate all recorded jobs, spread over Spark's cores.",
)
@click.option("--lake", metavar="DIR", help="With --on-spark: the lake's folder.")
@click.option(
    "--master",
    default="local[2]",
    show_default=True,
    help="With --on-spark: Spark master to run on.",
)
@click.pass_obj
def replay(
    session: Session,
    /,
    since: float | None,
    until: float | None,
    pool: str | None,
    source: Path | None,
    save: Path | None,
    changes: Sequence[str],
    spawn: float | None,
    most_jobs: int | None,
    shows_progress: bool,
    processes: int | None,
    on_spark: bool,
    lake: str | None,
    master: str,
) -> None:
    """Compute past decisions again from the log and prove them equal, bit for bit.

    Exit code 0 only if every decision is equal. With --set: what other settings would have decided
    from the same measurements.
    """
    if on_spark or lake is not None:
        if not (on_spark and lake and changes) or source or save or until:
            raise Refused("--on-spark needs --lake and --set, and reads only the lake")
        _simulate_lake(session, lake, master, since or _WEEK_SECONDS, pool, spawn or 2.0, changes)
        return
    if source is not None and (since, until, save) != (None, None, None):
        raise Refused("--from reads a whole file; --since, --until and --save read the broker")
    if spawn is not None and (source or save or not changes or pool is None):
        raise Refused(
            "--simulate needs --set, --pool and the broker's event log (no --from, --save)"
        )
    change = whatif.change(assignments(changes)) if changes else None
    span = _span(since, until, pool)
    if spawn is not None and change is not None:
        _simulate(session, span, change, spawn, most_jobs, shows_progress)
        return
    with _log(session, source, save, span) as path:
        if change is not None:
            _compare(session, path, change, pool)
        else:
            _verify(session, path, pool, processes or len(os.sched_getaffinity(0)))


def _verify(session: Session, path: Path, pool: str | None, processes: int) -> None:
    with progress_bar("recomputing") as show:
        verdict = stretches.verify(path, pool, processes, show)
    if session.as_json:
        write_json({"equal": verdict.is_equal, "program": program(), "verdict": verdict})
    else:
        write_lines(sentences(verdict, program()))
    if not verdict.is_equal:
        click.get_current_context().exit(FAILED)


def _compare(session: Session, path: Path, change: Change, pool: str | None) -> None:
    rows = whatif.compare(
        stretches.entries(path), stretches.settings(path), stretches.installed(), change, pool
    )
    write_rows(session, rows, COLUMNS, "no decision is in this part of the log")
    if rows and not session.as_json:
        write_lines([*_examples(rows), CAVEAT])


def _simulate(
    session: Session,
    span: Span,
    change: Change,
    spawn: float,
    most_jobs: int | None,
    shows_progress: bool,
) -> None:
    name = span.pool or ""
    with (progress_lines if shows_progress else progress_bar)("simulating") as show:

        async def read(bus: Bus, settings: Settings) -> tuple[dict[str, Pool], Any]:
            subjects = Subjects(settings.prefix)
            entries = await recorded_rounds.settings_entries(bus, subjects)
            pools = _both(name, change, list(recorded_settings(entries).values()))
            return pools, await recorded_arrivals.read(
                bus, subjects, span, pools["as set"], most_jobs, lambda share: show(share / 2)
            )

        pools, trace = session.run(read)
        if trace is None:
            raise Failed(f"no job of pool {name!r} was completed in this part of the log")
        rows = recorded_arrivals.simulate(trace, pools, spawn, lambda share: show((1 + share) / 2))
    write_rows(session, rows, SIMULATED, "nothing was simulated")
    if not session.as_json:
        write_lines([_SIMULATED_CAVEAT])


def _both(name: str, change: Change, adopted: Sequence[Adopted]) -> dict[str, Pool]:
    """A pool by its last recorded settings, and with the change. Raises Failed, ConfigError."""
    fitting = [settings for settings in adopted if name in settings.pools]
    if not fitting:
        raise Failed(f"no settings of pool {name!r} are in the log")
    last = fitting[-1]
    changed = change.applied(last, stretches.installed())
    return {"as set": last.pools[name], "instead": changed.pools[name]}


def _simulate_lake(
    session: Session,
    lake: str,
    master: str,
    since: float,
    pool: str | None,
    spawn: float,
    changes: Sequence[str],
) -> None:
    """Simulates the lake's jobs under the present settings and under the changed ones."""
    table = {}
    for name, value in assignments(changes).items():
        pattern, _, setting = name.removeprefix("pools.").partition(".")
        if pattern not in ("*", pool) or not setting:
            raise Refused(f"--on-spark changes pools.*.SETTING, or those of --pool; found {name!r}")
        table[setting] = value
    _, rows = simulate_days(session, {"instead": table}, lake, master, since, pool, spawn, 24.0)
    write_rows(session, rows, ON_SPARK, nothing_came())


def _examples(rows: Sequence[Comparison]) -> Iterator[str]:
    for row in rows:
        for example in row.asides:
            yield (
                f"{wording.clock(example.at)} {row.pool}: {example.recorded} then, "
                f"{example.other} instead ({example.reason})"
            )


def _span(since: float | None, until: float | None, pool: str | None) -> Span:
    now = utc_now()
    return Span(
        since=None if since is None else now - timedelta(seconds=since),
        until=None if until is None else now - timedelta(seconds=until),
        pool=pool,
    )


@contextmanager
def _log(session: Session, source: Path | None, save: Path | None, span: Span) -> Iterator[Path]:
    """The log as a file: the given one, or a copy of the broker's."""
    if source is not None:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder:
        path = save or Path(folder) / "log.jsonl"
        _read(session, path, span)
        yield path


def _read(session: Session, path: Path, span: Span) -> None:
    with path.open("wb") as file, progress_bar("reading") as show:

        async def read(bus: Bus, settings: Settings) -> int:
            return await recorded_rounds.save(bus, Subjects(settings.prefix), span, file, show)

        rounds = session.run(read)
    if not rounds:
        raise Failed("no round of decisions is recorded in this part of the log")
