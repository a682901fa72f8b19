"""Patterns of queues in other systems: ``mail-*`` names all that begin so. Pure."""

from __future__ import annotations

import re
from functools import cache

WILDCARD = "*"
"""Stands for any characters, none included; every other character stands for itself."""


def is_pattern(name: str) -> bool:
    """Whether a name in ``queues`` of a pool names several queues of its source."""
    return WILDCARD in name


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern names this queue."""
    return _regex(pattern).fullmatch(name) is not None


def overlap(one: str, other: str) -> bool:
    """Whether some queue has a name that both patterns match."""
    # Reachable: lengths of the other's prefixes that fit the part of this one that was read.
    reachable = _past_wildcards(other, {0})
    for char in one:
        if char == WILDCARD:
            reachable = set(range(min(reachable), len(other) + 1)) if reachable else set()
        else:
            steps = {at + 1 for at in reachable if other[at : at + 1] == char}
            stays = {at for at in reachable if other[at : at + 1] == WILDCARD}
            reachable = _past_wildcards(other, steps | stays)
    return len(other) in reachable


def _past_wildcards(pattern: str, places: set[int]) -> set[int]:
    """These places and those behind the wildcards that stand there."""
    reached = set(places)
    for at in places:
        place = at
        while pattern[place : place + 1] == WILDCARD:
            place += 1
            reached.add(place)
    return reached


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split(WILDCARD))), re.DOTALL)
