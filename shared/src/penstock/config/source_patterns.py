"""Patterns of queues in other systems: ``mail-*`` names all that begin so. Pure."""

from __future__ import annotations

WILDCARD = "*"
"""Stands for any characters, none included; every other character stands for itself."""


def is_pattern(name: str) -> bool:
    """Whether a name in ``queues`` of a pool names several queues of its source."""
    return WILDCARD in name


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern names this queue."""
    first, *parts = pattern.split(WILDCARD)
    if not parts:
        return name == first
    *between, last = parts
    end = len(name) - len(last)
    if not (name.startswith(first) and name.endswith(last)):
        return False
    # The first place of each part is the best. A regular expression would try all of them, for
    # minutes where another system gives queues long names.
    at = len(first)
    for part in between:
        if (place := name.find(part, at, max(end, 0))) < 0:
            return False
        at = place + len(part)
    return at <= end


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
