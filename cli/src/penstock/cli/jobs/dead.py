"""`penstock dead`: jobs that will not run again by themselves."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from typing import Any

import click
import msgspec

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
from penstock.cli.output import note, write_json, write_line, write_lines, write_rows
from penstock.cli.parameters import JOB_ID, MOST_ROWS, QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs.dead_letters.client import DeadLetters, Outcome
from penstock.jobs.dead_letters.letter import Letter, LetterFilter
from penstock.jobs.dead_letters.requeue import Requeuer
from penstock.jobs.errors import JobsError
from penstock.jobs.reading.id_prefix import find_id

_LISTED_FAILURES, _JSON_FAILURES = 20, 1_000
"""Failures that are printed one by one, as text and as JSON; beyond them only the count."""

Options = Callable[..., Any]
_CHOICES = ("queue", "function", "kind", "tag", "fingerprint")


def filters(command: Options) -> Options:
    """The options that choose letters; the command receives them as ``wanted``."""

    @wraps(command)
    def chosen(*args: Any, since: float | None, **options: Any) -> Any:
        fields: dict[str, Any] = {name: options.pop(name) or "" for name in _CHOICES}
        moment = datetime.now(UTC) - timedelta(seconds=since) if since is not None else None
        return command(*args, wanted=LetterFilter(**fields, since=moment), **options)

    return _with(
        chosen,
        click.option("--queue", type=QUEUE, help="Only letters of this queue."),
        click.option("--function", default="", help="Only jobs of this name."),
        click.option("--error", "kind", default="", help="Only errors of this type: ValueError."),
        click.option("--tag", default="", help="Only jobs with this tag."),
        click.option("--fingerprint", default="", help="Only this failure; see 'dead groups'."),
        click.option("--since", type=SECONDS, help="Only jobs that died within this time: 2h."),
    )


class Mass(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command that acts on letters by id, or on all that match."""

    every: bool
    dry_run: bool
    yes: bool
    reason: str


def mass(command: Options) -> Options:
    """The options of `Mass`, which the command receives as ``mass``, and the ids of letters."""

    @wraps(command)
    def collected(
        *args: Any, every: bool, dry_run: bool, yes: bool, reason: str, **options: Any
    ) -> Any:
        chosen = Mass(every=every, dry_run=dry_run, yes=yes, reason=reason)
        return command(*args, mass=chosen, **options)

    return _with(
        collected,
        click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID]…"),
        click.option("--all", "every", is_flag=True, help="All letters that match the filters."),
        click.option("--dry-run", is_flag=True, help="Only count the matching letters."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--reason", default="", help="Recorded with the retry or deletion."),
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
@MOST_ROWS
@click.pass_obj
def list_letters(session: Session, wanted: LetterFilter, limit: int) -> None:
    """List dead letters, the latest first."""

    async def request(bus: Bus, settings: Settings) -> list[LetterRow]:
        rows: list[LetterRow] = []
        async for letter in letters_of(bus, settings).find(wanted):
            rows.append(LetterRow.of(letter))
            if len(rows) == limit:
                break
        return rows

    write_rows(session, session.run(request), LETTER_COLUMNS, "no dead letters match")


@dead.command(example="penstock dead groups --since 1d")
@filters
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="Most rows to list.",
)
@click.pass_obj
def groups(session: Session, wanted: LetterFilter, limit: int) -> None:
    """Count dead letters by failure, the most frequent first."""
    grouped = session.run(lambda bus, settings: letters_of(bus, settings).groups(wanted))
    write_rows(session, list(islice(grouped, limit)), GROUP_COLUMNS, "no dead letters match")


