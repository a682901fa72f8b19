"""`penstock schedule`: jobs that are dispatched by the clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.jobs.call import make_call
from penstock.cli.output import Column, note, say, say_json, say_rows
from penstock.cli.parameters import QUEUE, SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import PRIORITIES
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.registry import check_tags
from penstock.jobs.schedules.schedule import Schedule, check, next_tick
from penstock.views import wording
from penstock.views.overdue_ticks import standstill

NAME = Name("schedule")


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule; ``next_at`` is None while it is paused."""

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


COLUMNS = (
    Column("schedule", lambda row: row.name),
    Column("cron", lambda row: row.cron),
    Column("zone", lambda row: row.zone),
    Column("job", lambda row: row.function),
    Column("queue", lambda row: row.queue),
    Column("state", lambda row: row.state),
    Column("next", lambda row: f"{row.next_at:%Y-%m-%d %H:%M:%S}" if row.next_at else "-"),
    Column("last", lambda row: _since(row.last_at)),
    Column("jobs", lambda row: wording.count(row.dispatched), number=True),
)
EXAMPLE = "penstock schedule add nightly '30 2 * * *' reports.rebuild --zone Europe/Berlin"


@click.group(cls=Group, example=EXAMPLE)
def schedule() -> None:
    """Add, list, show, pause, resume, run and remove schedules."""


@schedule.command(example=EXAMPLE + " --arg table=orders")
@click.argument("name", type=NAME)
@click.argument("cron")
@click.argument("function")
@click.option("--arg", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="JSON or text.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of the expression.")
@click.option("--queue", type=QUEUE, help="Instead of the function's own queue.")
@click.option("--priority", type=click.Choice(PRIORITIES), default="normal", show_default=True)
@click.option("--tag", "tags", multiple=True, help="Besides the function's own; repeatable.")
@click.option(
    "--missed",
    type=click.Choice(["once", "skip"]),
    default="once",
    show_default=True,
    help="Ticks that no orchestrator was there for: the latest runs once, or all are skipped.",
)
@click.option("--expires", type=SECONDS, default=0.0, help="Not started so long after the tick.")
@click.option("--replace", is_flag=True, help="Replace one of the same name.")
@click.pass_obj
def add(session: Session, /, name: str, cron: str, function: str, **said: Any) -> None:
    """Dispatch FUNCTION whenever CRON says so: five fields, or six with seconds first."""
    check(cron, said["zone"])
    call = make_call(session.settings(), function, said["arguments"])
    terms = Terms(
        queue=said["queue"] or "", tags=check_tags(said["tags"]), priority=said["priority"]
    )

    async def ask(bus: Bus, settings: Settings) -> Schedule:
        return await _client(bus, settings).schedules.add(
            name,
            call,
            cron,
            zone=said["zone"],
            terms=terms,
            missed=said["missed"],
            expires_seconds=said["expires"],
            replace=said["replace"],
        )

    _show(session, session.ask(ask))


@schedule.command(name="ls", example="penstock schedule ls --json")
@click.pass_obj
def list_schedules(session: Session) -> None:
    """List every schedule with its next tick."""

    async def ask(bus: Bus, settings: Settings) -> list[ScheduleRow]:
        found = await _client(bus, settings).schedules.all()
        if found and (why := await standstill(bus, settings, found, utc_now())):
            note(f"warning: {why}")
        return [_row(each) for each in found]

    say_rows(session, session.ask(ask), COLUMNS, "there is no schedule; see 'schedule add --help'")


@schedule.command(example="penstock schedule show nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one schedule and its next ticks."""
    _show(session, session.ask(lambda bus, known: _client(bus, known).schedules.get(name)))


@schedule.command(example="penstock schedule pause nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Dispatch nothing until it is resumed."""
    _show(session, session.ask(lambda bus, known: _client(bus, known).schedules.pause(name)))


@schedule.command(example="penstock schedule resume nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Go on from the next tick; those of the pause are not made up for."""
    _show(session, session.ask(lambda bus, known: _client(bus, known).schedules.resume(name)))


@schedule.command(name="run-now", example="penstock schedule run-now nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def run_now(session: Session, name: str) -> None:
    """Dispatch its job once, besides its ticks; prints the job's id."""
    job_id = session.ask(lambda bus, known: _client(bus, known).schedules.run_now(name))
    if session.as_json:
        say_json({"id": job_id})
    else:
        say(job_id)


@schedule.command(name="rm", example="penstock schedule rm nightly")
@click.argument("name", type=NAME)
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a schedule; jobs that were dispatched stay."""
    session.ask(lambda bus, known: _client(bus, known).schedules.remove(name))
    if not session.as_json:
        say(f"schedule {name} is removed")


def _client(bus: Bus, settings: Settings) -> Client:
    return Client.over(bus, settings, "cli")


def _row(found: Schedule) -> ScheduleRow:
    return ScheduleRow(
        name=found.name,
        cron=found.cron,
        zone=found.zone,
        function=found.function,
        queue=found.queue,
        state="paused" if found.paused else "active",
        missed=found.missed,
        next_at=None if found.paused else next_tick(found, max(found.done_until, utc_now())),
        last_at=found.last_tick,
        dispatched=found.dispatched,
        words=check(found.cron, found.zone),
    )


def _show(session: Session, found: Schedule) -> None:
    row = _row(found)
    if session.as_json:
        say_json(row)
        return
    say(f"{row.name}: {row.function} on queue {row.queue}, {row.state}")
    say(f"  {row.words} ({row.cron}, {row.zone}); missed ticks: {row.missed}")
    say(f"  next {row.next_at or '-'}, last {row.last_at or 'never'}, {row.dispatched} so far")


def _since(at: datetime | None) -> str:
    return wording.ago((utc_now() - at).total_seconds() if at else None)
