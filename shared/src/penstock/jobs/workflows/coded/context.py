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

from penstock.config.topology import Priority
from penstock.events.workflow_memo import (
    MAX_STATUS_FIELDS,
    Status,
)
from penstock.jobs.batches.allowed_failures import parse_allowed_failures
from penstock.jobs.errors import StepFailed, WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.retry import Backoff
from penstock.jobs.workflows.coded import results, step_options
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
from penstock.jobs.workflows.coded.results import MapResult
from penstock.jobs.workflows.coded.running.compensations import Compensation, Compensations
from penstock.jobs.workflows.coded.running.driver import Driver

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
        self,
        call: Call,
        *,
        name: str = "",
        compensate: Compensation | None = None,
        timeout: float | timedelta = 0.0,
        tries: int = 0,
        backoff: Backoff | None = None,
        delay: float | timedelta = 0.0,
        queue: str = "",
        priority: Priority = "normal",
        tags: Iterable[str] = (),
    ) -> Command[Any]:
        """Runs a job, in its own queue; awaited, its result.

        The options below hold for this step alone. They are no part of what must be the same when
        the code runs again; a step that was recorded keeps those that it was recorded with.

        Args:
            call: of the job.
            name: in the key; the function's own otherwise.
            compensate: a call of a job that undoes it, or a function that makes one from its
                result. Once this completed, :meth:`compensate` runs it.
            timeout: seconds of an attempt, instead of the function's; of a workflow, those of the
                whole: as ``@workflow(timeout=...)``.
            tries: attempts allowed, instead of the function's; of a workflow, of each advance.
            backoff: between attempts, instead of the function's.
            delay: seconds until its job may start.
            queue: instead of the function's own.
            priority: for queues that have priorities.
            tags: besides the function's.

        Raises:
            StepFailed: at the await: the job is dead, or was cancelled.
            WorkflowError: it is no call, or one that cannot be a step; or an option that cannot be.

        Example::

            await ctx.run(wrap(order=7), timeout=timedelta(minutes=5), tries=2)
        """
        check_call("ctx.run", call)
        if compensate is not None and not callable(compensate):
            check_call("ctx.run(compensate=...)", compensate)
        options = step_options.checked(
            queue=queue,
            priority=priority,
            delay=delay,
            tags=tags,
            tries=tries,
            timeout=timeout,
            backoff=backoff,
        )
        name = name or results.short_name(call.job.name)
        return RunJob[Any](name, call, compensate, options).made(self._driver.scope)

    def compensate(self, *, at_once: int = 1, name: str = "compensate") -> Command[None]:
        """Undoes the steps that completed, by what they were given as ``compensate=``.

        Newest first, each a job of its own, once for each step. All are tried, also where one is
        dead. Steps that were given up, and whose jobs may complete yet, are awaited first. Where
        the workflow is cancelled meanwhile, or its time is over, it goes on to its end, and
        `Cancelled` is raised then.

        Args:
            at_once: so many are undone beside each other, then those before them; 1: one after
                another. The code runs again after each such group: hundreds of steps are undone
                sooner where several may be at once.
            name: of its scope.

        Raises:
            StepFailed: at the await, once all were tried: the first that is dead.
        """
        if not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1:
            raise WorkflowError(f"ctx.compensate(at_once={at_once!r}): expected 1 or more")
        undone = Later(partial(newest_first, self, self._driver.compensations, at_once))
        return Join(name, [undone], first_only=True, undoes=True).made(self._driver.scope)

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
            first,
        ).made(self._driver.scope)

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
        return RunInline(name, function, args).made(self._driver.scope)

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
        return Join(name, _checked(parts, self), on_failure=on_failure).made(self._driver.scope)

    def race(self, *parts: Awaited, name: str = "race") -> Command[Any]:
        """Runs parts beside each other; awaited, the result of the first that ends.

        The others are given up, and their jobs cancelled.
        """
        if not parts:
            raise WorkflowError("a race has at least one part")
        return Join(name, _checked(parts, self), first_only=True).made(self._driver.scope)

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
        return ContinueAsNew(call).made(self._driver.scope)

    def sleep(self, length: float | timedelta, *, name: str = "sleep") -> Command[None]:
        """Waits; nothing of the workflow is in memory meanwhile.

        Args:
            length: seconds, up to a year.
            name: in the key.
        """
        return Sleep(name, step_options.span("ctx.sleep", length)).made(self._driver.scope)

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
        span = None if timeout is None else step_options.span("ctx.wait_signal", timeout)
        return WaitSignal(name, name, kind, span, default).made(self._driver.scope)

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


async def newest_first(
    context: WorkflowContext, compensations: Compensations, at_once: int = 1
) -> None:
    """Carries out compensations. Raises StepFailed, once all were tried."""
    await AwaitGivenUp()
    failure = None
    while calls := compensations.newest(at_once):
        try:
            if at_once == 1:
                await context.run(calls[0])
            else:
                await context.gather(*calls, on_failure="drain")
        except StepFailed as error:
            failure = failure or error
        compensations.carried_out(len(calls))
    if failure is not None:
        raise failure


def check_call(what: str, call: Call) -> None:
    """Raises WorkflowError: it is no call, or one that cannot be a step."""
    if not isinstance(call, Call):
        raise WorkflowError(f"{what} takes calls of jobs, my_job(...), found {call!r}")


def _checked(parts: tuple[Awaited, ...], context: WorkflowContext) -> list[Awaited]:
    """Raises WorkflowError: one of them cannot be awaited here."""
    checked: list[Awaited] = []
    for given in parts:
        part = context.run(given) if isinstance(given, Call) else given
        if isinstance(part, Command):
            part.taken()
            checked.append(part)
        elif inspect.iscoroutine(part):
            checked.append(part)
        else:
            raise WorkflowError(
                f"found {part!r}, expected a call of a job, an awaitable of the context, or a "
                "coroutine"
            )
    return checked
