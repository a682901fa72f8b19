"""Kinds of failures, with the jobs that are dead of them now."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from penstock.console.core import tables
from penstock.console.core.failure_rows import FailureRow
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.read_models import keyset
from penstock.console.read_models.keyset import Condition
from penstock.console.read_models.store import Snapshot

MOST_COUNTED = 10_000
"""Dead jobs of a group are counted up to here."""
_HOUR_US = 3_600_000_000


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Failures that look alike.

    Attributes:
        deaths: jobs that died of it, since ``first_at``; those that were retried since count, too.
        dead_now: of these, the ones that are dead now, 10,000 at most.
    """

    fingerprint: str
    kind: str
    message: str
    deaths: int
    dead_now: int
    first_at: datetime
    last_at: datetime
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    last_job: str


class DeathsOfHour(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the dead jobs of a group died within an hour."""

    at: datetime
    deaths: int


def listed(functions: Collection[str], *, silenced: bool) -> Condition:
    """A condition on groups: all functions of a silenced one are muted.

    Args:
        functions: that are muted.
        silenced: whether these groups are meant, or the others.
    """
    marks = ", ".join("?" * len(functions))
    is_silenced = (
        "functions != '[]' AND NOT EXISTS"
        f" (SELECT 1 FROM json_each(functions) WHERE value NOT IN ({marks}))"
    )
    return f"{'' if silenced else 'NOT '}({is_silenced})", tuple(functions)


async def newest_failures(
    console: Console, limit: int, cursor: str, *, silenced: bool
) -> tuple[list[Failure], str]:
    """A page of failures, the latest first, and the cursor of the following one.

    Args:
        console: its parts.
        limit: of the page.
        cursor: where it begins; empty for the first one.
        silenced: whether those of muted functions are meant, or the others.

    Raises:
        BadCursor
    """
    also = listed([*console.alerts.book.muted], silenced=silenced)
    rows, after = await keyset.page(console, tables.FAILURES, "last_us", {}, limit, cursor, also)
    return await console.read(lambda snapshot: [failure(snapshot, row) for row in rows]), after


def failure(rows: Snapshot, row: FailureRow) -> Failure:
    """A row as it is sent, with how many jobs are dead of it now."""
    counted = rows.one(
        "SELECT COUNT(*) FROM"
        " (SELECT 1 FROM jobs WHERE fingerprint = ? AND state = 'dead' LIMIT ?)",
        (row.fingerprint, MOST_COUNTED),
    )
    copied = ("fingerprint", "kind", "message", "deaths", "functions", "queues", "last_job")
    return Failure(
        dead_now=counted[0] if counted else 0,
        first_at=instant(row.first_us),
        last_at=instant(row.last_us),
        **{name: getattr(row, name) for name in copied},
    )


def deaths_by_hour(rows: Snapshot, fingerprint: str) -> list[DeathsOfHour]:
    """Of the newest 10,000 jobs that are dead of it."""
    newest = (
        "SELECT finished_us FROM jobs WHERE fingerprint = ? AND state = 'dead'"
        f" ORDER BY dispatched_us DESC LIMIT {MOST_COUNTED}"
    )
    counted = rows.all(
        f"SELECT finished_us / {_HOUR_US} AS hour, COUNT(*) FROM ({newest})"
        " GROUP BY hour ORDER BY hour",
        (fingerprint,),
    )
    return [DeathsOfHour(at=instant(hour * _HOUR_US), deaths=count) for hour, count in counted]
