"""What a console leaves out while it is behind, so that rows go first. Pure."""

from __future__ import annotations

TEXTS = "texts of new jobs are not indexed, so that searches in them take longer"
PUSH = "pages are sent changes once a second"
SECONDS = "points of one second are not kept"

_STEPS = ((3.0, TEXTS), (5.0, SECONDS), (10.0, PUSH))
"""From how many seconds behind on; in this order, and back in the opposite one."""
_BACK_SHARE = 0.5
"""It is taken up again when the console is this share as far behind: it does not flap."""


def held_back(behind_seconds: float, former: tuple[str, ...]) -> tuple[str, ...]:
    """What is left out now.

    Args:
        behind_seconds: how old the rows are.
        former: what was left out until now.
    """
    return tuple(
        text
        for limit, text in _STEPS
        if behind_seconds > limit or (text in former and behind_seconds > limit * _BACK_SHARE)
    )
