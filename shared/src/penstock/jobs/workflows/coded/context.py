"""What the code of a workflow is given: everything that it may await, and time and chance."""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Callable, Iterable, Sized
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Literal, NoReturn, TypeVar
from uuid import UUID

import msgspec

from penstock.events.workflow_memo import (
    MAX_STATUS_FIELDS,
    Status,
)
from penstock.jobs.batches.allowed_failures import parse_allowed_failures
from penstock.jobs.errors import StepFailed, WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import (
    NO_DEFAULT,
    Awaited,
    AwaitGivenUp,
    Command,
    ContinueAsNew,
    Join,
    Later,
    RunBatch,
    RunInline,
    RunJob,
    Sleep,
    WaitSignal,
)
from penstock.jobs.workflows.coded.compensations import Compensation, Compensations
from penstock.jobs.workflows.coded.driver import Driver
from penstock.jobs.workflows.coded.results import MapResult

T = TypeVar("T")


class WorkflowContext:
    """First argument of a workflow.

    Every step has a key: its name in the scope of its part, and its occurrence there. After a
    deployment the code must call the same keys for the same functions and arguments as before.

    Attributes:
        workflow_id: id of its job.
    """

    def __init__(self, driver: Driver, workflow_id: str) -> None:
        self._driver = driver
        self.workflow_id = workflow_id

    # --- awaitables -------------------------------------------------------------------------------
    def run(
        self, call: Call, *, name: str = "", compensate: Compensation | None = None
    ) -> Command[Any]:
        """Runs a job, in its own queue; awaited, its result.

        Args:
            call: of the job.
            name: in the key; the function's own otherwise.
            compensate: a call of a job that undoes it, or a function that makes one from its
                result. Once this completed, :meth:`compensate` runs it.

        Raises:
            StepFailed: at the await: the job is dead, or was cancelled.
            WorkflowError: it is no call, or one that cannot be a step.
        """
        check_call("ctx.run", call)
        if compensate is not None and not callable(compensate):
            check_call("ctx.run(compensate=...)", compensate)
        return RunJob(name or results.short_name(call.job.name), call, compensate)

    def compensate(self, *, name: str = "compensate") -> Command[None]:
        """Undoes the steps that completed, by what they were given as ``compensate=``.

        Newest first, each a job of its own, once for each step. All are tried, also where one is
        dead. Steps that were given up, and whose jobs may complete yet, are awaited first.

        Args:
            name: of its scope.

        Raises:
            StepFailed: at the await, once all were tried: the first that is dead.
        """
        undone = Later(partial(newest_first, self, self._driver.compensations))
        return Join(name, [undone], first_only=True)

    def map(
        self, calls: Iterable[Call], *, allowed_failures: int | str = 0, name: str = ""
    ) -> Command[MapResult]:
        """Runs many jobs as one batch; awaited, how many completed, failed and were cancelled.

        Args:
            calls: of jobs, up to a million; a generator is read while they are dispatched, and read
                again where that is interrupted, so it must give the same calls each time.
            allowed_failures: more failed jobs than this, a number or a share such as ``"2%"``,
                cancel the rest and raise the error.
            name: in the key; that of the first call's function otherwise.

        Raises:
            StepFailed: at the await: more failed than are allowed, or the batch was cancelled.
            WorkflowError: there is something else than calls, or no such share.
        """
        try:
            parse_allowed_failures(allowed_failures)
            given = iter(calls)
        except (TypeError, ValueError) as error:
            raise WorkflowError(f"ctx.map: {error}") from error
        first = next(given, None)
        if first is not None:
            check_call("ctx.map", first)
        function = first.job.name if first is not None else ""
        return RunBatch(
            name or results.short_name(function) or "map",
            chain([] if first is None else [first], given),
            function,
            allowed_failures,
            len(calls) if isinstance(calls, Sized) else None,
        )

    def step(self, name: str, function: Callable[..., T], *args: Any) -> Command[T]:
        """Runs a short function inside of the workflow; what it returns is recorded once.

        It may run again where its worker is lost before that; afterwards it never does. Its result
        is handed on as plain values, as they are stored.

        Args:
            name: in the key.
            function: plain or ``async``; seconds at most, since it delays the workflow's timers.
            args: of the function.

        Raises:
            StepFailed: at the await: it raised an error.
        """
        return RunInline(name, function, args)

    def gather(
        self,
        *parts: Awaited,
        name: str = "gather",
        on_failure: Literal["cancel", "drain"] = "cancel",
    ) -> Command[list[Any]]:
        """Runs parts beside each other; awaited, their results in order.

        Args:
            parts: calls of jobs, what this context gives, or coroutines.
            name: of its scope.
            on_failure: ``cancel`` gives up the others when one fails; ``drain`` awaits them first.
        """
        return Join(name, _checked(parts, self), on_failure=on_failure)

    def race(self, *parts: Awaited, name: str = "race") -> Command[Any]:
        """Runs parts beside each other; awaited, the result of the first that ends.

        The others are given up, and their jobs cancelled.
        """
        if not parts:
            raise WorkflowError("a race has at least one part")
        return Join(name, _checked(parts, self), first_only=True)

    def continue_as_new(self, call: Call) -> Command[NoReturn]:
        """Ends this run of the code, and begins the workflow anew under the same id.

        What it recorded is forgotten, so that it may go on for ever; signals that it has not read
        are kept. Clients that wait for it wait on.

        Args:
            call: of this very workflow, with the arguments of the next generation.

        Raises:
            WorkflowError: at the await: it is no call of this workflow, or below a ``gather``.

        Example::

            await ctx.continue_as_new(poll(cursor=cursor))
        """
        check_call("ctx.continue_as_new", call)
        return ContinueAsNew(call)

    def sleep(self, length: float | timedelta, *, name: str = "sleep") -> Command[None]:
        """Waits; nothing of the workflow is in memory meanwhile.

        Args:
            length: seconds, up to a year.
            name: in the key.
        """
        return Sleep(name, _span(length))

    def wait_signal(
        self,
        name: str,
        kind: type[T] | Any = Any,
        *,
        timeout: float | timedelta | None = None,
        default: Any = NO_DEFAULT,
    ) -> Command[Any]:
        """Waits for a value from outside; one that was sent before is there at once.

        Args:
            name: of the signal; each value is consumed by one wait, in order.
            kind: the type that it must have.
            timeout: seconds; None waits without end.
            default: what is returned then, in place of a ``TimeoutError``.
        """
        return WaitSignal(name, name, kind, None if timeout is None else _span(timeout), default)

    # --- time, chance, status ---------------------------------------------------------------------
    def now(self) -> datetime:
        """The time, UTC; the same each time that this place is run again."""
        return self._driver.now

    def random(self) -> random.Random:
        """A generator of random numbers of its own, with the same numbers each time."""
        return random.Random(self._seed("random"))  # noqa: S311 - not for secrets

    def uuid(self) -> UUID:
        """A UUID, the same each time: as an idempotency key for example."""
        return UUID(bytes=self._seed("uuid"), version=4)

    def patched(self, name: str) -> bool:
        """Whether this workflow is to take a new way through its code.

        True for one that comes to this place for the first time with this code, and recorded with
        it; False for one that was past the place before the code asked. The answer for a name stays
        the same for the life of a workflow, wherever it is asked again.

        Args:
            name: of the change; remove the call when no living workflow answers False any more.

        Example::

            if ctx.patched("fraud-check"):
                await ctx.run(check_fraud(order=order))
        """
        return self._driver.patched(name)

    def set_status(self, **fields: str | int | float | bool | None) -> None:
        """Shows something of the workflow to people: stage, counts.

        Args:
            fields: at most 20, texts of at most 500 characters; each replaces the one before.
        """
        try:
            status = msgspec.convert({**self._driver.status, **fields}, Status)
        except msgspec.ValidationError as error:
            raise WorkflowError(f"ctx.set_status: {error}") from error
        if len(status) > MAX_STATUS_FIELDS:
            raise WorkflowError(f"ctx.set_status: at most {MAX_STATUS_FIELDS} fields are shown")
        self._driver.status = status

    def _seed(self, name: str) -> bytes:
        generation = f" {self._driver.generation}" if self._driver.generation else ""
        key = f"{self.workflow_id}{generation} {self._driver.scope.key(name)}"
        return hashlib.blake2b(key.encode(), digest_size=16).digest()


