"""Random workflows as values, and as the code of a workflow.

A program is a tree. Each of its jobs has a queue of its own, so that the harness decides when a job
runs by offering its queue to the worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Union

import msgspec

from penstock.jobs import Call, Context, job, workflow
from penstock.jobs.errors import Cancelled, StepFailed
from penstock.jobs.workflows.coded.context import WorkflowContext

MAX_JOBS = 16
"""Jobs of one program."""
FLOWS = "flows"
UNMENDED = "until it is mended"
"""The error of a `Break`."""
SIGNALS = ("go", "stop")


class Run(msgspec.Struct, frozen=True, tag=True):
    """A job.

    Attributes:
        number: of the job in its program.
        seconds: from its dispatch to its end.
        failures: attempts that fail, of two.
        undone_by: the job that undoes it.
    """

    number: int
    seconds: float
    failures: int = 0
    undone_by: Run | None = None


class Undo(msgspec.Struct, frozen=True, tag=True):
    """The jobs that completed are undone, newest first. The last part of a program, if any."""


class Map(msgspec.Struct, frozen=True, tag=True):
    """A batch of jobs."""

    jobs: tuple[Run, ...]
    allowed_failures: int = 0


class Tidy(msgspec.Struct, frozen=True, tag=True):
    """Where it is cancelled, a job runs before it ends. The whole of a program, if any."""

    part: Program
    by: Run


class Anew(msgspec.Struct, frozen=True, tag=True):
    """The workflow begins anew, with another program. The last part of a program, if any."""

    part: Program


class Sub(msgspec.Struct, frozen=True, tag=True):
    """A workflow that is a step."""

    part: Program


class Inline(msgspec.Struct, frozen=True, tag=True):
    value: int
    fails: bool = False


class Sleep(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Wait(msgspec.Struct, frozen=True, tag=True):
    """A wait for a signal. With a default it does not fail."""

    signal: str
    timeout: float
    has_default: bool = False


class Raise(msgspec.Struct, frozen=True, tag=True):
    """The workflow's own code raises an error: the workflow is dead."""


class Break(msgspec.Struct, frozen=True, tag=True):
    """The workflow's own code raises an error until it is mended, and the workflow requeued."""


class Patched(msgspec.Struct, frozen=True, tag=True):
    """Two ways: the code asks ``ctx.patched`` for the new one from when it is deployed."""

    number: int
    old: Program
    new: Program


class Sequence(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]


class Gather(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]
    drain: bool = False


class Race(msgspec.Struct, frozen=True, tag=True):
    parts: tuple[Program, ...]


class Catch(msgspec.Struct, frozen=True, tag=True):
    part: Program


Program = Union[  # noqa: UP007 - recursive
    Run,
    Inline,
    Sleep,
    Wait,
    Raise,
    Break,
    Undo,
    Tidy,
    Anew,
    Map,
    Sub,
    Sequence,
    Gather,
    Race,
    Catch,
    Patched,
]


class Sent(msgspec.Struct, frozen=True):
    """A signal that is sent ``times`` with the same id."""

    at: float
    signal: str
    value: int
    times: int = 1


class Story(msgspec.Struct, frozen=True):
    """A program, and what is done to it from outside.

    Attributes:
        seed: that it was drawn from.
        sent: signals, also before they are waited for and after the end.
        cancelled_at: when a client cancels it; None for never.
        deployed_at: when the code of each `Patched` is deployed.
        paused: from when to when.
    """

    seed: int
    program: Program
    sent: tuple[Sent, ...] = ()
    cancelled_at: float | None = None
    deployed_at: float = 0.0
    paused: tuple[float, float] | None = None


def parts(program: Program) -> Iterator[Any]:
    """A program, and all that it is made of."""
    yield program
    match program:
        case Sequence(inner) | Gather(inner) | Race(inner):
            held: tuple[Program, ...] = inner
        case Catch(part) | Sub(part) | Anew(part):
            held = (part,)
        case Tidy(part, by):
            held = part, by
        case Patched(old=old, new=new):
            held = old, new
        case _:
            held = ()
    for part in held:
        yield from parts(part)


def leaves(program: Program) -> Iterator[Any]:
    """All parts of a program that hold no other."""
    holding = Sequence | Gather | Race | Catch | Sub | Anew | Tidy | Patched
    return (part for part in parts(program) if not isinstance(part, holding))


def jobs(program: Program) -> Iterator[Run]:
    """All jobs of a program."""
    for leaf in leaves(program):
        match leaf:
            case Run(undone_by=undo):
                yield leaf
                yield from () if undo is None else (undo,)
            case Map(of_batch):
                yield from of_batch


