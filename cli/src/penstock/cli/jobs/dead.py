"""`penstock dead`: jobs that will not run again by themselves; why, and what to do about them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from typing import Any

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.call import CHANGES, read_changes
from penstock.cli.jobs.dead_view import (
    GROUP_COLUMNS,
    LETTER_COLUMNS,
    LetterRow,
    description,
    detail,
)
from penstock.cli.output import note, say, say_json, say_rows
from penstock.cli.parameters import JOB_ID, QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs.dead_letters.client import DeadLetters, Outcome
from penstock.jobs.dead_letters.letter import LetterFilter
from penstock.jobs.dead_letters.requeue import Requeuer

_MOST_TOLD, _MOST_KEPT = 20, 1_000
"""Failures that are told one by one, and in JSON; of a million letters one wants the count."""

Options = Callable[..., Any]
_CHOICES = ("queue", "function", "kind", "tag", "fingerprint")


def filters(command: Options) -> Options:
    """The options that choose letters; the command is given a ``wanted``."""

    @wraps(command)
    def chosen(*args: Any, since: float | None, **options: Any) -> Any:
        fields: dict[str, Any] = {name: options.pop(name) or "" for name in _CHOICES}
        moment = datetime.now(UTC) - timedelta(seconds=since) if since is not None else None
        return command(*args, wanted=LetterFilter(**fields, since=moment), **options)

    return _with(
        chosen,
        click.option("--queue", type=QUEUE, help="Only those of this queue."),
        click.option("--function", default="", help="Only jobs of this name."),
        click.option("--error", "kind", default="", help="Only errors of this type: ValueError."),
        click.option("--tag", default="", help="Only jobs with this tag."),
        click.option("--fingerprint", default="", help="Only this failure; see 'dead groups'."),
        click.option("--since", type=SECONDS, help="Only jobs that died within so long: 2h."),
    )


def mass(command: Options) -> Options:
    """The options of a command that acts on one letter or on all that fit."""
    return _with(
        command,
        click.argument("id", type=JOB_ID, required=False),
        click.option("--all", "every", is_flag=True, help="All that fit the filters."),
        click.option("--dry-run", is_flag=True, help="Only tell how many fit."),
        click.option("--yes", is_flag=True, help="Do not ask before acting on many."),
        click.option("--reason", default="", help="Recorded with what is done."),
    )


def _with(command: Options, *options: Callable[[Options], Options]) -> Options:
    for option in reversed(options):
        command = option(command)
    return command


@click.group(cls=Group, example="penstock dead groups\npenstock dead retry --all --queue reports")
def dead() -> None:
    """List, group, show, retry and delete dead letters."""


@dead.command(name="ls", example="penstock dead ls --queue reports --error ValueError --since 2h")
@filters
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@click.pass_obj
def list_letters(session: Session, wanted: LetterFilter, limit: int) -> None:
    """List dead letters, the latest first."""

    async def ask(bus: Bus, settings: Settings) -> list[LetterRow]:
        rows: list[LetterRow] = []
        async for letter in letters_of(bus, settings).find(wanted):
            rows.append(LetterRow.of(letter))
            if len(rows) == limit:
                break
        return rows

    say_rows(session, session.ask(ask), LETTER_COLUMNS, "no such dead letter")


@dead.command(example="penstock dead groups --since 1d")
@filters
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000))
@click.pass_obj
def groups(session: Session, wanted: LetterFilter, limit: int) -> None:
    """Count dead letters by what they died of, the most frequent first."""
    found = session.ask(lambda bus, settings: letters_of(bus, settings).groups(wanted))
    say_rows(session, list(islice(found, limit)), GROUP_COLUMNS, "no such dead letter")


@dead.command(example="penstock dead show 0193…")
@click.argument("id", type=JOB_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one dead letter: arguments, error, traceback."""
    letter = session.ask(lambda bus, settings: letters_of(bus, settings).get(id))
    if session.as_json:
        say_json(detail(letter))
    else:
        say("\n".join(description(letter)))


