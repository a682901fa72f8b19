"""`penstock schedule`: jobs that are dispatched at set times."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.jobs.call import load_modules, make_call
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import QUEUE, SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import PRIORITIES
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.registry import check_tags
from penstock.jobs.schedules.client import Schedules
from penstock.jobs.schedules.declaration import Declaration, declared
from penstock.jobs.schedules.drift import Difference, Drift
from penstock.jobs.schedules.schedule import Schedule, check, next_tick
from penstock.views import wording
from penstock.views.overdue_ticks import standstill

NAME = Name("schedule")


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule.

    Attributes:
        next_at: None while it is paused.
        origin: ``code`` or ``settings``, where it is declared there; else ``client``.
    """

    name: str
    cron: str
    zone: str
    function: str
    queue: str
    state: str
    missed: str
    next_at: datetime | None
    last_at: datetime | None
    dispatched: int
    words: str
    origin: str


COLUMNS = (
    Column("schedule", lambda row: row.name),
    Column("cron", lambda row: row.cron, rank=1),
    Column("zone", lambda row: row.zone, rank=3),
    Column("job", lambda row: row.function),
    Column("queue", lambda row: row.queue),
    Column("state", lambda row: row.state, rank=1),
    Column("origin", lambda row: row.origin, rank=3),
    Column("next", lambda row: _local(row.next_at, row.zone), rank=1),
    Column("last", lambda row: _since(row.last_at)),
    Column("jobs", lambda row: wording.count(row.dispatched), number=True),
)
DIFFERENCE_COLUMNS = (
    Column("schedule", lambda row: row.name),
    Column("was", lambda row: row.drift),
    Column("now", lambda row: "as declared" if row.done else "-"),
    Column("difference", lambda row: row.text, sentence=True),
)
Differences = list[Difference]
EXAMPLE = "penstock schedule add nightly '30 2 * * *' reports.rebuild --zone Europe/Berlin"


@click.group(cls=Group, example=EXAMPLE)
def schedule() -> None:
    """Add, list, show, pause, resume, run and remove schedules; store those that are declared."""


@schedule.command(example=EXAMPLE + " --arg table=orders")
@click.argument("name", type=NAME)
@click.argument("cron")
@click.argument("function")
@click.option(
    "--arg", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument: JSON or text."
)
@click.option("--zone", default="UTC", show_default=True, help="Time zone of the expression.")
@click.option("--queue", type=QUEUE, help="Queue, instead of the function's own.")
@click.option("--priority", type=click.Choice(PRIORITIES), default="normal", show_default=True)
@click.option("--tag", "tags", multiple=True, help="Tag besides the function's own; repeatable.")
@click.option(
    "--missed",
    type=click.Choice(["once", "skip"]),
    default="once",
    show_default=True,
    help="Ticks while no orchestrator ran: the latest runs once, or all are skipped.",
)
@click.option(
    "--expires",
    type=SECONDS,
    default=0.0,
    help="A job expires unless it starts within this time of its tick.",
)
@click.option("--replace", is_flag=True, help="Replace a schedule of the same name.")
@click.pass_obj
def add(session: Session, /, name: str, cron: str, function: str, **options: Any) -> None:
    """Dispatch FUNCTION at the times of CRON: five fields, or six with seconds first."""
    check(cron, options["zone"])
    call = make_call(session.settings(), function, options["arguments"])
    terms = Terms(
        queue=options["queue"] or "", tags=check_tags(options["tags"]), priority=options["priority"]
    )

    added = session.with_client(
        lambda client: client.schedules.add(
            name,
            call,
            cron,
            zone=options["zone"],
            terms=terms,
            missed=options["missed"],
            expires_seconds=options["expires"],
            replace=options["replace"],
        )
    )
    _show(session, added)


@schedule.command(example="penstock schedule diff --json")
@click.pass_obj
def diff(session: Session) -> None:
    """Compare the stored schedules with those declared in code and settings.

    Exit code 0: they are equal. 1: they differ.
    """
    differences = _differences(session, lambda schedules, wanted: schedules.compare(wanted))
    drifted = [one for one in differences if one.drift is not Drift.EQUAL]
    write_rows(session, drifted, DIFFERENCE_COLUMNS, f"{len(differences)} declared, no difference")
    if drifted:
        raise Failed(f"{len(drifted)} schedules differ; 'penstock schedule sync' stores them")


