"""Random workflows as data, what runs them, and a small model of what they must lead to."""

from __future__ import annotations

from functools import partial
from typing import Any, Union

import msgspec
from hypothesis import strategies as st

from penstock.jobs import job
from penstock.jobs.errors import Cancelled, StepFailed
from penstock.jobs.workflows.coded.context import WorkflowContext


@job(name="tests.programs.work")
def work(seconds: float, value: int, fails: bool) -> int:
    raise AssertionError("the world runs it")


class Run(msgspec.Struct, frozen=True, tag=True):
    seconds: float
    value: int
    fails: bool = False


class Undone(msgspec.Struct, frozen=True, tag=True):
    """A job that is undone by another, of the negative of its value."""

    seconds: float
    value: int
    fails: bool = False


class Undo(msgspec.Struct, frozen=True, tag=True):
    """Where the part fails, what it completed is undone. It has no value in the model."""

    part: Program


class Map(msgspec.Struct, frozen=True, tag=True):
    """Jobs of one batch: seconds that each takes, and whether it fails."""

    jobs: tuple[tuple[float, bool], ...]
    allowed: int


class Inline(msgspec.Struct, frozen=True, tag=True):
    value: int
    fails: bool = False


class Sleep(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Signal(msgspec.Struct, frozen=True, tag=True):
    timeout: float


class Sequence(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]


class Gather(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]
    drain: bool = False


class Race(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]


class Catch(msgspec.Struct, frozen=True, tag=True):
    part: Program


Program = Union[Run, Undone, Undo, Map, Inline, Sleep, Signal, Sequence, Gather, Race, Catch]  # noqa: UP007 - recursive
FAILURES = (StepFailed, TimeoutError)


# --- running --------------------------------------------------------------------------------------
async def interpret(ctx: WorkflowContext, program: Program) -> Any:
    """The program as the code of a workflow."""
    match program:
        case Run():
            return await ctx.run(work(program.seconds, program.value, program.fails))
        case Undone():
            call = work(program.seconds, program.value, program.fails)
            undo = partial(work, 0.5, -program.value, False)
            return await ctx.run(call, compensate=lambda _: undo())
        case Undo():
            return await _undo(ctx, program.part)
        case Map():
            calls = (work(seconds, 0, fails) for seconds, fails in program.jobs)
            result = await ctx.map(calls, allowed_failures=program.allowed)
            return [result.completed, result.failed]
        case Inline():
            return await ctx.step("inline", _inline, program.value, program.fails)
        case Sleep():
            await ctx.sleep(program.seconds)
            return "slept"
        case Signal():
            return await ctx.wait_signal("go", int, timeout=program.timeout)
        case Sequence():
            return [await interpret(ctx, part) for part in program.parts]
        case Gather():
            parts = [interpret(ctx, part) for part in program.parts]
            return await ctx.gather(*parts, on_failure="drain" if program.drain else "cancel")
        case Race():
            return await ctx.race(*[interpret(ctx, part) for part in program.parts])
        case Catch():
            try:
                return await interpret(ctx, program.part)
            except FAILURES:
                return "caught"


async def _undo(ctx: WorkflowContext, part: Program) -> Any:
    try:
        return await interpret(ctx, part)
    except FAILURES:
        await ctx.compensate()
        return "undone"


@job(name="tests.programs.again")
def again(index: int) -> None:
    raise AssertionError("it is a call of the workflow")


async def generations(ctx: WorkflowContext, parts: tuple[Program, ...], index: int = 0) -> Any:
    """A program in each generation; the values of all that complete are those of the last."""
    try:
        value = await interpret(ctx, parts[index])
    except FAILURES:
        value = "caught"
    if index + 1 < len(parts):
        await ctx.continue_as_new(again(index + 1))
    return value


async def cleans_up(ctx: WorkflowContext, program: Program) -> Any:
    """The program, and the undoing of what it did where it is cancelled."""
    try:
        return await interpret(ctx, program)
    except Cancelled:
        await ctx.compensate()
        raise


def _inline(value: int, fails: bool) -> int:
    inline_runs.append(value)
    if fails:
        raise ValueError(value)
    return value


inline_runs: list[int] = []


# --- the model ------------------------------------------------------------------------------------
class Failed(Exception):
    def __init__(self, at: float) -> None:
        self.at = at


class Undetermined(Exception):
    """Two parts of a race end at the same instant."""


def is_determined(program: Program) -> bool:
    """Whether the model knows its outcome."""
    try:
        expected(program, 0.0)
    except Undetermined:
        return False
    except Failed:
        return True
    return True


def expected(program: Program, at: float) -> tuple[float, Any]:
    """When a part that begins ``at`` ends, and its value. Raises Failed."""
    match program:
        case Run() | Inline():
            end = at + (program.seconds if isinstance(program, Run) else 0.0)
            if program.fails:
                raise Failed(end)
            return end, program.value
        case Undone() | Undo():
            raise Undetermined
        case Map():
            return _mapped(program, at)
        case Sleep():
            return at + program.seconds, "slept"
        case Signal():
            raise Failed(at + program.timeout)
        case Sequence():
            values = []
            for part in program.parts:
                at, value = expected(part, at)
                values.append(value)
            return at, values
        case Gather():
            return _gathered(program, at)
        case Race():
            return _raced(program, at)
        case Catch():
            try:
                return expected(program.part, at)
            except Failed as failed:
                return failed.at, "caught"


def _mapped(program: Map, at: float) -> tuple[float, Any]:
    failures = sorted(seconds for seconds, fails in program.jobs if fails)
    if len(failures) > program.allowed:
        raise Failed(at + failures[program.allowed])
    last = max((seconds for seconds, _ in program.jobs), default=0.0)
    return at + last, [len(program.jobs) - len(failures), len(failures)]


def _gathered(program: Gather, at: float) -> tuple[float, Any]:
    ends = [_end(part, at) for part in program.parts]
    failures = [when for when, _, failed in ends if failed]
    if failures and not program.drain:
        raise Failed(min(failures))
    last = max((when for when, _, _ in ends), default=at)
    if failures:
        raise Failed(last)
    return last, [value for _, value, _ in ends]


def _raced(program: Race, at: float) -> tuple[float, Any]:
    ends = sorted((_end(part, at) for part in program.parts), key=lambda end: end[0])
    if len(ends) > 1 and round(ends[0][0], 6) == round(ends[1][0], 6):
        raise Undetermined
    when, value, failed = ends[0]
    if failed:
        raise Failed(when)
    return when, value


def _end(part: Program, at: float) -> tuple[float, Any, bool]:
    try:
        when, value = expected(part, at)
    except Failed as failed:
        return failed.at, None, True
    return when, value, False


# --- making ---------------------------------------------------------------------------------------
_seconds = st.integers(1, 10_000_000).map(lambda micros: micros / 1000)
_leaves = st.one_of(
    st.builds(Run, _seconds, st.integers(0, 9), st.booleans()),
    st.builds(Run, _seconds, st.integers(0, 9)),
    st.builds(
        Map,
        st.lists(st.tuples(_seconds, st.booleans()), min_size=1, max_size=3).map(tuple),
        st.integers(0, 2),
    ),
    st.builds(Inline, st.integers(0, 9), st.booleans()),
    st.builds(Sleep, _seconds),
    st.builds(Signal, _seconds),
)


def _trees(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(below, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Sequence, parts),
        st.builds(Gather, st.lists(below, max_size=4).map(tuple), st.booleans()),
        st.builds(Race, parts),
        st.builds(Catch, below),
    )


_undone = st.one_of(
    st.builds(Undone, _seconds, st.integers(1, 1_000), st.booleans()),
    st.builds(Undone, _seconds, st.integers(1, 1_000)),
    st.builds(Sleep, _seconds),
)
undone_programs: st.SearchStrategy[Any] = st.builds(
    Undo, st.recursive(_undone, _trees, max_leaves=8)
)

programs: st.SearchStrategy[Any] = st.recursive(_leaves, _trees, max_leaves=12)