@dead.command(
    example="penstock dead retry 0193…\n"
    "penstock dead retry --all --fingerprint 3fa9c01d22be --dry-run\n"
    "penstock dead retry --all --function reports.rebuild --arg table=orders_v2"
)
@mass
@filters
@CHANGES
@click.pass_obj
def retry(
    session: Session,
    /,
    id: str | None,
    wanted: LetterFilter,
    changes: tuple[str, ...],
    **how: Any,
) -> None:
    """Let dead jobs go again, as they were or with some arguments replaced.

    A job goes again once, whoever else retries it; its id stays the same.
    """
    if changes and id is None and not wanted.function:
        raise Refused("--arg with --all needs --function: only then it can be checked")

    async def act(letters: DeadLetters, settings: Settings) -> AsyncIterator[list[Outcome]]:
        if id is not None:
            function = (await letters.get(id)).content.function if changes else ""
            arguments = read_changes(settings, function, changes)
            await letters.retry(id, arguments, how["reason"])
            yield [Outcome(id)]
            return
        arguments = read_changes(settings, wanted.function, changes)
        async for page in letters.retry_all(wanted, arguments, how["reason"]):
            yield page

    _act(session, id, wanted, how, ("goes again", "go again"), act)


@dead.command(example="penstock dead delete --all --queue mails --since 7d --dry-run")
@mass
@filters
@click.pass_obj
def delete(session: Session, /, id: str | None, wanted: LetterFilter, **how: Any) -> None:
    """Give dead letters up for good; the jobs stay dead."""

    async def act(letters: DeadLetters, _: Settings) -> AsyncIterator[list[Outcome]]:
        if id is not None:
            await letters.delete(id, how["reason"])
            yield [Outcome(id)]
            return
        async for page in letters.delete_all(wanted, how["reason"]):
            yield page

    _act(session, id, wanted, how, ("is deleted", "are deleted"), act)


Act = Callable[[DeadLetters, Settings], AsyncIterator[list[Outcome]]]


def _act(
    session: Session,
    id: str | None,
    wanted: LetterFilter,
    how: dict[str, Any],
    done: tuple[str, str],
    act: Act,
) -> None:
    """One letter at once; many only after a look at how many, and a yes."""
    if (id is None) != how["every"]:
        raise click.UsageError("give either a job ID or --all", click.get_current_context())
    if id is not None and wanted != LetterFilter():
        raise Refused("filters go with --all; see 'penstock dead --help'")
    if how["every"] and not _agreed(session, wanted, how, done[1]):
        return

    async def ask(bus: Bus, settings: Settings) -> tuple[int, int, list[Outcome]]:
        count = good = 0
        failed: list[Outcome] = []
        async for page in act(letters_of(bus, settings), settings):
            bad = [each for each in page if each.error]
            count, good = count + len(page), good + len(page) - len(bad)
            failed = (failed + bad)[:_MOST_KEPT]
        return count, good, failed

    _tell(session, *session.ask(ask), done)


def _agreed(session: Session, wanted: LetterFilter, how: dict[str, Any], done: str) -> bool:
    count = session.ask(lambda bus, settings: letters_of(bus, settings).count(wanted))
    if how["dry_run"] or not count:
        if session.as_json:
            say_json({"fit": count, "done": 0, "failed": []})
        else:
            say(f"{count} dead letters fit; nothing was done")
        return False
    if how["yes"]:
        return True
    if not sys.stdin.isatty():
        raise Refused(f"{count} dead letters fit: add --yes to act on them, or --dry-run to look")
    return click.confirm(f"{count} dead letters fit. Shall they {_asked(done)}?", err=True)


def _asked(done: str) -> str:
    return done.replace("are ", "be ")


def _tell(
    session: Session, count: int, good: int, failed: list[Outcome], done: tuple[str, str]
) -> None:
    if session.as_json:
        say_json({"fit": count, "done": good, "failed": failed})
    else:
        say(f"{good} dead {'letter ' + done[0] if good == 1 else 'letters ' + done[1]}")
        for each in failed[:_MOST_TOLD]:
            note(f"{each.id}: {each.error}")
    if good < count:
        raise Failed(f"{count - good} of {count} did not")


def letters_of(bus: Bus, settings: Settings) -> DeadLetters:
    subjects = Subjects(settings.prefix)
    requeuer = Requeuer(bus, subjects, "cli", settings.jobs.max_payload_bytes)
    return DeadLetters(bus, subjects, "cli", requeuer)
