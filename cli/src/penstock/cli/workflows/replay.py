"""`penstock workflow replay`: living workflows, run through the code that is importable here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.call import load_modules
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import SECONDS
from penstock.cli.progress import progress_bar
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.workflows.coded.running.replaying import Replayed
from penstock.jobs.workflows.replay import ReplayReport
from penstock.views import wording

_MOST_ROWS = 200
_ONE = {"fits": "fits", "diverges": "diverges", "no-code": "has no code here"}
_ONE |= {"arguments": "does not fit the function's parameters"}
_ONE |= {"raises": "raises an error", "unreadable": "cannot be read"}
_ONE |= {"sealed": "is sealed, and its key is not here"}
_TITLES = {
    "fits": "fit",
    "diverges": "diverge",
    "no-code": "have no code here",
    "arguments": "do not fit the function's parameters",
    "raises": "raise an error",
    "unreadable": "cannot be read",
    "sealed": "are sealed, and their key is not here",
}


def _versions(row: Replayed) -> str:
    same = row.by_version in (0, row.version)
    return str(row.version or "") if same else f"{row.version or '?'} by {row.by_version}"


COLUMNS = (
    Column("workflow", lambda row: row.id),
    Column("function", lambda row: row.function, rank=2),
    Column("version", _versions, rank=3),
    Column("outcome", lambda row: row.outcome),
    Column("at", lambda row: f"{row.entry} of {row.entries}" if row.entry else "", rank=3),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at), rank=4),
    Column("reason", lambda row: row.reason, rank=1, sentence=True),
)


@click.command(
    cls=Command,
    example="penstock workflow replay\npenstock workflow replay --since 30d --function shop.fulfil",
)
@click.option("--since", type=SECONDS, help="Only workflows dispatched in this time: 30d.")
@click.option(
    "--function",
    "functions",
    multiple=True,
    help="Only workflows of this function; repeatable. All by default.",
)
@click.pass_obj
def replay(session: Session, since: float | None, functions: tuple[str, ...]) -> None:
    """List living workflows that the code importable here would block: a gate for deployments.

    Runs what each has recorded through the functions of jobs.modules, and lists those that it does
    not fit, with both sides in words. Runs no step and stores nothing; a subscriber's key
    suffices. Exit code 0 if all fit, 1 if some do not, 2 where the call is wrong.
    """
    load_code(session.settings())

    async def request(client: Client) -> ReplayReport:
        begin = None if since is None else utc_now() - timedelta(seconds=since)
        with progress_bar("workflows") as show, contextlib.redirect_stdout(sys.stderr):
            return await client.workflows.replay(functions, since=begin, progress=_share(show))

    report = session.with_client(request)
    if session.as_json:
        write_json({"counts": report.counts, "workflows": report.workflows})
    else:
        _write(session, report)
    if report.unfit:
        raise Failed(_summary(report))


def load_code(settings: Settings) -> None:
    """Imports the modules of jobs. Raises Refused: there are none, or one cannot be imported."""
    if not settings.jobs.modules:
        raise Refused("jobs.modules names no modules, so that no workflow's code is known here")
    load_modules(settings)


def _share(show: Callable[[float], None]) -> Callable[[int, int], None]:
    return lambda done, total: show(done / total if total else 1.0)


def _write(session: Session, report: ReplayReport) -> None:
    rows = [one for one in report.workflows if one.outcome != "fits"]
    if rows:
        write_rows(session, rows[:_MOST_ROWS], COLUMNS, "")
    if len(rows) > _MOST_ROWS:
        note(f"{len(rows) - _MOST_ROWS:,} more are not listed; --json has them all")
    if not report.unfit:
        write_line(_summary(report))


def _summary(report: ReplayReport) -> str:
    count = len(report.workflows)
    if not count:
        return "no living workflow has recorded anything"
    counts = report.counts
    parts = [
        f"{counts[name]:,} {_ONE[name] if counts[name] == 1 else title}"
        for name, title in _TITLES.items()
        if counts.get(name)
    ]
    return f"{count:,} living workflow{'' if count == 1 else 's'}: {', '.join(parts)}"
