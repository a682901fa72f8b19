"""What runs around a job, by its author or for a whole pool; state is shared by all hosts.

A middleware is called with the running job's context and gives a context manager, plain or
asynchronous; the job runs inside. It may raise :class:`Defer` or :class:`Skip` instead. Those below
are values: the worker and the client know what to do about them.

Example::

    @contextmanager
    def timed(context):
        began = time.monotonic()
        yield
        context.logger.info("took %.1f s", time.monotonic() - began)

    @job(middleware=[timed, RateLimited(10, per_seconds=1, key="{customer}")])
    def bill(customer: str) -> None: ...
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal

import msgspec

from penstock.jobs.errors import BadArguments
from penstock.jobs.running.context import Context

Around = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
OwnMiddleware = Callable[[Context], Around]
Key = str | Callable[..., str]
"""A template filled with the job's arguments, ``"{customer}"``, or a function of them."""

_MAX_RATE_LIMIT = 1_000_000


class RateLimited(msgspec.Struct, frozen=True):
    """At most ``limit`` starts in ``per_seconds``; a job that comes too early is deferred.

    Attributes:
        key: each key has a limit of its own; empty: one for all.
        window: ``bucket``: on average, with bursts of up to ``burst`` (0: ``limit``) starts;
            ``sliding``: strictly, in each stretch of that length.
        name: jobs whose limits have the same name share them; else each job, or pool, has its own.
        otherwise: a job that comes too early is deferred (``defer``), need not run (``skip``: it
            ends as cancelled), or has failed this attempt (``fail``: RateLimitExceeded).
        defer_seconds: by how long; 0: until its turn comes.
    """

    limit: int
    per_seconds: float = 1.0
    key: Key = ""
    window: Literal["bucket", "sliding"] = "bucket"
    burst: int = 0
    name: str = ""
    otherwise: Literal["defer", "skip", "fail"] = "defer"
    defer_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.otherwise not in ("defer", "skip", "fail"):
            raise ValueError(f"otherwise is defer, skip or fail, found {self.otherwise!r}")
        if not 0 <= self.defer_seconds <= 86_400:
            raise ValueError(f"a job is deferred by 0 to 86,400 s, found {self.defer_seconds:g} s")
        if not (0 < self.limit <= _MAX_RATE_LIMIT and 0 <= self.burst <= _MAX_RATE_LIMIT):
            raise ValueError(f"a rate limit is 1 to {_MAX_RATE_LIMIT:,}, found {self}")
        if not 0 < self.per_seconds <= 86_400:
            raise ValueError(f"a rate limit is per 0 to 86,400 s, found {self.per_seconds:g} s")


class WithoutOverlapping(msgspec.Struct, frozen=True):
    """At most ``limit`` jobs of a key run at the same time; see docs/jobs.md for the guarantee.

    Attributes:
        otherwise: a job that finds no room is deferred (``defer``) or need not run (``skip``).
        defer_seconds: by how long, give or take a half.
        name: as of :class:`RateLimited`.
    """

    key: Key = ""
    limit: int = 1
    otherwise: Literal["defer", "skip"] = "defer"
    defer_seconds: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"1 to 1,000 jobs of a key may run at a time, found {self.limit}")
        if not 0 < self.defer_seconds <= 86_400:
            raise ValueError(f"a job is deferred by 0 to 86,400 s, found {self.defer_seconds:g} s")


class Timeout(msgspec.Struct, frozen=True):
    """A run that takes longer is ended and has failed; as ``timeout_seconds``, for a pool too."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 1e9:
            raise ValueError(f"a timeout is more than 0 s, found {self.seconds:g} s")


class Unique(msgspec.Struct, frozen=True):
    """A dispatch is refused while another of the same key counts.

    Attributes:
        seconds: how long a dispatched job counts.
        key: empty: all arguments together.
        until_ended: a job that has ended does not count any more.
    """

    seconds: float
    key: Key = ""
    until_ended: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 366 * 86_400:
            raise ValueError(f"a job is unique for up to a year, found {self.seconds:g} s")


Middleware = RateLimited | WithoutOverlapping | Timeout | Unique | OwnMiddleware


def key_of(key: Key, arguments: Mapping[str, Any]) -> str:
    """The key of a call with these arguments.

    Raises:
        BadArguments: the template names one that is not there, or the function fails.
    """
    try:
        return key.format_map(arguments) if isinstance(key, str) else str(key(**arguments))
    except Exception as error:  # an author's own function may raise anything
        raise BadArguments(f"the key {key!r} does not fit the arguments: {error!r}") from error


def token(*parts: str) -> str:
    """A name that may stand in a subject, different for each sequence of texts."""
    joined = b"".join(len(raw).to_bytes(4, "big") + raw for raw in (p.encode() for p in parts))
    return hashlib.blake2b(joined, digest_size=16).hexdigest()