@schedule.command(example="penstock schedule sync\npenstock schedule sync --prune --dry-run")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@click.option("--prune", is_flag=True, help="Remove schedules that are not declared any more.")
@click.pass_obj
def sync(session: Session, dry_run: bool, prune: bool) -> None:
    """Store the schedules that code and settings declare: with @job(schedule=...), schedule(...)
    or a table [schedules.NAME].

    A part of each deployment; 'penstock up' does it when it starts. Schedules that clients added
    are left alone. Exit code 1 if one of them has the name of a declared one.
    """

    def act(schedules: Schedules, wanted: list[Declaration]) -> Coroutine[Any, Any, Differences]:
        return schedules.compare(wanted) if dry_run else schedules.sync(wanted, prune=prune)

    differences = _differences(session, act)
    shown = [one for one in differences if one.drift is not Drift.EQUAL]
    write_rows(session, shown, DIFFERENCE_COLUMNS, f"{len(differences)} declared, all stored")
    if conflicts := [one.name for one in shown if one.drift is Drift.CONFLICT]:
        raise Failed(f"not stored: {', '.join(conflicts)}; remove the schedule of the same name")


def _differences(
    session: Session,
    act: Callable[[Schedules, list[Declaration]], Coroutine[Any, Any, Differences]],
) -> Differences:
    settings = session.settings()
    load_modules(settings)
    wanted = declared(settings)
    return session.with_client(lambda client: act(client.schedules, wanted))


@schedule.command(name="ls", example="penstock schedule ls --json")
@click.pass_obj
def list_schedules(session: Session) -> None:
    """List every schedule with its next tick."""

    async def request(bus: Bus, settings: Settings) -> list[ScheduleRow]:
        schedules = await Client.over(bus, settings, "cli").schedules.all()
        if schedules and (why := await standstill(bus, settings, schedules, utc_now())):
            note(f"warning: {why}")
        return [_row(entry) for entry in schedules]

    write_rows(
        session, session.run(request), COLUMNS, "there is no schedule; see 'schedule add --help'"
    )


@schedule.command(example="penstock schedule show nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one schedule and its next tick."""
    _show(session, session.with_client(lambda client: client.schedules.get(name)))


@schedule.command(example="penstock schedule pause nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Dispatch nothing until it is resumed."""
    _show(session, session.with_client(lambda client: client.schedules.pause(name)))


@schedule.command(example="penstock schedule resume nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Continue with the next tick; ticks of the pause are not made up for."""
    _show(session, session.with_client(lambda client: client.schedules.resume(name)))


@schedule.command(name="run-now", example="penstock schedule run-now nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def run_now(session: Session, name: str) -> None:
    """Dispatch its job once, besides its ticks; prints the job's id."""
    job_id = session.with_client(lambda client: client.schedules.run_now(name))
    if session.as_json:
        write_json({"id": job_id})
    else:
        write_line(job_id)


@schedule.command(name="rm", example="penstock schedule rm nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a schedule; jobs that were dispatched stay."""
    session.with_client(lambda client: client.schedules.remove(name))
    if not session.as_json:
        write_line(f"schedule {name} is removed")


def _row(entry: Schedule) -> ScheduleRow:
    return ScheduleRow(
        name=entry.name,
        cron=entry.cron,
        zone=entry.zone,
        function=entry.function,
        queue=entry.queue,
        state="paused" if entry.paused else "active",
        missed=entry.missed,
        next_at=None if entry.paused else next_tick(entry, max(entry.done_until, utc_now())),
        last_at=entry.last_tick,
        dispatched=entry.dispatched,
        words=check(entry.cron, entry.zone),
        origin=entry.origin or "client",
    )


def _show(session: Session, entry: Schedule) -> None:
    row = _row(entry)
    if session.as_json:
        write_json(row)
        return
    write_line(f"{row.name}: {row.function} on queue {row.queue}, {row.state}")
    write_line(f"  {row.words} ({row.cron}, {row.zone}); missed ticks: {row.missed}")
    write_line(
        f"  next {row.next_at or '-'}, last {row.last_at or 'never'}, {row.dispatched} so far"
    )


def _local(at: datetime | None, zone: str) -> str:
    """A time in the schedule's own zone, with its offset."""
    return f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S %z}" if at else "-"


def _since(at: datetime | None) -> str:
    return wording.ago((utc_now() - at).total_seconds() if at else None)