async def newest_first(context: WorkflowContext, compensations: Compensations) -> None:
    """Carries out compensations. Raises StepFailed, once all were tried."""
    await AwaitGivenUp()
    failure = None
    while (call := compensations.newest()) is not None:
        try:
            await context.run(call)
        except StepFailed as error:
            failure = failure or error
        compensations.carried_out()
    if failure is not None:
        raise failure


def check_call(what: str, call: Call) -> None:
    """Raises WorkflowError: it is no call, or one that cannot be a step."""
    if not isinstance(call, Call):
        raise WorkflowError(f"{what} takes calls of jobs, my_job(...), found {call!r}")


def _checked(parts: tuple[Awaited, ...], context: WorkflowContext) -> list[Awaited]:
    """Raises WorkflowError: one of them cannot be awaited here."""
    checked: list[Awaited] = []
    for part in parts:
        if isinstance(part, Call):
            checked.append(context.run(part))
        elif isinstance(part, Command) or inspect.iscoroutine(part):
            checked.append(part)
        else:
            raise WorkflowError(
                f"found {part!r}, expected a call of a job, an awaitable of the context, or a "
                "coroutine"
            )
    return checked


_YEAR = timedelta(days=366)


def _span(length: float | timedelta) -> timedelta:
    span = length if isinstance(length, timedelta) else timedelta(seconds=length)
    if not timedelta() <= span <= _YEAR:
        raise WorkflowError(f"found {span}, expected a time of up to a year")
    return span
