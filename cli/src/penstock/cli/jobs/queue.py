"""`penstock queue`: how deep each queue is and how old its oldest job."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from datetime import datetime

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.end_time import end_time
from penstock.cli.errors import Refused
from penstock.cli.jobs.bulk import Caution, act, cautious
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.parameters import QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import lanes_of
from penstock.jobs.bulk.client import Bulk, BulkOutcome
from penstock.jobs.client import Client
from penstock.jobs.job_filter import JobFilter
from penstock.views import wording
from penstock.views.queue_board import QueueRow, queue_rows


def _state(row: QueueRow) -> str:
    if not row.paused:
        return "open"
    return f"paused until {wording.clock(row.paused_until)}" if row.paused_until else "paused"


COLUMNS = (
    Column("queue", lambda row: row.queue),
    Column("pool", lambda row: row.pool or ("(excluded)" if row.excluded else "(none)")),
    Column("state", _state, rank=1),
    Column("waiting", lambda row: str(row.waiting), number=True, rank=1),
    Column("running", lambda row: str(row.running), number=True, rank=1),
    Column("delayed", lambda row: str(row.delayed), number=True, rank=2),
    Column("oldest", lambda row: wording.seconds(row.oldest_waiting_seconds), number=True),
    Column("ended/min", lambda row: wording.rate(row.throughput_per_minute), number=True),
    Column("failed", lambda row: wording.share(row.failed_share), number=True),
    Column("reason", lambda row: row.pause_reason, rank=3, sentence=True),
)


@click.group(cls=Group, example="penstock queue ls")
def queue() -> None:
    """Queues: how many jobs wait, run and are delayed, and how long; pause and purge them."""


@queue.command(name="ls", example="penstock queue ls --json")
@click.pass_obj
def list_queues(session: Session) -> None:
    """List every queue that is configured or holds jobs."""
    rows = session.run(queue_rows)
    write_rows(session, rows, COLUMNS, "no queue is configured and none holds a job")


@queue.command(
    example="penstock queue pause reports --reason 'the lake is down'\n"
    "penstock queue pause reports --for 2h --reason 'month end'\n"
    "penstock queue pause reports --until 2027-01-01T06:00+01:00"
)
@click.argument("name", type=QUEUE)
@click.option("--for", "seconds", type=SECONDS, help="How long, such as 30m or 2h.")
@click.option("--until", metavar="TIME", help="Until this time (ISO 8601; local without a zone).")
@click.option("--reason", default="", help="Shown with the pause.")
@click.option("--force", is_flag=True, help="Act even if no pool serves the queue and it is empty.")
@click.pass_obj
def pause(
    session: Session,
    name: str,
    seconds: float | None,
    until: str | None,
    reason: str,
    force: bool,
) -> None:
    """Start no job of a queue for a time, or until it is resumed; running jobs go on.

    With --for or --until it ends by itself, within 30 days, whichever processes run. A second
    pause replaces the first.
    """
    has_end = seconds is not None or until is not None
    end = end_time("pause", seconds, until) if has_end else None

    async def request(bus: Bus, settings: Settings) -> None:
        if not force:
            await _check_exists(bus, settings, name)
        await Client.over(bus, settings, "cli").pause_queue(name, reason, end)

    session.run(request)
    _show_state(session, name, "paused", end)


@queue.command(example="penstock queue resume reports")
@click.argument("name", type=QUEUE)
@click.option("--force", is_flag=True, help="Act even if no pool serves the queue and it is empty.")
@click.pass_obj
def resume(session: Session, name: str, force: bool) -> None:
    """Start the jobs of a paused queue again."""

    async def request(bus: Bus, settings: Settings) -> None:
        if not force:
            await _check_exists(bus, settings, name)
        await Client.over(bus, settings, "cli").resume_queue(name)

    session.run(request)
    _show_state(session, name, "open")


@queue.command(example="penstock queue purge reports --dry-run\npenstock queue purge reports --yes")
@click.argument("name", type=QUEUE)
@cautious
@click.pass_obj
def purge(session: Session, /, name: str, caution: Caution) -> None:
    """Cancel all jobs that wait on a queue, are delayed or will be retried; running ones go on.

    Call it again if it was interrupted: each job is cancelled once.
    """

    def purging(bulk: Bulk) -> AsyncIterator[list[BulkOutcome]]:
        reason = caution.reason or "its queue was purged by an operator"
        return bulk.purge(name, reason=reason, limit=caution.limit)

    act(
        session,
        caution,
        JobFilter(queues=lanes_of(session.settings(), name)),
        purging,
        ("is cancelled", "are cancelled"),
    )


async def _check_exists(bus: Bus, settings: Settings, name: str) -> None:
    """Refuses a misspelt name, which would be paused or resumed without effect.

    Raises:
        Refused: no pool serves the queue, and it holds no jobs.
    """
    names = {row.queue: row for row in await queue_rows(bus, settings)}
    row = names.get(name)
    if row is None or not (row.pool or row.paused or row.waiting or row.running or row.delayed):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see 'penstock queue ls'"
        raise Refused(f"no pool serves queue {name!r} and it holds no jobs; {hint} (or --force)")


def _show_state(session: Session, name: str, state: str, until: datetime | None = None) -> None:
    if session.as_json:
        write_json({"queue": name, "state": state} | ({"until": until} if until else {}))
    else:
        end = f" until {wording.clock(until)}" if until else ""
        write_line(f"queue {name} is {state}{end}")
