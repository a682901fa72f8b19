"""In which order the steps of a graph can run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from penstock.jobs.errors import JobRefused
from penstock.jobs.workflows import near_names

Needs = Mapping[str, Iterable[str]]
"""Of each step the names of those that must have completed before."""


class BadGraph(JobRefused):
    """Steps that can never all run: the text names them."""


def levels(needs: Needs) -> list[list[str]]:
    """The steps in groups: each needs only steps of groups before its own.

    Raises:
        BadGraph: a step needs one that does not exist, or needs itself by way of others.
    """
    for name, wanted in needs.items():
        for other in wanted:
            if other not in needs:
                hint = near_names.hint(other, needs)
                raise BadGraph(f"step {name!r} needs {other!r}, which is no step{hint}")
    sorter = TopologicalSorter({name: list(wanted) for name, wanted in needs.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        raise BadGraph(f"steps need each other: {' → '.join(reversed(error.args[1]))}") from None
    groups: list[list[str]] = []
    while sorter.is_active():
        names = set(sorter.get_ready())
        ready = [name for name in needs if name in names]
        groups.append(ready)
        sorter.done(*ready)
    return groups


def by_level(needs: Needs) -> dict[str, list[str]]:
    """Each step needs all of the group before its own."""
    groups = levels(needs)
    return {name: groups[at - 1] if at else [] for at, group in enumerate(groups) for name in group}
