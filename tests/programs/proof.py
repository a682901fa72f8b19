"""Judges a story: undisturbed, by the model; then with a process killed at each message stored."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.programs.drawing import draw
from tests.programs.model import Expected, Undetermined, expected
from tests.programs.playing import Happened, play
from tests.programs.program import Story, parts
from tests.programs.system import Crash

_PAIRS = 4
_MOST_MORE = 8
"""Messages that a crash may add."""
_LATE_SECONDS = 5.0
"""An undisturbed end may come so late: attempts that failed are tried again a moment later."""
RECOVERY_SECONDS = 90.0
"""One after a crash: the claim of a killed worker lapses after 30 s, and the orchestrator looks for
what is missing 10 s later, then again after twice as long."""


class Verdict(msgspec.Struct, kw_only=True):
    """What became of the stories of some seeds.

    Attributes:
        programs: that were judged.
        undetermined: seeds without one right outcome.
        crashes: processes killed, at as many messages.
        killed_at: how often at each kind of message, before or after it was stored.
        states: how the programs ended.
        parts: programs with each part.
        slowest_seconds: longest time by which a crash delayed an end.
        wrong: what was not as it must be, a line each.
    """

    programs: int = 0
    undetermined: int = 0
    crashes: int = 0
    killed_at: Counter[str] = msgspec.field(default_factory=Counter)
    states: Counter[str] = msgspec.field(default_factory=Counter)
    parts: Counter[str] = msgspec.field(default_factory=Counter)
    slowest_seconds: float = 0.0
    wrong: list[str] = []


def prove(seed: int, *, until_wrong: bool = False) -> Verdict:
    """The verdict on the story of a seed.

    Args:
        seed: of the story.
        until_wrong: the first play that goes wrong is the last.
    """
    verdict, story = Verdict(), draw(seed)
    try:
        end = expected(story)
    except Undetermined:
        verdict.undetermined = 1
        return verdict
    chance = random.Random(seed)
    processes = chance.choice([1, 2]), chance.choice([1, 1, 2])
    undisturbed = play(story, None, *processes)
    verdict.programs = 1
    verdict.states[undisturbed.state] += 1
    verdict.parts.update(_parts(story))
    verdict.wrong += _lines(story, "undisturbed", _differences(undisturbed, end, _LATE_SECONDS))
    if any(count > 1 for count in undisturbed.inline_runs):
        verdict.wrong += _lines(story, "undisturbed", ["an inline step ran twice"])
    for crash in _crashes(undisturbed.stored, random.Random(seed)):
        if until_wrong and verdict.wrong:
            break
        happened = play(story, crash, *processes)
        where = "after" if crash.after else "before"
        verdict.crashes += len(happened.hits)
        verdict.killed_at.update(f"{hit} {where}" for hit in happened.hits)
        if happened.state == end.state:
            verdict.slowest_seconds = max(verdict.slowest_seconds, happened.at - end.at)
        allowed_seconds = RECOVERY_SECONDS * len(happened.hits) + _LATE_SECONDS
        differences = [
            *_differences(happened, end, allowed_seconds),
            *_other_steps(happened, undisturbed),
        ]
        about = f"killed {where} {crash.numbers} {happened.hits}" if crash.numbers else "doubled"
        verdict.wrong += _lines(story, about, differences)
    return verdict


def _parts(story: Story) -> set[str]:
    """What a story is made of."""
    outside = {"signals": story.sent, "cancel": story.cancelled_at, "pause": story.paused}
    kinds = {type(part).__name__ for part in parts(story.program)}
    return kinds | {name for name, value in outside.items() if value}


def _crashes(stored: int, chance: random.Random) -> Iterator[Crash]:
    """A crash at each message, a few pairs of them, and one run without in which all comes twice.

    Args:
        stored: messages of an undisturbed run; the first is the client's own.
        chance: draws the pairs.
    """
    for number in range(2, stored + 1):
        yield Crash(number)
        yield Crash(number, after=True)
    for _ in range(_PAIRS):
        first, second = chance.randint(2, stored + 1), chance.randint(2, stored + _MOST_MORE)
        yield Crash(first, second, after=chance.random() < 0.5)
    yield Crash(doubles=True)


def _differences(happened: Happened, end: Expected, late_seconds: float) -> Iterator[str]:
    """Against the model, and each inline step that ran against its record."""
    yield from happened.wrong
    unrecorded = sum(happened.inline_runs) - happened.inline_records
    # a worker that is killed may be about to record a step of another workflow, too
    if not 0 <= unrecorded <= happened.lost_runs:
        yield f"inline steps ran {happened.inline_runs}: {unrecorded} more than are recorded"
    if (happened.state, happened.outcome) != (end.state, end.outcome):
        yield (f"found {happened.state} {happened.outcome!r}, expected {end.state} {end.outcome!r}")
    elif not -1.0 <= happened.at - end.at <= late_seconds:
        yield f"it ended at {happened.at:.2f} s, expected {end.at:.2f} s"


def _other_steps(happened: Happened, undisturbed: Happened) -> Iterator[str]:
    """Against the same story without a crash.

    A step that is given up at the moment at which it is scheduled has a job or none.
    """
    if lacking := undisturbed.jobs - happened.jobs - undisturbed.cancelled:
        yield f"found no jobs {sorted(lacking)}"
    if surplus := happened.jobs - undisturbed.jobs - happened.cancelled:
        yield f"found jobs {sorted(surplus)}, which the undisturbed run has not"
    if happened.steps != undisturbed.steps:
        yield f"found the steps {_first(happened.steps, undisturbed.steps)}"
    if happened.inline_records != undisturbed.inline_records:
        yield f"{happened.inline_records} inline steps, expected {undisturbed.inline_records}"


def _first(steps: list[Any], others: list[Any]) -> str:
    """Where two lists of steps begin to differ."""
    for number, (one, other) in enumerate(zip(steps, others, strict=False)):
        if one != other:
            return f"{one} in place {number}, expected {other}"
    return f"of length {len(steps)}, expected {len(others)}"


def _lines(story: Story, where: str, differences: Any) -> list[str]:
    return [f"seed {story.seed}, {where}: {difference}" for difference in differences]
