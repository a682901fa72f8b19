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
from penstock.cli.jobs.newest import list_command
from penstock.cli.output import Column, note, write_json, write_line
from penstock.cli.parameters import SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.batch import Counts
from penstock.events.subjects import Subjects
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.batches.client import Batches
from penstock.jobs.client import Client
from penstock.views import wording

BATCH_ID = Name("batch", "id")
_BAR_WIDTH = 24


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One batch; ``failed_jobs`` is None in a list."""

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
    error: str = ""
    seconds: float | None = None
    status: str = ""
    started_at: datetime | None = None
    cancelled_at: datetime | None = None
    total: int | None = None


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
        error=f"{record.error.kind}: {record.error.message}" if record.error else "",
        seconds=record.seconds if record.state.ended else None,
        status=record.status,
        started_at=record.started_at,
        cancelled_at=record.cancelled_at,
        total=record.total,
    )


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state, rank=1),
    Column("title", lambda row: row.title, rank=3, sentence=True),
    Column("jobs", lambda row: str(row.counts.total), number=True, rank=1),
    Column("pending", lambda row: str(row.counts.pending), number=True),
    Column("completed", lambda row: str(row.counts.completed), number=True),
    Column("failed", lambda row: str(row.counts.failed), number=True, rank=1),
    Column("cancelled", lambda row: str(row.counts.cancelled), number=True, rank=3),
    Column("created", lambda row: wording.clock(row.created_at), rank=3),
    Column("note", lambda row: row.reason, rank=3, sentence=True),
)


@click.group(cls=Group, example="penstock batch watch nightly")
def batch() -> None:
    """List, show, watch, cancel batches, and run their failed jobs again."""


batch.add_command(
    list_command(
        "batch",
        BatchState,
        help="List the batches that changed last.",
        example="penstock batch ls --state running",
        show=lambda client, batch_id: client.batches.show(batch_id),
        moment=lambda record: record.changed_at,
        row=row,
        columns=COLUMNS,
        nothing="no such batch is in the event log",
    )
)


@batch.command(example="penstock batch show nightly")
@click.argument("id", type=BATCH_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one batch: its counts, and which of its jobs failed."""

    async def read(client: Client) -> BatchRow:
        batches = client.batches
        return row(await batches.show(id), tuple(await batches.failed(id)))

    _show(session, session.with_client(read))


@batch.command(example="penstock batch watch nightly --timeout 1h")
@click.argument("id", type=BATCH_ID)
@click.option("--timeout", type=SECONDS, help="Watch no longer than this.")
@click.pass_obj
def watch(session: Session, id: str, timeout: float | None) -> None:
    """Follow a batch until it has ended; exit code 1 unless it completed."""

    async def request(bus: Bus, settings: Settings) -> BatchRecord:
        batches, subjects = Client.over(bus, settings, "cli").batches, Subjects(settings.prefix)
        record = await batches.show(id)
        if not session.as_json and not record.state.ended:
            await _follow(bus, subjects, batches, record)
        return await batches.wait(id, timeout)

    try:
        record = session.run(request)
    except TimeoutError:
        raise Failed(f"batch {id} has not ended after {timeout:g} s") from None
    if session.as_json:
        write_json(row(record))
    else:
        write_line(progress(record))
    if record.state is not BatchState.COMPLETED:
        raise Failed(f"batch {id} ended {record.state}: {record.reason}")


async def _follow(bus: Bus, subjects: Subjects, batches: Batches, record: BatchRecord) -> None:
    write_line(progress(record))
    events: Any = bus.follow(
        subjects.events_stream, [subjects.events("batch", record.id)], record.sequence + 1
    )
    async with aclosing(events) as messages:
        async for _ in messages:
            record = await batches.show(record.id)
            if record.state.ended:
                return
            write_line(progress(record))


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
@click.option(
    "--reason",
    default="cancelled by an operator",
    show_default=True,
    help="Recorded with the event.",
)
@click.pass_obj
def cancel(session: Session, id: str, reason: str) -> None:
    """Cancel the jobs of a batch that have not ended."""
    record = session.with_client(lambda client: client.batches.cancel(id, reason))
    if session.as_json:
        write_json(row(record))
    if record.state in (BatchState.COMPLETED, BatchState.FAILED):
        raise Failed(f"batch {id} had already ended: it is {record.state}")
    if not session.as_json:
        write_line(f"batch {id} is being cancelled; see 'penstock batch watch {id}'")


@batch.command(name="retry-failed", example="penstock batch retry-failed nightly --cancelled")
@click.argument("id", type=BATCH_ID)
@click.option("--cancelled", is_flag=True, help="The cancelled jobs, too.")
@click.pass_obj
def retry_failed(session: Session, id: str, cancelled: bool) -> None:
    """Run the failed jobs of an ended batch again, in their places."""
    jobs = session.with_client(lambda client: client.batches.retry_failed(id, cancelled=cancelled))
    if session.as_json:
        write_json({"id": id, "jobs": jobs})
    else:
        write_line(f"{len(jobs)} jobs of batch {id} run again")


def _show(session: Session, batch: BatchRow) -> None:
    if session.as_json:
        write_json(batch)
        return
    counts = batch.counts
    write_line(f"batch      {batch.id}" + (f" ({batch.title})" if batch.title else ""))
    write_line(f"state      {batch.state}" + (f": {batch.reason}" if batch.reason else ""))
    write_line(f"jobs       {counts.total}: completed {counts.completed}, failed {counts.failed}, "
        f"cancelled {counts.cancelled}, pending {counts.pending}")  # fmt: skip
    write_line(f"allowed failures {batch.allowed_failures}")
    write_line(f"created    {wording.clock(batch.created_at)}")
    write_line(f"started    {wording.clock(batch.started_at)}")
    if batch.ended_at:
        took = f", after {wording.seconds(batch.seconds)}" if batch.seconds else ""
        write_line(f"ended      {wording.clock(batch.ended_at)}{took}")
    if batch.error:
        write_line(f"first      {batch.error}")
    for job_id in (batch.failed_jobs or ())[:20]:
        write_line(f"failed     {job_id}")
    if len(batch.failed_jobs or ()) > 20:
        note("further jobs failed; --json lists them all")
