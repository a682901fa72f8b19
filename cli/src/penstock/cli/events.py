"""`penstock events`: the event log as it is written, and the schema for subscribers."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import click
import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.bus.since import first_since
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import note, write_json, write_json_line, write_line
from penstock.cli.parameters import SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.catalogue import ALL, LOGGED, entry
from penstock.events.envelope import MalformedEvent, utc_now
from penstock.events.subjects import Subjects
from penstock.jobs.payloads import redaction
from penstock.views.event_text import line


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a tail shows; None is any."""

    noun: str | None
    key: str | None
    name: str | None
    since: float | None
    limit: int | None
    follow: bool

    def subject(self, subjects: Subjects) -> str:
        return subjects.events(self.noun or "*", self.key or "*", self.name or "*")


@click.group(cls=Group, example="penstock events tail --noun job --since 10m")
def events() -> None:
    """The event log, and the schema of every event."""


@events.command(example="penstock events tail --noun pool --key reports --since 1h --json")
@click.option("--noun", type=Name("noun"), help="Only events of: job, pool, worker, host, decider.")
@click.option("--key", type=Name("key"), help="Only events of this job id, pool, worker or host.")
@click.option("--name", type=Name("event"), help="Only events of this name, such as JobCompleted.")
@click.option("--since", type=SECONDS, help="Start this long ago, such as 90s, 10m, 2h.")
@click.option("--limit", type=click.IntRange(min=1), help="End after this many events.")
@click.option("--follow/--no-follow", default=True, help="Wait for new events, or end.")
@click.pass_obj
def tail(session: Session, /, **options: Any) -> None:
    """Print events as they happen, one a line, until Ctrl-C; raw JSON with --json."""
    wanted = Wanted(**options)
    _check_event_name(wanted.name)

    async def read(bus: Bus, settings: Settings) -> None:
        await _print_events(session, bus, Subjects(settings.prefix), wanted)

    with suppress(KeyboardInterrupt):  # the usual end of a tail
        session.run(read)


async def _print_events(session: Session, bus: Bus, subjects: Subjects, wanted: Wanted) -> None:
    stream, subject = subjects.events_stream, wanted.subject(subjects)
    end = 0
    start: int | str = "new" if wanted.follow else 1
    if wanted.since is not None:
        moment = utc_now() - timedelta(seconds=wanted.since)
        start = await first_since(bus, stream, subject, moment)
    if not wanted.follow:
        last = await bus.last(stream, subject)
        end = last.sequence if last else 0
        if not isinstance(start, int) or start > end:
            note("no such event is in the log")
            return
    printed = 0
    async for stored in bus.follow(stream, [subject], start):
        _print_event(session, stored)
        printed += 1
        if printed == wanted.limit or (end and stored.sequence >= end):
            return


def _print_event(session: Session, stored: Stored) -> None:
    if session.as_json:
        write_json_line(_shown(stored.body))
        return
    try:
        write_line(line(LOGGED.decode(stored.body)))
    except MalformedEvent as error:
        note(f"{stored.subject} at sequence {stored.sequence}: {error}")


def _shown(body: bytes) -> str:
    """An event as it is stored, but for calls and results, which are decoded and masked."""
    if b'"payload"' not in body and b'"result"' not in body:
        return body.decode("utf-8", "backslashreplace")
    try:
        return msgspec.json.encode(redaction.event(msgspec.json.decode(body))).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return msgspec.json.encode({"unreadable": str(error)}).decode()


@events.command(example="penstock events schema ScalingDecisionMade")
@click.argument("name", required=False)
@click.pass_obj
def schema(session: Session, name: str | None) -> None:
    """Print subject, stream and JSON Schema of every event, or of one; always JSON."""
    _check_event_name(name)
    subjects = Subjects(session.settings().prefix)
    entries = [entry(kind, subjects) for kind in ALL if name in {None, kind.__name__}]
    write_json(entries if name is None else entries[0])


def _check_event_name(name: str | None) -> None:
    if name is not None and name not in ALL.types:
        import difflib  # noqa: PLC0415 - only for the mistaken

        near = difflib.get_close_matches(name, ALL.types, n=1)
        hint = f"did you mean {near[0]}?" if near else "'penstock events schema' lists all"
        raise Refused(f"there is no event {name!r}; {hint}")
