"""`penstock verify`: reads the log, has it judged, prints the verdict."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.errors import FAILED, Refused
from penstock.cli.installed import is_importable
from penstock.cli.output import write_json, write_lines
from penstock.cli.parameters import SECONDS
from penstock.cli.progress import progress_bar
from penstock.cli.session import Session
from penstock.cli.verify import saved_events
from penstock.cli.verify.judging import Judge
from penstock.cli.verify.report_text import sentences
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.verifying.checker import Extent, Report

_MESSAGE_BYTES = 400
"""Of a saved message, about."""


@click.command(
    cls=Command,
    example="penstock verify\n"
    "penstock verify --since 2h --no-decisions\n"
    "penstock verify --save log.jsonl && penstock verify --from log.jsonl --json",
)
@click.option("--since", type=SECONDS, help="Start this long ago, such as 90s, 10m, 2h; else all.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Judge a saved log; no broker is needed.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Keep what is read in a file."
)
@click.option(
    "--acknowledged",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Ids of jobs, one a line, that your programs dispatched: each has to have ended.",
)
@click.option("--all-ended", is_flag=True, help="Every job in the log has to have ended.")
@click.option(
    "--decisions/--no-decisions",
    default=True,
    show_default=True,
    help="Compute scaling decisions again, too.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    help="Parallel processes for decisions; else one per core.",
)
@click.pass_obj
def verify(
    session: Session,
    /,
    since: float | None,
    source: Path | None,
    save: Path | None,
    acknowledged: Path | None,
    all_ended: bool,
    decisions: bool,
    processes: int | None,
) -> None:
    """Check that the event log keeps every promise; exit code 1 where it does not.

    Reads only. What left the log, or was not read, is not judged, and the report names it.
    """
    if source is not None and (since is not None or save is not None):
        raise Refused("--from judges a whole file; --since and --save read the broker")
    ids = _ids(acknowledged) if acknowledged else ()
    with tempfile.TemporaryDirectory(prefix="penstock-verify-") as name:
        folder = Path(name)
        if source is not None:
            report, extent = _judge_file(source, folder, ids, all_ended)
            if decisions:
                report.unjudged.append(
                    "decisions: they are not in this file; see 'penstock replay --from'"
                )
        else:
            report, extent = _judge_broker(session, folder, since, save, ids, all_ended)
            if decisions:
                _judge_decisions(session, folder, since, processes, report)
    if session.as_json:
        write_json({"kept": report.is_kept, "extent": extent, "report": report})
    else:
        write_lines(sentences(report, extent))
    if not report.is_kept:
        click.get_current_context().exit(FAILED)


def _judge_file(
    source: Path, folder: Path, ids: Collection[str], all_ended: bool
) -> tuple[Report, Extent]:
    with closing(Judge(folder, source.stat().st_size // _MESSAGE_BYTES)) as judge:
        with progress_bar("reading") as show:
            extent = saved_events.from_file(source, judge.take, show)
        return _report(judge, extent, ids, all_ended), extent


def _judge_broker(
    session: Session,
    folder: Path,
    since: float | None,
    save: Path | None,
    ids: Collection[str],
    all_ended: bool,
) -> tuple[Report, Extent]:
    async def read(bus: Bus, settings: Settings) -> tuple[Judge, Extent]:
        subjects = Subjects(settings.prefix)
        messages = (await bus.extent(subjects.events_stream)).messages
        judge = stack.enter_context(closing(Judge(folder, messages)))
        if save is None:
            return judge, await saved_events.from_broker(bus, subjects, since, judge.take, show)
        with save.open("wb") as file:
            take = saved_events.saved(file, judge.take)
            extent = await saved_events.from_broker(bus, subjects, since, take, show)
            file.write(saved_events.last_line(extent))
        return judge, extent

    with ExitStack() as stack:
        with progress_bar("reading") as show:
            judge, extent = session.run(read)
        return _report(judge, extent, ids, all_ended), extent


def _report(judge: Judge, extent: Extent, ids: Collection[str], all_ended: bool) -> Report:
    with progress_bar("judging") as show:
        return judge.report(extent, must_end=all_ended, acknowledged=ids, progress=show)


def _judge_decisions(
    session: Session, folder: Path, since: float | None, processes: int | None, report: Report
) -> None:
    if not is_importable("penstock.decider"):
        report.unjudged.append("decisions: the package penstock-decider is not installed")
        return
    from penstock.cli.scaling.recorded_rounds import Span  # noqa: PLC0415 - may be missing
    from penstock.cli.verify import decisions  # noqa: PLC0415

    span = Span(since=None if since is None else utc_now() - timedelta(seconds=since))
    path = folder / "rounds.jsonl"
    with progress_bar("reading decisions") as show:

        async def read(bus: Bus, settings: Settings) -> int:
            return await decisions.read(bus, Subjects(settings.prefix), span, path, show)

        rounds = session.run(read)
    if not rounds:
        report.unjudged.append("decisions: no round is recorded in this part of the log")
        return
    with progress_bar("computing decisions again") as show:
        decisions.judge(path, processes or len(os.sched_getaffinity(0)), show, report)


def _ids(path: Path) -> frozenset[str]:
    """The ids in a file; lines without one are left out."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text with an id on each line") from error
    return frozenset(line.strip() for line in lines if line.strip())
