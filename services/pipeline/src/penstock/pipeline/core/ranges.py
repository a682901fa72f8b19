"""Ranges of stream sequences: what a micro-batch covers, and how tasks share it.

An offset says both ends of the batch that led to it. Spark asks for the initial offset anew when it
repeats a first batch after a crash, and "the newest message" has moved by then; an end that carries
its own beginning does not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import msgspec

LEAST_A_TASK = 10_000
"""A task costs about as much as reading so many messages."""


class StreamChanged(RuntimeError):
    """The stream is not the one that the checkpoint speaks of, or has lost what was to be read."""


class Extent(msgspec.Struct, frozen=True):
    """The extent of a stream: first and last sequence, and when it was made."""

    first: int
    last: int
    made: str = ""


class Offset(msgspec.Struct, frozen=True):
    """All up to ``sequence`` is read; the batch that ends here began behind ``after``."""

    after: int
    sequence: int
    made: str = ""


class Range(msgspec.Struct, frozen=True):
    """Sequences ``first`` to ``last``, both read."""

    first: int
    last: int


def initial(extent: Extent, before: int) -> dict[str, Any]:
    """The offset of a query that has read nothing behind sequence ``before``."""
    return msgspec.to_builtins(Offset(before, before, extent.made))  # type: ignore[no-any-return]


def advance(
    start: dict[str, Any],
    extent: Extent,
    at_most: int | None,
    on_loss: Literal["go_on", "fail"] = "go_on",
) -> dict[str, Any]:
    """The end of the next batch: ``start`` itself when there is nothing new.

    Args:
        at_most: sequences; None for all.

    Raises:
        StreamChanged: made anew since ``start``; or messages are gone and ``on_loss`` is ``fail``.
    """
    at = msgspec.convert(start, Offset)
    if at.made != extent.made or at.sequence > extent.last:
        raise StreamChanged(
            f"the checkpoint is at sequence {at.sequence} of a stream made {at.made}, found one "
            f"made {extent.made} that ends at {extent.last}: it was made anew; use a new checkpoint"
        )
    after = max(at.sequence, min(extent.first - 1, extent.last))
    if after > at.sequence and on_loss == "fail":
        raise StreamChanged(
            f"sequences {at.sequence + 1} to {after} were deleted before they were read; start a "
            "new checkpoint behind them, or set the option on_loss to go_on"
        )
    end = extent.last if at_most is None else min(extent.last, after + at_most)
    if end <= at.sequence:
        return start
    return msgspec.to_builtins(Offset(after, end, extent.made))  # type: ignore[no-any-return]


def split(first: int, last: int, parts: int, least: int = LEAST_A_TASK) -> list[Range]:
    """At most ``parts`` ranges of nearly one size, none under ``least`` where one would do."""
    count = last - first + 1
    if count <= 0:
        return []
    parts = max(1, min(parts, count // least))
    bounds = [first + count * part // parts for part in range(parts + 1)]
    return [Range(low, high - 1) for low, high in pairwise(bounds)]
