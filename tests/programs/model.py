"""What a program must lead to: the same program as plain asyncio code, on a clock that jumps.

Nothing here is shared with the code that is proven.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from tests.programs.program import (
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
    Sequence,
    Sleep,
    Story,
    Sub,
    Tidy,
    Undo,
    Wait,
)

T = TypeVar("T")
_IN_STEP = ContextVar("in step", default=False)
APART_SECONDS = 3600.0
"""Two moments of a program that lie closer together may change places after a crash."""
_MOMENT_SECONDS = 1e-6
_MOMENTS = 20
"""Joins inside of a join may end at the same moment: it looks so many times later than they."""


class Expected(msgspec.Struct, frozen=True):
    """How a story ends.

    Attributes:
        state: of the workflow: completed, dead or cancelled.
        outcome: its value; the kind of its error.
        at: seconds after its start.
    """

    state: str
    outcome: Any
    at: float


class Undetermined(Exception):
    """Moments lie so close together that more than one outcome would be right."""


class _Failed(Exception):
    """A step or a wait that failed; its kind is the first argument."""


class _Raised(Exception):
    pass


class _Anew(Exception):
    """What a workflow goes on with is the first argument."""


class _Loop(asyncio.SelectorEventLoop):
    """Its time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._clock_resolution = 1e-7  # beyond 10^7 s, a nanosecond more is the same number

    def time(self) -> float:
        return self.seconds

    def _run_once(self) -> None:
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if timers and not self._ready:  # type: ignore[attr-defined]
            self.seconds = max(self.seconds, min(timers))
        super()._run_once()  # type: ignore[misc]


