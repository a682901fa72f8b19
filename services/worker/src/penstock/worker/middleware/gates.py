"""What stands around the runs of this worker: its pool's middleware, and each job's own."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import Any

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


class Gates:
    """Args:
    pool: put around every job of the pool.
    lost: called when a running job has lost what it runs under.
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

    def around(self, job: ClaimedJob, context: Any) -> list[Around]:
        """What this run goes through, outermost first; nothing of it is entered yet."""
        own = f"job {job.kind.name}"
        made = [
            *(self._one(each, self._pool_name, job, context) for each in self.pool),
            *(self._one(each, own, job, context) for each in job.kind.middleware),
        ]
        return [each for each in made if each is not None]

    def ended(self, jobs: Sequence[ClaimedJob]) -> None:
        """Whatever they still held is let go, wherever an interruption struck them."""
        self._semaphores.leave_all(jobs)

    async def close(self) -> None:
        """When nothing runs any more."""
        await self._semaphores.close()

    def _one(
        self, middleware: Middleware, owner: str, job: ClaimedJob, context: Any
    ) -> Around | None:
        match middleware:
            case RateLimited():
                key = key_of(middleware.key, job.arguments)
                return self._rates.gate(middleware, middleware.name or owner, key)
            case WithoutOverlapping():
                key = key_of(middleware.key, job.arguments)
                return self._semaphores.gate(middleware, middleware.name or owner, key, job)
            case Timeout() | Unique():  # seen to by the profile, and where jobs are dispatched
                return None
            case _:
                return middleware(context)


def load(profile: Profile) -> tuple[Profile, tuple[Middleware, ...]]:
    """A pool's middleware, and its profile with what follows from that.

    Raises:
        ConfigError: a name that is not ``module:attribute`` or leads nowhere.
    """
    found = [_named(name) for name in profile.middleware]
    seconds = [each.seconds for each in found if isinstance(each, Timeout)]
    if profile.timeout_seconds:
        seconds.append(profile.timeout_seconds)
    timed = msgspec.structs.replace(profile, timeout_seconds=min(seconds, default=0.0))
    return timed, tuple(each for each in found if not isinstance(each, Timeout))


def _named(name: str) -> Middleware:
    module, colon, attribute = name.partition(":")
    try:
        found: Middleware = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"middleware {name!r} of the pool cannot be had: {error}; "
            "name it as module:attribute, e.g. 'reports.limits:per_second'"
        ) from error
    if not colon or isinstance(found, Unique) or not (callable(found) or _is_value(found)):
        raise ConfigError(
            f"middleware {name!r} of the pool is {found!r}; expected a function of the job's "
            "context, or RateLimited, WithoutOverlapping or Timeout"
        )
    return found


def _is_value(found: object) -> bool:
    return isinstance(found, (RateLimited, WithoutOverlapping, Timeout))
