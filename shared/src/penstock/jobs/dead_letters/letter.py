"""Dead letters as values: decoding, filtering, and grouping by failure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property

import msgspec

from penstock.bus.protocol import Stored
from penstock.events.envelope import LATEST_YEAR
from penstock.events.job import JobError
from penstock.jobs.dead_letters.fingerprint import fingerprint, what_failed
from penstock.jobs.queues.queue_messages import DeadLetter

MOST_GROUPS = 1_000
"""Groups that are kept apart; further ones are counted together."""
OTHERS = "others"
_MOST_NAMES = 10
_LATEST_SECONDS = datetime(LATEST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()


class Letter(msgspec.Struct, frozen=True, dict=True):
    """A dead letter, and its sequence in the stream; a later death has a higher one."""

    content: DeadLetter
    sequence: int

    @property
    def job_id(self) -> str:
        return self.content.job_id

    @property
    def at(self) -> datetime:
        """When the job died."""
        return datetime.fromtimestamp(self.content.at, UTC)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.content.error)


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which letters are meant; a field that is left out matches all.

    Attributes:
        queue: of the job.
        function: name of the job's function.
        kind: type of the error, whole or its last part.
        tag: one of the job's tags.
        fingerprint: of the failure.
        since: the job died at this time or later.
        until: the job died before this time.
    """

    queue: str = ""
    function: str = ""
    kind: str = ""
    tag: str = ""
    fingerprint: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def fits(self, letter: Letter) -> bool:
        content = letter.content
        return (
            self.queue in ("", content.queue)
            and self.function in ("", content.function)
            and self.kind in ("", content.error.kind, content.error.kind.rpartition(".")[2])
            and (not self.tag or self.tag in content.tags)
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
            and self.fingerprint in ("", letter.fingerprint)
        )


class Group(msgspec.Struct, kw_only=True):
    """Letters of one failure. ``message`` is normalised; ``example`` is the id of the latest."""

    fingerprint: str
    count: int = 0
    kind: str = ""
    message: str = ""
    functions: list[str] = []
    queues: list[str] = []
    first_at: datetime
    last_at: datetime
    example: str = ""


def read_letter(stored: Stored) -> Letter:
    """The letter in a stored message; one that cannot be decoded becomes an error of its own."""
    try:
        content = _decode(stored)
    except (ValueError, RecursionError) as error:
        _, queue, name = stored.subject.rsplit(".", 2)
        content = DeadLetter(
            job_id=name,
            queue=queue,
            function="",
            payload=b"",
            error=JobError(kind="malformed", message=f"not a dead letter: {error}"),
            attempts=0,
            at=stored.at.timestamp(),
        )
    return Letter(content, stored.sequence)


def died_at(stored: Stored) -> float:
    """POSIX seconds of the death in a stored letter; where it is no letter, of its storing."""
    try:
        return _decode(stored).at
    except (ValueError, RecursionError):
        return stored.at.timestamp()


def _decode(stored: Stored) -> DeadLetter:
    """Raises ValueError, RecursionError: it is no letter, or of a time that does not exist."""
    letter = msgspec.json.decode(stored.body, type=DeadLetter)
    if not 0 <= letter.at < _LATEST_SECONDS:
        raise ValueError(f"found at = {letter.at:g}, expected POSIX seconds")
    return letter


def add_to_groups(groups: dict[str, Group], letter: Letter) -> None:
    """Counts a letter among those of the same failure, by fingerprint."""
    content = letter.content
    is_kept_apart = letter.fingerprint in groups or len(groups) < MOST_GROUPS
    name = letter.fingerprint if is_kept_apart else OTHERS
    group = groups.setdefault(name, Group(fingerprint=name, first_at=letter.at, last_at=letter.at))
    group.count += 1
    group.first_at, group.last_at = min(group.first_at, letter.at), max(group.last_at, letter.at)
    if is_kept_apart:
        group.kind, group.message = content.error.kind, what_failed(content.error)
    group.example = letter.job_id
    _add_name(group.functions, content.function)
    _add_name(group.queues, content.queue)


def _add_name(names: list[str], name: str) -> None:
    if name not in names and len(names) < _MOST_NAMES:
        names.append(name)
