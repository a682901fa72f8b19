"""`penstock outbox`: jobs that programs dispatched while the broker was away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import SECONDS
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.envelope import Instant
from penstock.events.subjects import Subjects
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.outbox.drain import Drain
from penstock.jobs.outbox.store import Entry, Outbox
from penstock.runtime.tasks import within
from penstock.views import wording

FLUSH_SECONDS = 60.0


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the outbox.

    Attributes:
        id: of the job.
        function: its name; empty where the entry cannot be read.
        queue: its queue.
        dispatched_at: when the program dispatched it.
        refused: why the broker refused it; empty: it will be sent.
    """

    id: str
    function: str
    queue: str
    dispatched_at: Instant | None
    refused: str


class Flushed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a flush: jobs sent, jobs still to be sent, jobs that the broker refused."""

    sent: int
    left: int
    refused: int


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("function", lambda row: row.function),
    Column("queue", lambda row: row.queue),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at)),
    Column(
        "state",
        lambda row: f"refused: {row.refused}" if row.refused else "to be sent",
        rank=1,
        sentence=True,
    ),
)

FILE = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The outbox; else dispatch.outbox_file.",
)


@click.group(cls=Group, example="penstock outbox ls\npenstock outbox flush")
def outbox() -> None:
    """Jobs that were dispatched to a local file while the broker was away."""


@outbox.command(name="ls", example="penstock outbox ls --limit 20")
@FILE
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Most rows to list.",
)
@click.pass_obj
def list_outbox(session: Session, file: Path | None, limit: int) -> None:
    """List the jobs in the outbox, the oldest first; arguments are not shown."""
    settings = session.settings()
    with _opened(settings, file) as opened:
        rows = [_row(entry) for entry in opened.all(limit)] if opened is not None else []
    write_rows(session, rows, COLUMNS, "the outbox is empty")


@outbox.command(example="penstock outbox flush --timeout 5m\npenstock outbox flush --refused")
@FILE
@click.option("--refused", is_flag=True, help="Also send jobs that the broker refused before.")
@click.option(
    "--timeout",
    type=SECONDS,
    default=FLUSH_SECONDS,
    help="Stop sending after this time; 60s unless given.",
)
@click.pass_obj
def flush(session: Session, file: Path | None, refused: bool, timeout: float) -> None:
    """Send the jobs in the outbox; exit code 1 if some are left. Safe while programs use it."""
    with _opened(session.settings(), file) as opened:
        if opened is None:
            flushed = Flushed(sent=0, left=0, refused=0)
        else:
            if refused:
                opened.accept_refused()
            flushed = session.run(lambda bus, settings: _flush(bus, settings, opened, timeout))
    _report(session, flushed)


async def _flush(bus: Bus, settings: Settings, opened: Outbox, timeout: float) -> Flushed:
    drain = Drain(opened, Sender(bus, Subjects(settings.prefix)))
    await within(timeout, drain.run())
    left = await asyncio.to_thread(len, opened)
    entries = await asyncio.to_thread(opened.all)
    refused = sum(bool(entry.refused) for entry in entries)
    return Flushed(sent=drain.sent, left=left, refused=refused)


def _report(session: Session, flushed: Flushed) -> None:
    if session.as_json:
        write_json(flushed)
    else:
        write_line(f"{flushed.sent} jobs sent")
        if flushed.refused:
            note(f"{flushed.refused} jobs were refused and stay; see 'penstock outbox ls'")
    if flushed.left:
        raise Failed(f"{flushed.left} jobs are still in the outbox: the broker took no more")


@contextmanager
def _opened(settings: Settings, file: Path | None) -> Iterator[Outbox | None]:
    """The outbox; None where there is no such file, since listing must not create one.

    Raises:
        Refused: none is configured, or it cannot be used.
    """
    path = file or settings.dispatch.outbox_file
    if not path:
        raise Refused("there is no outbox: set dispatch.outbox_file, or give --file")
    if not Path(path).exists():
        yield None
        return
    try:
        opened = Outbox(str(path), settings.dispatch.outbox_max_jobs)
    except OSError as error:
        raise Refused(str(error)) from error
    try:
        yield opened
    finally:
        opened.close()


def _row(entry: Entry) -> OutboxRow:
    return OutboxRow(
        id=entry.job_id,
        function=entry.event.function if entry.event else "",
        queue=entry.event.queue if entry.event else "",
        dispatched_at=entry.dispatched_at,
        refused=entry.refused,
    )
