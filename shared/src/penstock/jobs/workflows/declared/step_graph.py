"""The steps of a workflow, and which of them come before which. Pure.

Sets of steps are bits of one number, by position: so what a judgement asks of them takes the same
few operations for three steps and for a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from penstock.events.condition import Path
from penstock.events.graph import GraphStep, Join


def bits_of(positions: Iterable[int]) -> int:
    """A set of steps as one number."""
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits


def positions_of(bits: int) -> Iterator[int]:
    """The steps of a set, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class StepGraph:
    """What follows from the steps alone; each part is worked out once.

    Args:
        steps: in an order in which none needs a later one; compensations last.
    """

    def __init__(self, steps: Sequence[GraphStep]) -> None:
        self.steps = tuple(steps)

    @cached_property
    def needs(self) -> list[int]:
        """Of each step those that it needs, as bits."""
        return [bits_of(step.needs) for step in self.steps]

    @cached_property
    def before(self) -> list[int]:
        """Of each step those that have ended before it, as bits; its own for a compensation."""
        before: list[int] = []
        for step in self.steps:
            own = step.needs if step.compensates is None else (step.compensates,)
            bits = 0
            for need in own:
                bits |= before[need] | 1 << need
            before.append(bits)
        return before

    @cached_property
    def setters(self) -> dict[str, int]:
        """Of each key of the context the steps that set it, as bits."""
        setters: dict[str, int] = {}
        for position, step in enumerate(self.steps):
            for key in step.sets:
                setters[key] = setters.get(key, 0) | 1 << position
        return setters

    @cached_property
    def looked_up(self) -> list[tuple[Path, ...]]:
        """Of each step what its condition looks up, each path once."""
        return [tuple(dict.fromkeys(step.when.paths())) if step.when else () for step in self.steps]

    @cached_property
    def looked_into(self) -> int:
        """The steps with jobs whose results conditions and joins may look into, as bits."""
        bits = 0
        jobs = bits_of(
            position
            for position, step in enumerate(self.steps)
            if step.join is None and step.wait is None
        )
        for position, step in enumerate(self.steps):
            of_join = step.reads.values() if step.join is Join.VALUES else ()
            for path in (*self.looked_up[position], *of_join):
                bits |= self._sources(path, position)
        return bits & jobs

    def _sources(self, path: Path, position: int) -> int:
        root, name, *_ = path
        if root == "context":
            return self.setters.get(str(name), 0) & self.before[position]
        source = int(name)
        is_branch = self.steps[source].join is Join.BRANCH
        return self.needs[source] if is_branch else 1 << source
