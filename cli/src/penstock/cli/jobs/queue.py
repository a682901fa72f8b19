"""`penstock queue`: how deep each queue is and how old its oldest job."""

from __future__ import annotations

import difflib

import click
import msgspec

from penstock.bus.protocol import Bus, QueueDepth
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import Column, say, say_json, say_rows
from penstock.cli.parameters import QUEUE
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.config.topology import is_excluded
from penstock.events.subjects import Subjects
from penstock.health.unserved import oldest_seconds
from penstock.jobs.client import Client
from penstock.views import wording


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. ``pool`` is empty where no pool serves it: its jobs wait for ever."""

    queue: str
    pool: str
    excluded: bool
    waiting: int = 0
    running: int = 0
    delayed: int = 0
    paused: bool = False
    oldest_waiting_seconds: float | None = None


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


async def queue_rows(bus: Bus, settings: Settings) -> list[QueueRow]:
    """A row for each queue, by name."""
    subjects = Subjects(settings.prefix)
    owners = serving(settings)
    depths = await bus.depths()
    delayed = await _delayed(bus, subjects)
    held = await _held(bus, subjects)
    rows = []
    for name in sorted({*owners.owners, *depths, *delayed, *held}):
        depth = depths.get(name)
        rows.append(
            QueueRow(
                queue=name,
                pool=owners.pool(name),
                excluded=is_excluded(settings, name),
                waiting=depth.waiting if depth else held.get(name, 0),
                running=depth.claimed if depth else 0,
                delayed=delayed.get(name, 0),
                paused=depth.paused if depth else False,
                oldest_waiting_seconds=await _oldest(bus, subjects, name, depth),
            )
        )
    return rows


async def _delayed(bus: Bus, subjects: Subjects) -> dict[str, int]:
    """Schedules by queue: jobs with a delay, and retries."""
    found: dict[str, int] = {}
    counts = await bus.count(subjects.jobs_stream, subjects.schedule("*", "*"))
    for subject, number in counts.items():
        name = subject.split(".")[-2]
        found[name] = found.get(name, 0) + number
    return found


async def _held(bus: Bus, subjects: Subjects) -> dict[str, int]:
    """Jobs by queue, of queues that never had a consumer too: those that no pool ever took."""
    counts = await bus.count(subjects.jobs_stream, subjects.queue("*"))
    return {subject.rpartition(".")[2]: number for subject, number in counts.items()}


async def _oldest(
    bus: Bus, subjects: Subjects, queue: str, depth: QueueDepth | None
) -> float | None:
    if depth is not None and not depth.waiting:
        return None
    return await oldest_seconds(bus, subjects, queue, depth.delivered_sequence if depth else 0)