class _Model:
    def __init__(self, story: Story) -> None:
        self._story = story
        self.moments: list[float] = []
        self._undoing: list[Run] = []
        self._arrived: dict[str, deque[int]] = {}
        self._waiting: dict[str, deque[asyncio.Future[int]]] = {}

    async def outcome(self) -> Expected:
        loop = asyncio.get_running_loop()
        for sent in self._story.sent:
            self.moments.append(sent.at)
            loop.call_at(sent.at, self._arrive, sent.signal, sent.value)
        running = asyncio.ensure_future(self._generations(self._story.program))
        if (at := self._story.cancelled_at) is not None:
            self.moments.append(at)
            loop.call_at(at, running.cancel)
        self.moments += [self._story.deployed_at] if self._story.deployed_at else []
        self.moments += self._story.paused or ()
        try:
            return Expected("completed", await running, loop.time())
        except _Failed as failed:
            return Expected("dead", failed.args[0], loop.time())
        except _Raised:
            return Expected("dead", "Broken", loop.time())
        except asyncio.CancelledError:
            return Expected("cancelled", None, loop.time())

    async def _generations(self, program: Program) -> Any:
        while True:
            try:
                return await self._run(program)
            except _Anew as anew:
                program, self._undoing = anew.args[0], []

    # --- parts ------------------------------------------------------------------------------------
    async def _run(self, program: Program) -> Any:
        match program:
            case Sequence(parts):
                return [await self._run(part) for part in parts]
            case Gather(parts, drain):
                return await self._gather(parts, drain)
            case Race(parts):
                return await self._race(parts)
            case Sub(part):
                try:
                    return await self._step(self._run(part))
                except (_Failed, _Raised):
                    raise _Failed("StepFailed") from None
            case Patched(old=old, new=new):
                is_new = asyncio.get_running_loop().time() >= self._story.deployed_at
                return await self._run(new if is_new else old)
            case Anew(part):
                raise _Anew(part)
            case Tidy(part, by):
                try:
                    return await self._run(part)
                except asyncio.CancelledError:
                    await self._job(by)
                    raise
            case Catch(part):
                try:
                    return await self._run(part)
                except _Failed as failed:
                    return f"caught {failed.args[0]}"
            case _:
                return await self._leaf(program)

    async def _leaf(self, leaf: Run | Inline | Sleep | Wait | Raise | Break | Undo | Map) -> Any:
        match leaf:
            case Run():
                return await self._job(leaf)
            case Undo():
                return await self._undo()
            case Map():
                return await self._step(self._map(leaf))
            case Inline(value, fails):
                if fails:
                    raise _Failed("StepFailed")
                return value
            case Sleep(seconds):
                await self._step(self._pass(seconds))
                return "slept"
            case Wait(signal, timeout, has_default):
                return await self._step(self._wait(signal, timeout, has_default))
            case Raise():
                raise _Raised
            case Break():
                return "mended"

    async def _step(self, work: Coroutine[Any, Any, T]) -> T:
        """Does what goes on while the workflow is paused; it takes note of the end afterwards."""
        is_outer = not _IN_STEP.get()
        before = _IN_STEP.set(True)
        try:
            return await work
        except asyncio.CancelledError:
            is_outer = False  # what is cancelled is not waited for
            raise
        finally:
            _IN_STEP.reset(before)
            if is_outer:
                await self._go_on()

    async def _go_on(self) -> None:
        """Waits until the workflow is not paused."""
        loop = asyncio.get_running_loop()
        begin, end = self._story.paused or (0.0, 0.0)
        if begin <= (now := loop.time()) < end:
            await asyncio.sleep(end - now)

    async def _job(self, run: Run) -> int:
        await self._step(self._pass(run.seconds))
        if run.failures >= 2:
            raise _Failed("StepFailed")
        if run.undone_by:
            self._undoing.append(run.undone_by)
        return run.number

    async def _undo(self) -> str:
        has_failed = False
        while self._undoing:
            try:
                await self._job(self._undoing.pop())
            except _Failed:
                has_failed = True
        if has_failed:
            raise _Failed("StepFailed")
        return "undone"

    async def _map(self, batch: Map) -> list[int]:
        failed = 0
        tasks = [asyncio.create_task(self._job(run)) for run in batch.jobs]
        try:
            for ended in asyncio.as_completed(tasks):
                try:
                    await ended
                except _Failed:
                    failed += 1
                    if failed > batch.allowed_failures:
                        raise
        finally:
            await _end(tasks)
        return [len(tasks) - failed, failed, 0]

    async def _pass(self, seconds: float) -> None:
        self.moments.append(asyncio.get_running_loop().time() + seconds)
        await asyncio.sleep(seconds)

    async def _gather(self, parts: tuple[Program, ...], drain: bool) -> list[Any]:
        tasks = [asyncio.create_task(self._run(part)) for part in parts]
        try:
            if not tasks:
                return []
            when = asyncio.ALL_COMPLETED if drain else asyncio.FIRST_EXCEPTION
            await asyncio.wait(tasks, return_when=when)
            ended = await self._settled(tasks, parts)
            errors = [task.exception() for task in tasks if task in ended and task.exception()]
            raised = any(isinstance(error, _Raised) for error in errors)
            if raised and any(isinstance(error, _Failed) for error in errors):
                raise Undetermined
            if errors and not drain and len({str(error) for error in errors}) > 1:
                raise Undetermined
            if errors and errors[0]:
                raise errors[0]
            return [task.result() for task in tasks]
        finally:
            await _end(tasks)

    async def _race(self, parts: tuple[Program, ...]) -> Any:
        tasks = [asyncio.create_task(self._run(part)) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = await self._settled(tasks, parts)
            if len(ended) > 1:
                raise Undetermined
            return next(iter(ended)).result()
        finally:
            await _end(tasks)

    async def _settled(
        self, tasks: Iterable[asyncio.Task[Any]], parts: tuple[Program, ...]
    ) -> set[asyncio.Task[Any]]:
        """Those that have ended when all that happens at this moment has happened."""
        await asyncio.sleep(_MOMENT_SECONDS * _MOMENTS ** max(map(_height, parts)))
        return {task for task in tasks if task.done()}

    # --- signals ----------------------------------------------------------------------------------
    def _arrive(self, signal: str, value: int) -> None:
        waiting = self._waiting.setdefault(signal, deque())
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(value)
                return
        self._arrived.setdefault(signal, deque()).append(value)

    async def _wait(self, signal: str, timeout: float, has_default: bool) -> Any:
        if arrived := self._arrived.get(signal):
            return arrived.popleft()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[int] = loop.create_future()
        self._waiting.setdefault(signal, deque()).append(waiter)
        self.moments.append(loop.time() + timeout)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            if has_default:
                return "nothing"
            raise _Failed("TimeoutError") from None


def _height(program: Program) -> int:
    """How many joins lie in each other."""
    match program:
        case Gather(parts) | Race(parts):
            return 1 + max(map(_height, parts), default=0)
        case Sequence(parts):
            return max(map(_height, parts))
        case Patched(old=old, new=new):
            return max(_height(old), _height(new))
        case Catch(part) | Sub(part) | Tidy(part) | Anew(part):
            return _height(part)
        case _:
            return 0


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def outcome(story: Story) -> Expected:
    """How a story ends, however close together its moments lie. Raises Undetermined."""
    return _play(story)[0]


def expected(story: Story) -> Expected:
    """How a story ends. Raises Undetermined."""
    end, moments = _play(story)
    if any(later - earlier < APART_SECONDS for earlier, later in pairwise(moments)):
        raise Undetermined
    begin, resumed = story.paused or (0.0, 0.0)
    if sum(begin < moment < resumed for moment in moments) > 1:  # all are noted at once
        raise Undetermined
    return end


def _play(story: Story) -> tuple[Expected, list[float]]:
    """How it ends, and the moments that it was made of."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        model = _Model(story)
        end = runner.run(model.outcome())
    return end, sorted(moment for moment in model.moments if moment <= end.at + APART_SECONDS)
