"""What stands around the runs of this worker: its pool's middleware, and each job's own."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    suppress,
)
from typing import Any, Final

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import ConfigError, Profile
from penstock.events.subjects import Subjects
from penstock.jobs.middleware import (
    Around,
    Middleware,
    RateLimited,
    Timeout,
    Unique,
    WithoutOverlapping,
    key_of,
)
from penstock.runtime.workers.assignment import Assignment
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.middleware.rate_limits import RateLimits
from penstock.worker.middleware.semaphores import Semaphores

SUPPRESSED: Final = object()
"""Returned for a job whose error a middleware suppressed. It has no result, whatever its type."""


class Gates:
    """Makes the context managers that each run goes through.

    Args:
        pool: middleware of the pool, put around every job.
        lost: called when a running job has lost the lease that it runs under.
    """

    def __init__(
        self,
        bus: Bus,
        assignment: Assignment,
        pool: Sequence[Middleware],
        lost: Callable[[ClaimedJob, str], None],
    ) -> None:
        self.pool = tuple(pool)
        self._pool_name = f"pool {assignment.pool}"
        subjects, loop = Subjects(assignment.settings.prefix), asyncio.get_running_loop()
        seconds = assignment.settings.jobs.exclusive_lease_seconds
        self._rates = RateLimits(bus, subjects, loop)
        self._semaphores = Semaphores(bus, subjects, assignment.worker, seconds, loop, lost)

    def around(self, job: ClaimedJob, context: Any, in_loop: bool = False) -> list[Around]:
        """What this run goes through, outermost first; none is entered yet.

        Args:
            in_loop: it runs in an event loop that other jobs share, so that none of ours may block.
        """
        own = f"job {job.kind.name}"
        named = [
            *((one, self._pool_name) for one in self.pool),
            *((one, own) for one in job.kind.middleware),
        ]
        managers: list[Around] = []
        for one, owner in named:
            manager = self._manager(one, owner, job, context)
            if in_loop and _is_value(one) and isinstance(manager, AbstractContextManager):
                manager = _EnteredInThread(manager)
            if manager is not None:
                managers.append(manager)
        return managers

    def ended(self, jobs: Sequence[ClaimedJob]) -> None:
        """Releases the slots that they still hold, wherever an interruption struck them."""
        self._semaphores.leave_all(jobs)

    async def close(self) -> None:
        """When nothing runs any more."""
        await self._semaphores.close()

    def _manager(
        self, middleware: Middleware, owner: str, job: ClaimedJob, context: Any
    ) -> Around | None:
        match middleware:
            case RateLimited():
                key = key_of(middleware.key, job.arguments)
                return self._rates.gate(middleware, middleware.name or owner, key)
            case WithoutOverlapping():
                key = key_of(middleware.key, job.arguments)
                return self._semaphores.gate(middleware, middleware.name or owner, key, job)
            case Timeout() | Unique():  # applied by the profile, and where jobs are dispatched
                return None
            case _:
                return middleware(context)


class _EnteredInThread(AbstractAsyncContextManager[Any]):
    """A context manager that waits for the broker when it is entered, and not when it is left."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        entering = asyncio.get_running_loop().run_in_executor(None, self._manager.__enter__)
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(self._leave)  # it may still be entered
            raise

    async def __aexit__(self, *error: Any) -> bool | None:
        return self._manager.__exit__(*error)

    def _leave(self, entering: asyncio.Future[Any]) -> None:
        if not entering.cancelled() and entering.exception() is None:
            with suppress(Exception):
                self._manager.__exit__(None, None, None)


def call(arounds: Sequence[Around], function: Callable[[], Any]) -> Any:
    """The function's result, inside plain context managers, the first outermost."""
    with ExitStack() as stack:
        for manager in arounds:
            assert isinstance(manager, AbstractContextManager)
            stack.enter_context(manager)
        return function()
    return SUPPRESSED


async def call_async(arounds: Sequence[Around], function: Callable[[], Any]) -> Any:
    """The same, plain and asynchronous managers mixed; the result is awaited if it is to be."""
    async with AsyncExitStack() as stack:
        for manager in arounds:
            if isinstance(manager, AbstractContextManager):
                stack.enter_context(manager)
            else:
                await stack.enter_async_context(manager)
        result = function()
        return await result if inspect.isawaitable(result) else result
    return SUPPRESSED


def load(profile: Profile) -> tuple[Profile, tuple[Middleware, ...]]:
    """A pool's middleware, and its profile with what follows from that.

    Raises:
        ConfigError: a name that is not ``module:attribute`` or leads nowhere.
    """
    middleware = [_named(name) for name in profile.middleware]
    seconds = [one.seconds for one in middleware if isinstance(one, Timeout)]
    if profile.timeout_seconds:
        seconds.append(profile.timeout_seconds)
    timed = msgspec.structs.replace(profile, timeout_seconds=min(seconds, default=0.0))
    return timed, tuple(one for one in middleware if not isinstance(one, Timeout))


def _named(name: str) -> Middleware:
    module, colon, attribute = name.partition(":")
    try:
        middleware: Middleware = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"middleware {name!r} of the pool cannot be loaded: {error}; "
            "name it as module:attribute, e.g. 'reports.limits:per_second'"
        ) from error
    is_usable = callable(middleware) or _is_value(middleware)
    if not colon or isinstance(middleware, Unique) or not is_usable:
        raise ConfigError(
            f"middleware {name!r} of the pool is {middleware!r}; expected a function of the job's "
            "context, or RateLimited, WithoutOverlapping or Timeout"
        )
    return middleware


def _is_value(middleware: object) -> bool:
    return isinstance(middleware, (RateLimited, WithoutOverlapping, Timeout))
