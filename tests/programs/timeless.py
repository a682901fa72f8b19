"""Random programs whose outcome no delay changes: for processes that are killed in real time.

Of the parts of a race one ends within moments, the others in a day. Waits for a signal that is sent
have no time limit, and all its values are equal.
"""

from __future__ import annotations

import random

from msgspec.structs import replace
from tests.programs.drawing import Drawing
from tests.programs.model import Expected, Undetermined, outcome
from tests.programs.program import (
    SIGNALS,
    Anew,
    Break,
    Catch,
    Gather,
    Map,
    Patched,
    Program,
    Race,
    Run,
    Sent,
    Sequence,
    Sleep,
    Story,
    Sub,
    Wait,
    jobs,
    leaves,
)

DAY = 86_400.0
_SENT, _NEVER_SENT = SIGNALS
_VALUE = 7
_MOST_SECONDS = 0.4
_ORDERS = 8
"""Times at which a program is tried: with each, its outcome is the same."""


def draw_timeless(seed: int, *, breaks: bool = True) -> tuple[Story, Expected]:
    """The story of a seed, and how it ends.

    Args:
        seed: of the story.
        breaks: whether its own code may raise errors until it is mended.
    """
    chance = random.Random(f"timeless {seed}")
    while True:
        program = _timeless(Drawing(chance).whole(), chance, breaks)
        waits = [leaf for leaf in leaves(program) if isinstance(leaf, Wait)]
        sent = tuple(
            Sent(chance.uniform(0, 1), _SENT, _VALUE, chance.choice([1, 1, 2]))
            for _ in range(sum(wait.signal == _SENT for wait in waits))
        )
        story = Story(seed, program, sent)
        if any(jobs(program)) and (end := _end(story, chance)):
            return story, end


def _end(story: Story, chance: random.Random) -> Expected | None:
    """How it ends whatever comes first; None where that changes."""
    ends = []
    for _ in range(_ORDERS):
        try:
            ends.append(outcome(replace(story, program=_at_other_times(story.program, chance))))
        except Undetermined:
            return None
    same = {(end.state, repr(end.outcome)) for end in ends}
    return ends[0] if len(same) == 1 else None


def _timeless(program: Program, chance: random.Random, breaks: bool) -> Program:
    match program:
        case Sequence(parts):
            return Sequence(tuple(_timeless(part, chance, breaks) for part in parts))
        case Gather(parts):
            of_parts = tuple(_timeless(part, chance, breaks) for part in parts)
            return replace(program, parts=of_parts)
        case Race(parts):
            first, *others = parts
            never = [chance.choice([Sleep(DAY), Wait(_NEVER_SENT, DAY)]) for _ in others]
            raced = [_timeless(first, chance, breaks), *never]
            chance.shuffle(raced)
            return Race(tuple(raced))
        case Catch(part):
            return Catch(_timeless(part, chance, breaks))
        case Sub(part) | Anew(part):
            return replace(program, part=_timeless(part, chance, breaks))
        case Patched(new=new):  # whose code is deployed from the beginning
            return replace(program, new=_timeless(new, chance, breaks))
        case Map(of_batch):
            return replace(program, jobs=tuple(_soon(run, chance) for run in of_batch))
        case Run():
            return _soon(program, chance)
        case Wait(signal) if signal == _SENT:
            return Wait(signal, DAY)
        case Sleep() | Break() if isinstance(program, Sleep) or not breaks:
            return Sleep(_moment(chance))
        case Wait():
            return replace(program, timeout=_moment(chance))
        case _:
            return program


def _soon(run: Run, chance: random.Random) -> Run:
    undo = _soon(run.undone_by, chance) if run.undone_by else None
    return replace(run, seconds=_moment(chance), undone_by=undo)


def _at_other_times(program: Program, chance: random.Random) -> Program:
    match program:
        case Sequence(parts) | Gather(parts) | Race(parts):
            return replace(program, parts=tuple(_at_other_times(part, chance) for part in parts))
        case Catch(part) | Sub(part) | Anew(part):
            return replace(program, part=_at_other_times(part, chance))
        case Patched(new=new):
            return replace(program, new=_at_other_times(new, chance))
        case Map(of_batch):
            others = tuple(_at_other_times(run, chance) for run in of_batch)
            return replace(program, jobs=others)
        case Run(seconds=seconds) | Sleep(seconds) if seconds < DAY:
            return replace(program, seconds=chance.uniform(0, 100 * _MOST_SECONDS))
        case Wait(timeout=timeout) if timeout < DAY:
            return replace(program, timeout=chance.uniform(0, 100 * _MOST_SECONDS))
        case _:
            return program


def _moment(chance: random.Random) -> float:
    return round(chance.uniform(0.001, _MOST_SECONDS), 3)
