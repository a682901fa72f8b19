"""Random programs by seed: the same everywhere."""

from __future__ import annotations

import random
from itertools import count

from tests.programs.program import (
    MAX_JOBS,
    SIGNALS,
    Break,
    Catch,
    Gather,
    Inline,
    Program,
    Race,
    Raise,
    Run,
    Sent,
    Sequence,
    Sleep,
    Story,
    Wait,
    leaves,
)

HOUR = 3600.0
_MOST_HOURS = 4_000
_DEPTH = 4


class Drawing:
    """Draws one program.

    Args:
        chance: of the seed.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._jobs, self._inlines = count(), count()

    def program(self, depth: int = _DEPTH, breaks: bool = True) -> Program:
        """A part of it.

        Args:
            depth: of the tree below.
            breaks: whether it may hold a `Break`. Where others are awaited first (``drain``), the
                mended code would not fit what was recorded meanwhile.
        """
        chance = self._chance
        if depth == 0 or (depth < _DEPTH and chance.random() < 0.4):
            return self._leaf(breaks)
        kind = chance.choices(["sequence", "gather", "race", "catch"], [4, 4, 2, 2])[0]
        if kind == "catch":
            return Catch(self.program(depth - 1, breaks))
        drain = kind == "gather" and chance.random() < 0.5
        least = 0 if kind == "gather" and chance.random() < 0.1 else 1
        breaks = breaks and not drain
        parts = tuple(self.program(depth - 1, breaks) for _ in range(chance.randint(least, 3)))
        if kind == "gather":
            return Gather(parts, drain)
        return Race(parts) if kind == "race" else Sequence(parts)

    def _leaf(self, breaks: bool) -> Program:
        chance = self._chance
        kinds = ["run", "inline", "sleep", "wait", "raise", "break"]
        kind = chance.choices(kinds, [10, 4, 3, 3, 0.3, 0.5 * breaks])[0]
        match kind:
            case "run" if (number := next(self._jobs)) < MAX_JOBS:
                return Run(number, self.seconds(), chance.choices([0, 1, 2], [8, 1, 1])[0])
            case "inline":
                return Inline(next(self._inlines), chance.random() < 0.1)
            case "wait":
                return Wait(chance.choice(SIGNALS), self.seconds(), chance.random() < 0.5)
            case "raise":
                return Raise()
            case "break":
                return Break()
        return Sleep(self.seconds())

    def seconds(self) -> float:
        return float(self._chance.randint(1, int(_MOST_HOURS * HOUR)))


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(seed)
    drawing = Drawing(chance)
    program = drawing.program()
    waits = sum(isinstance(leaf, Wait) for leaf in leaves(program))
    sent = tuple(
        Sent(drawing.seconds(), chance.choice(SIGNALS), number, chance.choice([1, 1, 2]))
        for number in range(chance.randint(0, waits + 1) if waits else 0)
    )
    cancelled_at = drawing.seconds() if chance.random() < 0.1 else None
    return Story(seed, program, sent, cancelled_at)