@dead.command(example="penstock dead show 0193…")
@click.argument("id", type=JOB_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one dead letter: arguments, error, traceback."""

    async def request(bus: Bus, settings: Settings) -> Letter:
        job_id = await find_id(bus, Subjects(settings.prefix), id)
        return await letters_of(bus, settings).get(job_id)

    letter = session.run(request)
    if session.as_json:
        write_json(detail(letter))
    else:
        write_lines(description(letter))


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
    ids: tuple[str, ...],
    wanted: LetterFilter,
    changes: tuple[str, ...],
    mass: Mass,
) -> None:
    """Retry dead jobs, as they were or with some arguments replaced.

    A job is retried once, also if others retry it at the same time; its id stays the same.
    """
    if changes and not ids and not wanted.function:
        raise Refused("--arg with --all needs --function: only then the arguments can be checked")

    async def act(
        letters: DeadLetters, settings: Settings, job_id: str
    ) -> AsyncIterator[list[Outcome]]:
        if job_id:
            function = (await letters.get(job_id)).content.function if changes else ""
            arguments = read_changes(settings, function, changes)
            await letters.retry(job_id, arguments, mass.reason)
            yield [Outcome(job_id)]
            return
        arguments = read_changes(settings, wanted.function, changes)
        async for page in letters.retry_all(wanted, arguments, mass.reason):
            yield page

    _act(session, ids, wanted, mass, ("is retried", "are retried"), act)


@dead.command(
    example="penstock dead delete 0193… 0194…\n"
    "penstock dead delete --all --queue mails --since 7d --dry-run"
)
@mass
@filters
@click.pass_obj
def delete(session: Session, /, ids: tuple[str, ...], wanted: LetterFilter, mass: Mass) -> None:
    """Delete dead letters; the jobs stay dead."""

    async def act(letters: DeadLetters, _: Settings, job_id: str) -> AsyncIterator[list[Outcome]]:
        if job_id:
            await letters.delete(job_id, mass.reason)
            yield [Outcome(job_id)]
            return
        async for page in letters.delete_all(wanted, mass.reason):
            yield page

    _act(session, ids, wanted, mass, ("is deleted", "are deleted"), act)


Act = Callable[[DeadLetters, Settings, str], AsyncIterator[list[Outcome]]]
"""Acts on the letter of a job; on all that match where the id is empty."""


def _act(
    session: Session,
    ids: Sequence[str],
    wanted: LetterFilter,
    mass: Mass,
    done: tuple[str, str],
    act: Act,
) -> None:
    """Acts on named letters at once; on all that match after they were counted and confirmed."""
    if bool(ids) == mass.every:
        raise click.UsageError("give either IDs of jobs or --all", click.get_current_context())
    if ids and wanted != LetterFilter():
        raise Refused("filters go with --all; see 'penstock dead --help'")
    if mass.every and not _confirmed(session, wanted, mass, done[1]):
        return

    async def request(bus: Bus, settings: Settings) -> tuple[int, int, list[Outcome]]:
        count = good = 0
        failed: list[Outcome] = []
        pages = (
            _named(bus, settings, ids, act) if ids else act(letters_of(bus, settings), settings, "")
        )
        async for page in pages:
            bad = [outcome for outcome in page if outcome.error]
            count, good = count + len(page), good + len(page) - len(bad)
            failed = (failed + bad)[:_JSON_FAILURES]
        return count, good, failed

    _report(session, *session.run(request), done)


async def _named(
    bus: Bus, settings: Settings, ids: Sequence[str], act: Act
) -> AsyncIterator[list[Outcome]]:
    """Acts on letters one after another; what is wrong with one of several is its outcome.

    Raises:
        JobsError: what is wrong with a single one.
    """
    for text in dict.fromkeys(ids):
        try:
            job_id = await find_id(bus, Subjects(settings.prefix), text)
            async for page in act(letters_of(bus, settings), settings, job_id):
                yield page
        except JobsError as error:
            if len(ids) == 1:
                raise
            yield [Outcome(text, str(error))]


def _confirmed(session: Session, wanted: LetterFilter, mass: Mass, done: str) -> bool:
    count = session.run(lambda bus, settings: letters_of(bus, settings).count(wanted))
    if mass.dry_run or not count:
        if session.as_json:
            write_json({"fit": count, "done": 0, "failed": []})
        else:
            write_line(f"{count} dead letters match; nothing was done")
        return False
    if mass.yes:
        return True
    if not sys.stdin.isatty():
        raise Refused(
            f"{count} dead letters match: add --yes to act on them, or --dry-run to count them"
        )
    return click.confirm(
        f"{count} dead letters match. Shall they {done.replace('are ', 'be ')}?", err=True
    )


def _report(
    session: Session, count: int, good: int, failed: list[Outcome], done: tuple[str, str]
) -> None:
    if session.as_json:
        write_json({"fit": count, "done": good, "failed": failed})
    else:
        write_line(f"{good} dead {'letter ' + done[0] if good == 1 else 'letters ' + done[1]}")
        for outcome in failed[:_LISTED_FAILURES]:
            note(f"{outcome.id}: {outcome.error}")
    if good < count:
        raise Failed(f"{count - good} of {count} failed")


def letters_of(bus: Bus, settings: Settings) -> DeadLetters:
    subjects = Subjects(settings.prefix)
    requeuer = Requeuer(bus, subjects, "cli", settings.jobs.max_payload_bytes)
    return DeadLetters(bus, subjects, "cli", requeuer)
