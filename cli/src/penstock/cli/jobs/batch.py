"""`penstock batch`: jobs that are counted together."""

from __future__ import annotations

from contextlib import aclosing
from datetime import datetime
from typing import Any

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.output import Column, note, say, say_json, say_rows
from penstock.cli.parameters import SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.batch import Counts
from penstock.events.subjects import Subjects
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.batches.client import Batches
from penstock.jobs.client import Client
from penstock.views import wording
from penstock.views.workflow_list import newest

BATCH_ID = Name("batch", "id")
_BAR_WIDTH = 24


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. ``failed_jobs`` are listed by `show` only."""

    id: str
    state: str
    title: str
    counts: Counts
    allowed_failures: str
    created_at: datetime
    ended_at: datetime | None
    reason: str = ""
    reopened: int = 0
    failed_jobs: tuple[str, ...] | None = None


def row(record: BatchRecord, failed_jobs: tuple[str, ...] | None = None) -> BatchRow:
    percent = record.allowed_percent
    return BatchRow(
        id=record.id,
        state=record.state,
        title=record.title,
        counts=record.counts,
        allowed_failures=str(record.allowed_failures) if percent is None else f"{percent:g}%",
        created_at=record.created_at,
        ended_at=record.ended_at,
        reason=record.reason,
        reopened=record.round,
        failed_jobs=failed_jobs,
    )


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state),
    Column("title", lambda row: row.title),
    Column("jobs", lambda row: str(row.counts.total), number=True),
    Column("pending", lambda row: str(row.counts.pending), number=True),
    Column("completed", lambda row: str(row.counts.completed), number=True),
    Column("failed", lambda row: str(row.counts.failed), number=True),
    Column("cancelled", lambda row: str(row.counts.cancelled), number=True),
    Column("created", lambda row: wording.clock(row.created_at)),
    Column("note", lambda row: row.reason),
)


@click.group(cls=Group, example="penstock batch watch nightly")
def batch() -> None:
    """List, show, watch, cancel batches, and run their failed jobs again."""


@batch.command(name="ls", example="penstock batch ls --state running")
@click.option(
    "--state", type=click.Choice([state.value for state in BatchState]), help="Only these."
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@click.pass_obj
def list_batches(session: Session, state: str | None, limit: int) -> None:
    """List the batches that something happened to last."""

    async def ask(bus: Bus, settings: Settings) -> list[BatchRow]:
        show = _batches(bus, settings).show
        found = await newest(bus, settings, "batch", show, lambda record: record.changed_at)
        return [row(each) for each in found if state in {None, each.state}][:limit]

    say_rows(session, session.ask(ask), COLUMNS, "no such batch is in the event log")


@batch.command(example="penstock batch show nightly")
@click.argument("id", type=BATCH_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one batch: its counts, and which of its jobs failed."""

    async def ask(bus: Bus, settings: Settings) -> BatchRow:
        batches = _batches(bus, settings)
        return row(await batches.show(id), tuple(await batches.failed(id)))

    _tell(session, session.ask(ask))


@batch.command(example="penstock batch watch nightly --timeout 1h")
@click.argument("id", type=BATCH_ID)
@click.option("--timeout", type=SECONDS, help="Watch no longer than this.")
@click.pass_obj
def watch(session: Session, id: str, timeout: float | None) -> None:
    """Follow a batch until it has ended; exit code 1 unless it completed."""

    async def ask(bus: Bus, settings: Settings) -> BatchRecord:
        batches, subjects = _batches(bus, settings), Subjects(settings.prefix)
        record = await batches.show(id)
        if not session.as_json and not record.state.ended:
            await _follow(bus, subjects, batches, record)
        return await batches.wait(id, timeout)

    try:
        record = session.ask(ask)
    except TimeoutError:
        raise Failed(f"batch {id} has not ended after {timeout:g} s") from None
    if session.as_json:
        say_json(row(record))
    else:
        say(progress(record))
    if record.state is not BatchState.COMPLETED:
        raise Failed(f"batch {id} ended {record.state}: {record.reason}")


async def _follow(bus: Bus, subjects: Subjects, batches: Batches, record: BatchRecord) -> None:
    say(progress(record))
    following: Any = bus.follow(
        subjects.events_stream, [subjects.events("batch", record.id)], record.sequence + 1
    )
    async with aclosing(following) as messages:
        async for _ in messages:
            record = await batches.show(record.id)
            if record.state.ended:
                return
            say(progress(record))


def progress(record: BatchRecord) -> str:
    """``running    [######      ]  25 %  completed 25, failed 0, cancelled 0, pending 75``."""
    counts = record.counts
    done = (counts.total - counts.pending) / counts.total if counts.total else 0.0
    bar = "#" * int(done * _BAR_WIDTH)
    return (
        f"{record.state:<9}  [{bar:<{_BAR_WIDTH}}] {done * 100:3.0f} %  "
        f"completed {counts.completed}, failed {counts.failed}, cancelled {counts.cancelled}, "
        f"pending {counts.pending}"
    )


@batch.command(example="penstock batch cancel nightly --reason 'wrong day'")
@click.argument("id", type=BATCH_ID)
@click.option("--reason", default="cancelled by an operator", show_default=True)
@click.pass_obj
def cancel(session: Session, id: str, reason: str) -> None:
    """Cancel the jobs of a batch that have not ended."""
    record = session.ask(lambda bus, settings: _batches(bus, settings).cancel(id, reason))
    if session.as_json:
        say_json(row(record))
    if record.state in (BatchState.COMPLETED, BatchState.FAILED):
        raise Failed(f"batch {id} had already ended: it is {record.state}")
    if not session.as_json:
        say(f"batch {id} is being cancelled; see 'penstock batch watch {id}'")


@batch.command(name="retry-failed", example="penstock batch retry-failed nightly --cancelled")
@click.argument("id", type=BATCH_ID)
@click.option("--cancelled", is_flag=True, help="Those that were cancelled, too.")
@click.pass_obj
def retry_failed(session: Session, id: str, cancelled: bool) -> None:
    """Run the failed jobs of an ended batch again, in their places."""

    async def ask(bus: Bus, settings: Settings) -> list[str]:
        return await _batches(bus, settings).retry_failed(id, cancelled=cancelled)

    jobs = session.ask(ask)
    if session.as_json:
        say_json({"id": id, "jobs": jobs})
    else:
        say(f"{len(jobs)} jobs of batch {id} run again")


def _tell(session: Session, found: BatchRow) -> None:
    if session.as_json:
        say_json(found)
        return
    counts = found.counts
    say(f"batch      {found.id}" + (f" ({found.title})" if found.title else ""))
    say(f"state      {found.state}" + (f": {found.reason}" if found.reason else ""))
    say(f"jobs       {counts.total}: completed {counts.completed}, failed {counts.failed}, "
        f"cancelled {counts.cancelled}, pending {counts.pending}")  # fmt: skip
    say(f"may fail   {found.allowed_failures}")
    say(f"created    {wording.clock(found.created_at)}")
    if found.ended_at:
        say(f"ended      {wording.clock(found.ended_at)}")
    for job_id in (found.failed_jobs or ())[:20]:
        say(f"failed     {job_id}")
    if len(found.failed_jobs or ()) > 20:
        note("more failed; --json lists them all")


def _batches(bus: Bus, settings: Settings) -> Batches:
    return Client.over(bus, settings, "cli").batches
