"""Conditions as data: comparisons of results and context, combined by all, any and not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from penstock.events.envelope import Int64

MAX_DEPTH, MAX_PARTS = 8, 100
"""Of one condition: how deep its parts are nested, and how many there are."""
MAX_PATH_LENGTH, MAX_TEXT_LENGTH, MAX_CHOICES = 16, 1_000, 100

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
Path = Annotated[tuple[Text | Int64, ...], msgspec.Meta(min_length=2, max_length=MAX_PATH_LENGTH)]
"""``("results", STEP, FIELD, …)`` or ``("context", KEY, FIELD, …)``; a number is an
index of a list.

STEP is the name of a step in a definition, and its position in what was started."""
Scalar = Text | Int64 | float | bool | None
Choices = Annotated[tuple[Scalar, ...], msgspec.Meta(max_length=MAX_CHOICES)]


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is looked up when the condition is evaluated."""

    ref: Path


Operand = Reference | Text | Int64 | float | bool | None | Choices
Pair = tuple[Operand, Operand]


class Condition(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One comparison, or a combination of conditions: exactly one field is set.

    Attributes:
        all_of: all of these hold.
        any_of: one of these holds.
        negated: this does not hold.
        exists: there is such a value, and it is not null.
        eq: both values are equal, and of one type: 1 equals 1.0, not true.
        ne: they differ.
        lt: the first is less; both are numbers, or both are text.
        le: less or equal.
        gt: greater.
        ge: greater or equal.
        within: the first is an item of the second, which is a list.

    Raises:
        ValueError: none is set, or more than one; too deep, or too many parts.
    """

    all_of: tuple[Condition, ...] | None = msgspec.field(default=None, name="all")
    any_of: tuple[Condition, ...] | None = msgspec.field(default=None, name="any")
    negated: Condition | None = msgspec.field(default=None, name="not")
    exists: Path | None = None
    eq: Pair | None = None
    ne: Pair | None = None
    lt: Pair | None = None
    le: Pair | None = None
    gt: Pair | None = None
    ge: Pair | None = None
    within: Pair | None = msgspec.field(default=None, name="in")

    def __post_init__(self) -> None:
        if len(fields := self._set_fields()) != 1:
            names = ", ".join(name for name, _ in fields) or "none"
            raise ValueError(f"a condition has exactly one operator, found {names}")
        depth, parts = _size(self)
        if depth > MAX_DEPTH or parts > MAX_PARTS:
            raise ValueError(
                f"a condition has at most {MAX_PARTS} parts, {MAX_DEPTH} deep; found {parts} "
                f"parts, {depth} deep"
            )

    def _set_fields(self) -> list[tuple[str, Any]]:
        names = self.__struct_fields__
        return [(name, value) for name in names if (value := getattr(self, name)) is not None]

    @property
    def operator(self) -> str:
        """Name of the one field that is set."""
        return self._set_fields()[0][0]

    @property
    def parts(self) -> tuple[Condition, ...]:
        """The conditions that this one combines; none for a comparison."""
        if self.negated is not None:
            return (self.negated,)
        return self.all_of or self.any_of or ()

    @property
    def comparison(self) -> Pair | None:
        """Both sides of a comparison; None of a combination, and of ``exists``."""
        return self.eq or self.ne or self.lt or self.le or self.gt or self.ge or self.within

    def paths(self) -> Iterator[Path]:
        """All that it looks up."""
        if self.exists is not None:
            yield self.exists
        for operand in self.comparison or ():
            if isinstance(operand, Reference):
                yield operand.ref
        for part in self.parts:
            yield from part.paths()


def _size(condition: Condition) -> tuple[int, int]:
    """Depth and number of parts; those within were checked when they were made."""
    sizes = [_size(part) for part in condition.parts]
    depth = 1 + max((depth for depth, _ in sizes), default=0)
    return depth, 1 + sum(parts for _, parts in sizes)
