"""What commands that act on many jobs share: options, confirmation, progress, the report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import wraps
from typing import Any

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import note, write_json, write_line, write_progress
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.jobs.bulk.client import Bulk, BulkOutcome, Effect, Matching
from penstock.jobs.client import Client
from penstock.jobs.job_filter import JobFilter

_SHOWN_GROUPS, _SHOWN_LEFT, _JSON_LEFT = 20, 10, 1_000
Act = Callable[[Bulk], AsyncIterator[list[BulkOutcome]]]
Command = Callable[..., Any]


class Caution(msgspec.Struct, frozen=True, kw_only=True):
    """How carefully a command acts.

    Attributes:
        dry_run: it only counts.
        yes: it does not ask.
        limit: jobs that it acts on at most; 0 for all.
        reason: recorded with each job's event.
    """

    dry_run: bool
    yes: bool
    limit: int
    reason: str


def cautious(command: Command) -> Command:
    """The options of :class:`Caution`; the command receives them as ``caution``."""

    @wraps(command)
    def collected(
        *args: Any, dry_run: bool, yes: bool, limit: int, reason: str, **options: Any
    ) -> Any:
        caution = Caution(dry_run=dry_run, yes=yes, limit=limit, reason=reason)
        return command(*args, caution=caution, **options)

    for option in (
        click.option("--reason", default="", help="Recorded with each job's event."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option(
            "--limit",
            type=click.IntRange(min=0),
            default=0,
            help="Act on at most so many jobs; 0: all.",
        ),
        click.option("--dry-run", is_flag=True, help="Only count the matching jobs."),
    ):
        collected = option(collected)
    return collected


def act(
    session: Session,
    caution: Caution,
    matching: JobFilter,
    operation: Act,
    done: tuple[str, str],
) -> None:
    """Counts the jobs, asks, acts on them, and reports.

    Args:
        session: of the command.
        caution: its options.
        matching: which jobs.
        operation: acts on them.
        done: the report on one job, and on several: ``("is cancelled", "are cancelled")``.

    Raises:
        Refused: no terminal to ask for confirmation on.
        Failed: jobs that match were left.
    """
    matches = session.with_client(lambda client: client.bulk.count(matching))
    if caution.dry_run or not matches.jobs:
        _show_matching(session, matches)
        return
    if not caution.yes:
        _confirm(session, matches, caution, done[1])

    async def request(bus: Bus, settings: Settings) -> tuple[Counter[Effect], list[BulkOutcome]]:
        counts: Counter[Effect] = Counter()
        left: list[BulkOutcome] = []
        async for page in operation(Client.over(bus, settings, "cli").bulk):
            counts.update(outcome.effect for outcome in page)
            left += [one for one in page if one.effect is Effect.LEFT]
            left = left[:_JSON_LEFT]
            _show_progress(session, counts, matches.jobs)
        return counts, left

    _report(session, *session.run(request), done)


def _confirm(session: Session, matches: Matching, caution: Caution, done: str) -> None:
    jobs = _jobs(min(matches.jobs, caution.limit) if caution.limit else matches.jobs)
    if not sys.stdin.isatty():
        raise Refused(f"{jobs} match: add --yes to act on them, or --dry-run to count them")
    for text in _groups(matches):
        note(text)
    question = f"{jobs} match. Shall they {done.replace('are ', 'be ')}?"
    click.confirm(question, err=True, abort=True)


def _show_matching(session: Session, matches: Matching) -> None:
    if session.as_json:
        groups = [
            {"queue": queue, "function": function, "jobs": count}
            for (queue, function), count in matches.groups.items()
        ]
        write_json({"jobs": matches.jobs, "groups": groups, "done": 0, "left": []})
        return
    for text in _groups(matches):
        write_line(text)
    write_line(f"{_jobs(matches.jobs)} match; nothing was done")


def _groups(matches: Matching) -> list[str]:
    ranked = sorted(matches.groups.items(), key=lambda item: -item[1])
    texts = [f"  {count} of {function} on queue {queue}" for (queue, function), count in ranked]
    further = len(texts) - _SHOWN_GROUPS
    return [*texts[:_SHOWN_GROUPS], *([f"  and {further} more groups"] if further > 0 else [])]


def _show_progress(session: Session, counts: Counter[Effect], total: int) -> None:
    if not session.as_json and sys.stderr.isatty() and counts.total() < total:
        write_progress(f"{counts.total()} of {total}")


def _report(
    session: Session, counts: Counter[Effect], left: list[BulkOutcome], done: tuple[str, str]
) -> None:
    number = counts[Effect.DONE]
    if session.as_json:
        write_json({"done": number, "void": counts[Effect.VOID], "left": left})
    else:
        if sys.stderr.isatty():
            write_progress("")
        write_line(f"{_jobs(number)} {done[0] if number == 1 else done[1]}")
        for outcome in left[:_SHOWN_LEFT]:
            note(f"{outcome.id} is left: {outcome.text}")
    refused = [one for one in left if not one.is_running]
    if refused:
        raise Failed(f"{_jobs(len(refused))} could not be acted on, such as {refused[0].id}")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"
