"""The verdict of a replay: how much is equal, and every difference."""

from __future__ import annotations

from datetime import datetime

import msgspec

MOST_SHOWN = 20
"""Differences and gaps kept in full; beyond that they are only counted."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that comes out otherwise; ``what``: one sentence each."""

    at: datetime
    epoch: int
    round: int
    pool: str = ""
    decision: str = ""
    program: str = ""
    what: tuple[str, ...]


class Unproven(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds that cannot be recomputed, and why."""

    at: datetime
    epoch: int
    round: int
    why: str


class Verdict(msgspec.Struct, kw_only=True):
    """Counts of a stretch of the log.

    Attributes:
        first: epoch and number of the checkpoint at its beginning.
        last: of the checkpoint at its end.
        begins_at: time of its first round.
        ends_at: time of its last round.
        rounds: recomputed.
        equal_rounds: equal bit for bit.
        decisions: recomputed.
        equal_decisions: equal bit for bit, also unpublished ones (by their round's digest).
        published: decisions that are events of the log, compared byte by byte.
        equal_published: those of them that are equal.
        other_program: rounds that differ and were decided by another program.
        gaps: rounds that cannot be recomputed.
        orphans: published decisions without their round.
        states: kept at checkpoints, compared with the state that the rounds led to.
        equal_states: those of them that are equal.
        programs: that decided, the first ones.
        unreadable: messages that should be decisions, the first ones.
        differences: the first ones.
        unproven: the first rounds that cannot be recomputed.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    begins_at: datetime | None = None
    ends_at: datetime | None = None
    rounds: int = 0
    equal_rounds: int = 0
    decisions: int = 0
    equal_decisions: int = 0
    published: int = 0
    equal_published: int = 0
    other_program: int = 0
    gaps: int = 0
    orphans: int = 0
    states: int = 0
    equal_states: int = 0
    programs: list[str] = []
    unreadable: list[str] = []
    differences: list[Difference] = []
    unproven: list[Unproven] = []

    @property
    def is_equal(self) -> bool:
        """All of it, and there was something."""
        unsure = self.gaps or self.orphans or self.unreadable
        return self.rounds > 0 and not unsure and not self._unequal

    @property
    def _unequal(self) -> int:
        return (
            self.rounds
            - self.equal_rounds
            + self.published
            - self.equal_published
            + self.states
            - self.equal_states
        )


class Torn(RuntimeError):
    """A fault of the replay itself: part of the log was passed over."""


def add(verdicts: list[Verdict]) -> Verdict:
    """The verdict on all stretches, which are in order."""
    total = Verdict()
    for one in verdicts:
        if total.last and one.first and total.last != one.first:
            raise Torn(f"stretches do not meet: {total.last} and {one.first}")
        total.first, total.last = total.first or one.first, one.last or total.last
        for name in COUNTS:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.begins_at = total.begins_at or one.begins_at
        total.ends_at = one.ends_at or total.ends_at
        total.programs = sorted({*total.programs, *one.programs})[:MOST_SHOWN]
        total.unreadable = [*total.unreadable, *one.unreadable][:MOST_SHOWN]
        total.differences = [*total.differences, *one.differences][:MOST_SHOWN]
        total.unproven = [*total.unproven, *one.unproven][:MOST_SHOWN]
    return total


COUNTS = tuple(field.name for field in msgspec.structs.fields(Verdict) if field.type is int)
