"""`penstock replay`: past decisions computed again, and proved equal or compared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import FAILED, Failed, Refused
from penstock.cli.output import Column, say, say_json, say_rows
from penstock.cli.parameters import POOL, SECONDS
from penstock.cli.scaling.tune import COLUMNS as ON_SPARK
from penstock.cli.scaling.tune import outlooks
from penstock.cli.session import Session
from penstock.views import wording

if TYPE_CHECKING:
    from penstock.bus.protocol import Bus
    from penstock.cli.scaling.recorded_rounds import Span
    from penstock.config import Settings
    from penstock.decider.replay.verdict import Difference, Verdict
    from penstock.decider.replay.whatif import Comparison

COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("decisions", lambda row: str(row.rounds), number=True),
    Column("unlike", lambda row: str(row.unlike), number=True),
    Column("worker-s", lambda row: f"{row.recorded_worker_seconds:.0f}", number=True),
    Column("would be", lambda row: f"{row.other_worker_seconds:.0f}", number=True),
    Column("changes", lambda row: str(row.recorded_actions), number=True),
    Column("would be", lambda row: str(row.other_actions), number=True),
)
SIMULATED = (
    Column("settings", lambda row: row.settings),
    Column("jobs", lambda row: str(row.jobs), number=True),
    Column("late", lambda row: f"{row.late_share:.2%}", number=True),
    Column("p95 s", lambda row: f"{row.wait_p95:.2f}", number=True),
    Column("max s", lambda row: f"{row.wait_max:.1f}", number=True),
    Column("worker-s", lambda row: f"{row.worker_seconds:.0f}", number=True),
    Column("changes", lambda row: f"{row.actions:.0f}", number=True),
)
_WEEK_SECONDS = 7 * 86_400.0
CAVEAT = (
    "The queues are as they were measured: with other workers they would have been longer or "
    "shorter. '--simulate' lets the recorded jobs arrive again."
)


@click.command(
    cls=Command,
    example="penstock replay --since 2h\n"
    "penstock replay --since 1d --pool reports --set pools.reports.sla_seconds=10\n"
    "penstock replay --on-spark --lake /data/lake --since 30d --set pools.*.min_workers=2",
)
@click.option("--since", type=SECONDS, help="Start so long ago, such as 90s, 10m, 2h; else all.")
@click.option("--until", type=SECONDS, help="End so long ago.")
@click.option("--pool", type=POOL, help="Compare only what was told of this pool.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read a saved log, no broker is needed.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Keep what was read in a file."
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
    help="With --set and --pool: let the jobs of the log arrive again under both, a worker "
    "starting within TIME.",
)
@click.option("--processes", type=click.IntRange(1, 256), help="At a time; else one per core.")
@click.option(
    "--on-spark",
    is_flag=True,
    help="With --set and --lake: simulate all recorded jobs, spread over Spark's cores.",
)
@click.option("--lake", metavar="DIR", help="With --on-spark: the lake's folder.")
@click.option("--master", default="local[2]", show_default=True, help="With --on-spark.")
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
            raise Refused("--on-spark needs --lake and --set, and reads nothing but the lake")
        _spread(session, lake, master, since or _WEEK_SECONDS, pool, spawn or 2.0, changes)
        return
    if source is not None and (since, until, save) != (None, None, None):
        raise Refused("--from reads a whole file; --since, --until and --save read the broker")
    if spawn is not None and (source is not None or not changes or pool is None):
        raise Refused("--simulate needs --set, --pool and the broker's event log (no --from)")
    other = _change(changes) if changes else None
    span = _span(since, until, pool)
    with _log(session, source, save, span) as path:
        if spawn is not None:
            _simulate(session, path, span, other, spawn)
        elif other is not None:
            _compare(session, path, other, pool)
        else:
            _verify(session, path, pool, processes or len(os.sched_getaffinity(0)))


def _verify(session: Session, path: Path, pool: str | None, processes: int) -> None:
    from penstock.decider.program import program  # noqa: PLC0415
    from penstock.decider.replay import stretches  # noqa: PLC0415 - keeps `--help` quick

    with _progress("recomputing") as tell:
        verdict = stretches.verify(path, pool, processes, tell)
    if session.as_json:
        say_json({"equal": verdict.is_equal, "program": program(), "verdict": verdict})
    else:
        say("\n".join(sentences(verdict, program())))
    if not verdict.is_equal:
        click.get_current_context().exit(FAILED)


def _compare(session: Session, path: Path, other: Any, pool: str | None) -> None:
    from penstock.decider.replay import stretches, whatif  # noqa: PLC0415

    rows = whatif.compare(
        stretches.entries(path), stretches.settings(path), stretches.installed(), other, pool
    )
    say_rows(session, rows, COLUMNS, "no decision is in this part of the log")
    if rows and not session.as_json:
        say("\n".join([*_asides(rows), CAVEAT]))


def _simulate(session: Session, path: Path, span: Span, other: Any, spawn: float) -> None:
    from penstock.cli.scaling import recorded_arrivals  # noqa: PLC0415
    from penstock.decider.replay import stretches  # noqa: PLC0415
    from penstock.events.subjects import Subjects  # noqa: PLC0415

    name = span.pool or ""
    known = [each for each in stretches.settings(path).values() if name in each.pools]
    if not known:
        raise Failed(f"no settings of pool {name!r} are in this part of the log")
    other.check(known)
    pools = {"as it was": known[-1].pools[name], "instead": other.over(known[-1]).pools[name]}

    async def read(bus: Bus, settings: Settings) -> Any:
        return await recorded_arrivals.read(
            bus, Subjects(settings.prefix), span, pools["as it was"]
        )

    trace = session.ask(read)
    if trace is None:
        raise Failed(f"no job of pool {name!r} was completed in this part of the log")
    say_rows(
        session, recorded_arrivals.simulate(trace, pools, spawn), SIMULATED, "nothing was simulated"
    )


def _spread(
    session: Session,
    lake: str,
    master: str,
    since: float,
    pool: str | None,
    spawn: float,
    changes: Sequence[str],
) -> None:
    """All recorded jobs again, under the settings as they are now and under others."""
    table = {}
    for name, value in _assignments(changes).items():
        pattern, _, setting = name.removeprefix("pools.").partition(".")
        if pattern not in ("*", pool) or not setting:
            raise Refused(f"--on-spark changes pools.*.SETTING, or those of --pool; found {name!r}")
        table[setting] = value
    _, rows = outlooks(session, {"instead": table}, lake, master, since, pool, spawn, 24.0)
    say_rows(session, rows, ON_SPARK, "no job of a pool came in that time")


def _asides(rows: Sequence[Comparison]) -> Iterator[str]:
    for row in rows:
        for aside in row.asides:
            yield (
                f"{wording.clock(aside.at)} {row.pool}: {aside.recorded} then, "
                f"{aside.other} instead ({aside.reason})"
            )


def sentences(verdict: Verdict, program: str) -> Iterator[str]:
    """A verdict for people.

    Args:
        program: the one that recomputed.
    """
    if not verdict.rounds:
        yield "Nothing could be recomputed: no round with a checkpoint before it is in the log."
    else:
        yield (
            f"{wording.clock(verdict.begins_at)} to {wording.clock(verdict.ends_at)}: "
            f"{verdict.rounds} rounds with {verdict.decisions} decisions, {verdict.published} of "
            f"them on the event log, decided by {' and '.join(verdict.programs)}."
        )
        yield (
            f"Equal bit for bit: {_share(verdict.equal_decisions, verdict.decisions)} decisions, "
            f"{_share(verdict.equal_published, verdict.published)} events, "
            f"{_share(verdict.equal_states, verdict.states)} states at checkpoints."
        )
    if any(decider != program for decider in verdict.programs):
        yield (
            f"Recomputed by another program, {program}: what differs may come from that "
            f"({verdict.other_program} rounds that differ were decided by another one)."
        )
    if verdict.gaps:
        yield f"{verdict.gaps} rounds cannot be recomputed:"
        for gap in verdict.unproven:
            yield f"  {wording.clock(gap.at)} round {gap.epoch}.{gap.round}: {gap.why}"
    if verdict.orphans:
        yield f"{verdict.orphans} decisions on the event log belong to no recorded round."
    yield from (f"Not a decision: {one}" for one in verdict.unreadable)
    for difference in verdict.differences:
        yield _headline(difference)
        yield from (f"  {what}" for what in difference.what)


def _headline(found: Difference) -> str:
    about = f"pool {found.pool}, decision {found.decision}" if found.pool else "the whole round"
    where = f"round {found.epoch}.{found.round}"
    return f"{wording.clock(found.at)} {where}, {about}, by {found.program}:"


def _share(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}"


def _span(since: float | None, until: float | None, pool: str | None) -> Span:
    from penstock.cli.scaling.recorded_rounds import Span  # noqa: PLC0415
    from penstock.events.envelope import utc_now  # noqa: PLC0415

    now = utc_now()
    return Span(
        since=None if since is None else now - timedelta(seconds=since),
        until=None if until is None else now - timedelta(seconds=until),
        pool=pool,
    )


@contextmanager
def _log(session: Session, source: Path | None, save: Path | None, span: Span) -> Iterator[Path]:
    """The log as a file: the given one, or what the broker has."""
    if source is not None:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder:
        path = save or Path(folder) / "log.jsonl"
        _read(session, path, span)
        yield path


def _read(session: Session, path: Path, span: Span) -> None:
    from penstock.cli.scaling import recorded_rounds  # noqa: PLC0415
    from penstock.events.subjects import Subjects  # noqa: PLC0415

    with path.open("wb") as file, _progress("reading") as tell:

        async def read(bus: Bus, settings: Settings) -> int:
            return await recorded_rounds.save(bus, Subjects(settings.prefix), span, file, tell)

        rounds = session.ask(read)
    if not rounds:
        raise Failed("no round of decisions is recorded in this part of the log")


@contextmanager
def _progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, for people only."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _change(changes: Sequence[str]) -> Any:
    from penstock.decider.replay import whatif  # noqa: PLC0415

    return whatif.change(_assignments(changes))


def _assignments(changes: Sequence[str]) -> dict[str, Any]:
    assignments = {}
    for text in changes:
        name, mark, value = text.partition("=")
        if not mark:
            raise Refused(f"--set: found {text!r}, expected NAME=VALUE")
        assignments[name.strip()] = _value(value.strip())
    return assignments


def _value(text: str) -> Any:
    """As TOML reads it, else as it stands."""
    import tomllib  # noqa: PLC0415

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
