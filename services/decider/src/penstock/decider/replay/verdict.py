"""What a replay found: how much is equal, and what is not."""

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
        rounds / decisions: recomputed. equal_rounds / equal_decisions: bit for bit, also where a
            decision was not worth an event (by its round's digest).
        told / equal_told: decisions that are events of the log, compared byte by byte.
        other_program: rounds that differ and were decided by another program.
        gaps: rounds that cannot be recomputed. orphans: told decisions without their round.
        unreadable: messages that should be decisions.
        first / last: epoch and number of the checkpoints at its ends.
        states / equal_states: kept at checkpoints, compared with what the rounds led to.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    begins_at: datetime | None = None
    ends_at: datetime | None = None
    rounds: int = 0
    equal_rounds: int = 0
    decisions: int = 0
    equal_decisions: int = 0
    told: int = 0
    equal_told: int = 0
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
            + self.told
            - self.equal_told
            + self.states
            - self.equal_states
        )


class Torn(RuntimeError):
    """A fault of the replay itself: part of the log was passed over."""


def add(verdicts: list[Verdict]) -> Verdict:
    """Of stretches in order, the verdict of the whole."""
    total = Verdict()
    for one in verdicts:
        if total.last and one.first and total.last != one.first:
            raise Torn(f"stretches do not meet: {total.last} and {one.first}")
        total.first, total.last = total.first or one.first, one.last or total.last
        for name in COUNTS:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.begins_at = total.begins_at or one.begins_at
        total.ends_at = one.ends_at or total.ends_at
        total.programs = sorted({*total.programs, *one.programs})
        total.unreadable += one.unreadable
        total.differences = [*total.differences, *one.differences][:MOST_SHOWN]
        total.unproven = [*total.unproven, *one.unproven][:MOST_SHOWN]
    return total


COUNTS = tuple(field.name for field in msgspec.structs.fields(Verdict) if field.type is int)