def read(data: Any) -> Program:
    """A program of plain values, as the arguments of a workflow are."""
    program: Program = msgspec.convert(data, Program)
    return program


# --- its jobs and its code ------------------------------------------------------------------------
class Broken(RuntimeError):
    """The workflow's own code."""


mended: set[str] = set()
"""Workflows whose `Break` raises no more."""
code = SimpleNamespace(is_new=True)
"""Whether the code that asks for the new way of each `Patched` is deployed."""
inline_runs: Counter[tuple[str, int]] = Counter()
"""How often the inline steps of each workflow ran, by their value."""


def leaf_queue(number: int) -> str:
    return f"leaf-{number}"


def _work(context: Context, value: int, failures: int) -> int:
    if context.attempt <= failures:
        raise ValueError(f"attempt {context.attempt}")
    return value


WORK: list[Any] = [
    job(queue=leaf_queue(number), name=f"tests.programs.work{number}", tries=2, backoff=[0.05])(
        _work
    )
    for number in range(MAX_JOBS)
]


def leaf_job(run: Run) -> Call:
    """The call of a job of a program, in a queue of its own."""
    call: Call = WORK[run.number](value=run.number, failures=run.failures)
    return call


def sub_workflow(program: Program) -> Call:
    """The call of a workflow that is a step of one."""
    call: Call = follow(program=msgspec.to_builtins(program))
    return call


@workflow(queue=FLOWS, name="tests.programs.follow", tries=2, backoff=[0.05])
async def follow(ctx: WorkflowContext, program: Any) -> Any:
    """Runs a program."""
    return await interpret(ctx, read(program), leaf_job, sub_workflow, mended.__contains__)


async def interpret(
    ctx: WorkflowContext,
    program: Program,
    call: Callable[[Run], Call],
    sub: Callable[[Program], Call],
    is_mended: Callable[[str], bool],
) -> Any:
    """A program as the code of a workflow.

    Args:
        ctx: of the workflow.
        program: what it does.
        call: makes the call of a job.
        sub: makes the call of a workflow.
        is_mended: whether the code of a workflow no longer breaks, by its id.
    """
    match program:
        case Sub(part) | Anew(part):
            begin = ctx.run if isinstance(program, Sub) else ctx.continue_as_new
            return await begin(sub(part))
        case Sequence(parts):
            return [await interpret(ctx, part, call, sub, is_mended) for part in parts]
        case Gather(parts, drain):
            of_parts = [interpret(ctx, part, call, sub, is_mended) for part in parts]
            return await ctx.gather(*of_parts, on_failure="drain" if drain else "cancel")
        case Race(parts):
            return await ctx.race(*[interpret(ctx, part, call, sub, is_mended) for part in parts])
        case Catch(part):
            try:
                return await interpret(ctx, part, call, sub, is_mended)
            except (StepFailed, TimeoutError) as error:
                return f"caught {type(error).__name__}"
        case Tidy(part, by):
            try:
                return await interpret(ctx, part, call, sub, is_mended)
            except Cancelled:
                await ctx.run(call(by))
                raise
        case Patched(number, old, new):
            is_new = code.is_new and ctx.patched(f"patch {number}")
            return await interpret(ctx, new if is_new else old, call, sub, is_mended)
        case Break():
            if not is_mended(ctx.workflow_id):
                raise Broken(UNMENDED)
            return "mended"
        case _:
            return await _leaf(ctx, program, call)


async def _leaf(ctx: WorkflowContext, leaf: Program, call: Callable[[Run], Call]) -> Any:
    match leaf:
        case Run(undone_by=undo):
            return await ctx.run(call(leaf), compensate=call(undo) if undo else None)
        case Undo():
            await ctx.compensate()
            return "undone"
        case Map(of_batch, allowed):
            counts = await ctx.map([call(run) for run in of_batch], allowed_failures=allowed)
            return [counts.completed, counts.failed, counts.cancelled]
        case Inline(value, fails):
            return await ctx.step("inline", _inline, ctx.workflow_id, value, fails)
        case Sleep(seconds):
            await ctx.sleep(seconds)
            return "slept"
        case Wait(signal, timeout, has_default):
            default = {"default": "nothing"} if has_default else {}
            return await ctx.wait_signal(signal, int, timeout=timeout, **default)
        case Raise():
            raise Broken("raised")


def _inline(workflow_id: str, value: int, fails: bool) -> int:
    inline_runs[workflow_id, value] += 1
    if fails:
        raise ValueError(value)
    return value
