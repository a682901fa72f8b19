"""`penstock queue`: how deep each queue is and how old its oldest job."""

from __future__ import annotations

import difflib

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import Column, say, say_json, say_rows
from penstock.cli.parameters import QUEUE
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.jobs.client import Client
from penstock.views import wording
from penstock.views.queue_board import queue_rows

COLUMNS = (
    Column("queue", lambda row: row.queue),
    Column("pool", lambda row: row.pool or ("(excluded)" if row.excluded else "(none)")),
    Column("state", lambda row: "paused" if row.paused else "open"),
    Column("waiting", lambda row: str(row.waiting), number=True),
    Column("running", lambda row: str(row.running), number=True),
    Column("delayed", lambda row: str(row.delayed), number=True),
    Column("oldest", lambda row: wording.seconds(row.oldest_waiting_seconds), number=True),
)


@click.group(cls=Group, example="penstock queue ls")
def queue() -> None:
    """Queues: how many jobs wait, run and are delayed, and how long."""


@queue.command(name="ls", example="penstock queue ls --json")
@click.pass_obj
def list_queues(session: Session) -> None:
    """List every queue that is configured or holds jobs."""
    rows = session.ask(queue_rows)
    say_rows(session, rows, COLUMNS, "no queue is configured and none holds a job")


@queue.command(example="penstock queue pause reports --reason 'the lake is down'")
@click.argument("name", type=QUEUE)
@click.option("--reason", default="", help="Kept with the pause, for those who wonder.")
@click.option("--force", is_flag=True, help="Even if no pool takes the queue and it is empty.")
@click.pass_obj
def pause(session: Session, name: str, reason: str, force: bool) -> None:
    """Give out no job of a queue, to anyone, until it is resumed; those that run go on."""

    async def ask(bus: Bus, settings: Settings) -> None:
        if not force:
            await _check_known(bus, settings, name)
        await _client(bus, settings).pause_queue(name, reason)

    session.ask(ask)
    _tell(session, name, "paused")


@queue.command(example="penstock queue resume reports")
@click.argument("name", type=QUEUE)
@click.option("--force", is_flag=True, help="Even if no pool takes the queue and it is empty.")
@click.pass_obj
def resume(session: Session, name: str, force: bool) -> None:
    """Give the jobs of a paused queue out again."""

    async def ask(bus: Bus, settings: Settings) -> None:
        if not force:
            await _check_known(bus, settings, name)
        await _client(bus, settings).resume_queue(name)

    session.ask(ask)
    _tell(session, name, "open")


async def _check_known(bus: Bus, settings: Settings, name: str) -> None:
    """A misspelt name would be paused or resumed without effect, in the midst of an incident.

    Raises:
        Refused: no pool takes the queue, and it holds no jobs.
    """
    names = {row.queue: row for row in await queue_rows(bus, settings)}
    row = names.get(name)
    if row is None or not (row.pool or row.paused or row.waiting or row.running or row.delayed):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see 'penstock queue ls'"
        raise Refused(f"no pool takes queue {name!r} and it holds no jobs; {hint} (or --force)")


def _client(bus: Bus, settings: Settings) -> Client:
    return Client.over(bus, settings, "cli")


def _tell(session: Session, name: str, state: str) -> None:
    if session.as_json:
        say_json({"queue": name, "state": state})
    else:
        say(f"queue {name} is {state}")
