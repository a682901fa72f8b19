"""Whether what a suspended workflow waits for has come: computed from ends, never counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.events.workflow import WaitGroup


def goes_on(wait: Iterable[WaitGroup], ended: Mapping[int, bool]) -> bool:
    """Whether one of the groups holds.

    Args:
        wait: the groups.
        ended: number of each step that has ended, and whether it completed.
    """
    return any(_holds(group, ended) for group in wait)


def _holds(group: WaitGroup, ended: Mapping[int, bool]) -> bool:
    if group.or_any_failed and any(not ended.get(n, True) for n in group.steps):
        return True
    return all(n in ended for n in group.steps)
