"""How many jobs of a batch may fail, as its author writes it. Pure."""

from __future__ import annotations

from contextlib import suppress


def parse_allowed_failures(failures: int | str) -> tuple[int, float | None]:
    """A number of failures, or a share as ``"5%"``: number and percentage.

    Raises:
        ValueError: names the value and what is allowed.
    """
    with suppress(ValueError):
        if isinstance(failures, str) and failures.endswith("%"):
            percent = float(failures[:-1])
            if 0 <= percent <= 100:
                return 0, percent
        elif int(failures) >= 0:
            return int(failures), None
    raise ValueError(
        f"allowed failures are a number from 0 on, or a share such as '5%', found {failures!r}"
    )
