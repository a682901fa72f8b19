"""Dead letters as rows, and one with its error and arguments."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.cli.jobs.job_view import quoted
from penstock.cli.output import Column
from penstock.events.job import JobError
from penstock.jobs.dead_letters.letter import Letter
from penstock.jobs.payloads import redaction
from penstock.views import wording

_MESSAGE = 100


class LetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """One letter in a list."""

    id: str
    queue: str
    function: str
    at: datetime
    attempts: int
    error: str
    fingerprint: str
    tags: tuple[str, ...] = ()

    @staticmethod
    def of(letter: Letter) -> LetterRow:
        content = letter.content
        return LetterRow(
            id=letter.job_id,
            queue=content.queue,
            function=content.function,
            at=letter.at,
            attempts=content.attempts,
            error=f"{content.error.kind}: {content.error.message.partition(chr(10))[0][:_MESSAGE]}",
            fingerprint=letter.fingerprint,
            tags=content.tags,
        )


class LetterDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One letter with its error; ``arguments`` are plain values."""

    letter: LetterRow
    arguments: Any
    error: JobError
    trace: str


LETTER_COLUMNS = (
    Column("id", lambda row: row.id),
    Column("died", lambda row: wording.clock(row.at), rank=1),
    Column("queue", lambda row: row.queue, rank=4),
    Column("function", lambda row: row.function, rank=3, sentence=True),
    Column("attempts", lambda row: str(row.attempts), number=True, rank=4),
    Column("failure", lambda row: row.fingerprint, rank=4),
    Column("error", lambda row: wording.error(row.error), rank=1, sentence=True),
)

GROUP_COLUMNS: tuple[Column, ...] = (
    Column("failure", lambda group: group.fingerprint),
    Column("count", lambda group: str(group.count), number=True, rank=1),
    Column("first", lambda group: wording.clock(group.first_at), rank=4),
    Column("last", lambda group: wording.clock(group.last_at)),
    Column("functions", lambda group: ", ".join(group.functions), rank=3, sentence=True),
    Column(
        "error",
        lambda group: wording.error(f"{group.kind}: {group.message}"),
        rank=1,
        sentence=True,
    ),
    Column("example", lambda group: group.example, rank=4),
)


def detail(letter: Letter) -> LetterDetail:
    return LetterDetail(
        letter=LetterRow.of(letter),
        arguments=redaction.arguments(letter.content.payload),
        error=letter.content.error,
        trace=letter.content.trace,
    )


def description(letter: Letter) -> list[str]:
    """One letter as lines of text."""
    content, arguments = letter.content, detail(letter).arguments
    return [
        f"job        {letter.job_id}",
        f"died       {wording.clock(letter.at)}, after {content.attempts} attempts",
        f"function   {content.function or '(a message that could not be read)'}",
        f"queue      {content.queue}",
        f"arguments  {msgspec.json.encode(arguments).decode()}",
        *([f"tags       {', '.join(content.tags)}"] if content.tags else []),
        f"failure    {letter.fingerprint}",
        f"error      {content.error.kind}: {content.error.message}",
        *quoted(content.error.traceback),
    ]
