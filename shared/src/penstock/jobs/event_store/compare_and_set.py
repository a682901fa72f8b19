"""Read, change, and write if no other writer came in between: one loop and one policy for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.jobs.errors import JobRefused

State = TypeVar("State")
Result = TypeVar("Result")

TRIES = 20
"""Without a pause in between: of all who write at the same time, one succeeds in each round."""


async def compare_and_set(
    read: Callable[[], Awaitable[State]],
    change: Callable[[State], Awaitable[Result | None]],
    what: str,
    tries: int = TRIES,
) -> Result:
    """Reads and changes until no other writer was first.

    Args:
        read: returns the state now.
        change: writes what follows from that state, expecting the sequence that was read; returns
            None when another writer was first.
        what: names the record in the error, such as ``batch nightly``.
        tries: rounds until the caller is refused.

    Returns:
        What ``change`` returned.

    Raises:
        JobRefused: another writer was first in each round.
    """
    for _ in range(tries):
        if (result := await change(await read())) is not None:
            return result
    raise JobRefused(f"{what} changes too quickly; try again")
