"""Random programs by seed: the same everywhere."""

from __future__ import annotations

import itertools
import random

from msgspec.structs import replace
from tests.programs.program import (
    MAX_JOBS,
    SIGNALS,
    Anew,
    Break,
    Catch,
    Gather,
    Inline,
    Map,
    Patched,
    Program,
    Race,
    Raise,
    Run,
    Sent,
    Sequence,
    Sleep,
    Story,
    Sub,
    Tidy,
    Undo,
    Wait,
    jobs,
    leaves,
    parts,
)

HOUR = 3600.0
_MOST_HOURS = 4_000
_DEPTH = 4
_MOST_PAUSED_HOURS = 400
_TIDY_SECONDS = 40_000


class Drawing:
    """Draws one program.

    Args:
        chance: of the seed.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._jobs, self._inlines = itertools.count(), itertools.count()
        self._patches = itertools.count()

    def whole(self) -> Program:
        """A program."""
        program = self.program()
        if any(run.undone_by for run in jobs(program)) and self._chance.random() < 0.7:
            return Sequence((Catch(program), Undo()))
        if self._chance.random() < 0.1:
            return Sequence((Catch(program), Anew(self.program())))
        return program

    def program(self, depth: int = _DEPTH, breaks: bool = True, is_sub: bool = False) -> Program:
        """A part of it.

        Args:
            depth: of the tree below.
            breaks: whether it may hold a `Break`. Where others are awaited first (``drain``), the
                mended code would not fit what was recorded meanwhile.
            is_sub: it is of a workflow that is a step: no signals are sent to it.
        """
        chance = self._chance
        if depth == 0 or (depth < _DEPTH and chance.random() < 0.4):
            return self._leaf(breaks, is_sub)
        kinds = ["sequence", "gather", "race", "catch", "sub", "patched"]
        kind = chance.choices(kinds, [4, 4, 2, 2, 1 - is_sub, 1])[0]
        if kind == "patched":
            ways = [self.program(depth - 1, breaks, is_sub) for _ in range(2)]
            return Patched(next(self._patches), *ways)
        if kind == "catch":
            return Catch(self.program(depth - 1, breaks, is_sub))
        if kind == "sub":
            return Sub(self.program(depth - 1, breaks=False, is_sub=True))
        drain = kind == "gather" and chance.random() < 0.5
        least = 0 if kind == "gather" and chance.random() < 0.1 else 1
        breaks = breaks and not drain
        parts = tuple(
            self.program(depth - 1, breaks, is_sub) for _ in range(chance.randint(least, 3))
        )
        if kind == "gather":
            return Gather(parts, drain)
        return Race(parts) if kind == "race" else Sequence(parts)

    def _leaf(self, breaks: bool, is_sub: bool) -> Program:
        chance = self._chance
        kinds = ["run", "map", "inline", "sleep", "wait", "raise", "break"]
        weights = [10, 1, 4, 3, 3 * (not is_sub), 0.3, 0.5 * breaks]
        kind = chance.choices(kinds, weights)[0]
        match kind:
            case "run" if run := self.job():
                undo = self.job() if chance.random() < 0.2 and not is_sub else None
                return replace(run, undone_by=undo)
            case "map" if of_batch := [run for _ in range(3) if (run := self.job())]:
                return Map(tuple(of_batch), chance.randint(0, 1))
            case "inline":
                return Inline(next(self._inlines), chance.random() < 0.1)
            case "wait":
                return Wait(chance.choice(SIGNALS), self.seconds(), chance.random() < 0.5)
            case "raise":
                return Raise()
            case "break":
                return Break()
        return Sleep(self.seconds())

    def job(self) -> Run | None:
        """A job, as long as there may be more."""
        if (number := next(self._jobs)) >= MAX_JOBS:
            return None
        return Run(number, self.seconds(), self._chance.choices([0, 1, 2], [8, 1, 1])[0])

    def seconds(self) -> float:
        return float(self._chance.randint(1, int(_MOST_HOURS * HOUR)))


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(seed)
    drawing = Drawing(chance)
    program = drawing.whole()
    waits = sum(isinstance(leaf, Wait) for leaf in leaves(program))
    sent = tuple(
        Sent(drawing.seconds(), chance.choice(SIGNALS), number, chance.choice([1, 1, 2]))
        for number in range(chance.randint(0, waits + 1) if waits else 0)
    )
    cancelled_at = drawing.seconds() / 4 if chance.random() < 0.15 else None
    if cancelled_at is not None and (job := drawing.job()) and chance.random() < 0.7:
        program = Tidy(program, replace(job, seconds=float(chance.randint(1, _TIDY_SECONDS))))
    deployed_at = paused = None
    if any(isinstance(part, Patched) for part in parts(program)):
        deployed_at = drawing.seconds() / 2
    if chance.random() < 0.25:
        begin = drawing.seconds() / 2
        paused = begin, begin + chance.randint(1, _MOST_PAUSED_HOURS) * HOUR
    return Story(seed, program, sent, cancelled_at, deployed_at or 0.0, paused)
