"""Registered functions. A message can only name one of them, never an import path."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from penstock.events.job import MAX_TAG_LENGTH
from penstock.jobs.errors import BadArguments, UnknownJob
from penstock.jobs.job_type import JobType
from penstock.jobs.middleware import Middleware, Timeout
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff, Delay
from penstock.jobs.retry import retries as put_in_order

P = ParamSpec("P")
R = TypeVar("R")

_DIGEST_LENGTH = 8
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""In the text of an annotation without a name of its own; it differs from process to process."""
MAX_TAGS = 10
MAX_RESULT_SECONDS = 366 * 86_400


@overload
def job(function: Callable[P, R], /) -> JobType[P, R]: ...
@overload
def job(
    *,
    queue: str = "default",
    name: str = "",
    tries: int = 0,
    timeout_seconds: float = 0.0,
    backoff: Backoff | Sequence[float] | Delay = DEFAULT_BACKOFF,
    fatal: Sequence[type[BaseException]] = (),
    harmless: Sequence[type[BaseException]] = (),
    tags: Sequence[str] = (),
    middleware: Sequence[Middleware] = (),
    encrypted: bool = False,
    masked: Sequence[str] = (),
    max_lost: int = 0,
    schedule: str = "",
    at_most_once: bool = False,
    store_result: bool = True,
    result_expires_seconds: float = 0.0,
) -> Callable[[Callable[P, R]], JobType[P, R]]: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue: str = "default",
    name: str = "",
    tries: int = 0,
    timeout_seconds: float = 0.0,
    backoff: Backoff | Sequence[float] | Delay = DEFAULT_BACKOFF,
    fatal: Sequence[type[BaseException]] = (),
    harmless: Sequence[type[BaseException]] = (),
    tags: Sequence[str] = (),
    middleware: Sequence[Middleware] = (),
    encrypted: bool = False,
    masked: Sequence[str] = (),
    max_lost: int = 0,
    schedule: str = "",
    at_most_once: bool = False,
    store_result: bool = True,
    result_expires_seconds: float = 0.0,
) -> Any:
    """Marks a function as a job.

    Args:
        queue: where it waits unless the dispatch names another. A pool must take it: those that
            name none wait in ``default``.
        name: its name in messages; default is ``module.function``.
        tries: attempts allowed; 0 takes the pool's.
        timeout_seconds: per attempt; 0 takes the pool's.
        backoff: delay between attempts: exponential, a list of seconds, or a function of the
            attempt and the error (None: no further attempt), asked where the job runs.
        fatal: errors after which no attempt follows.
        harmless: errors that count as success.
        tags: at most 10, of at most 100 characters.
        middleware: what is put around each run, the first outermost; see
            :mod:`penstock.jobs.middleware`.
        encrypted: arguments, result and checkpoint are readable only with a key of
            ``encryption.key_file``. masked: names of fields, at any depth, that are never shown.
        max_lost: lost workers in a row (by a crash, say) after which it is dead; 0 takes 1 where
            ``tries`` is 1, else ``jobs.max_lost_workers``.
        schedule: a cron expression, in UTC: declares a schedule of calls without arguments, called
            like the job with hyphens for its dots; :func:`penstock.jobs.schedule` has zones and
            arguments.
        at_most_once: once started it never runs again by itself: if its worker is lost, or the
            platform must interrupt it, it is dead with the error ``at-most-once``. Implies
            ``tries=1``.
        store_result: False: what it returns is checked against the declared type, and not stored.
        result_expires_seconds: how long its result is stored; 0: as long as its events.

    Raises:
        ValueError, TypeError: what is given cannot be, or its module has another job of this name.
        BadSchedule, BadArguments: the cron expression cannot be, or the function needs arguments.

    Example::

        @job(queue="reports", tries=5)
        def rebuild(context: Context, table: str, day: date) -> int: ...

        await client.dispatch(rebuild(table="orders", day=date(2026, 11, 20)))
    """

    def mark(marked: Callable[..., Any]) -> JobType[Any, Any]:
        _check_numbers(
            tries=tries,
            timeout_seconds=timeout_seconds,
            max_lost=max_lost,
            result_expires_seconds=result_expires_seconds,
        )
        if at_most_once and (tries > 1 or max_lost > 1):
            raise ValueError(
                f"at_most_once=True allows one try, found tries={tries}, max_lost={max_lost}"
            )
        _check_result_terms(store_result, result_expires_seconds)
        limits = [rule.seconds for rule in middleware if isinstance(rule, Timeout)]
        kind: JobType[Any, Any] = JobType(
            marked,
            name=name or f"{marked.__module__}.{marked.__qualname__}",
            queue=queue,
            tries=1 if at_most_once else tries,
            timeout_seconds=min([*limits, timeout_seconds or math.inf])
            if limits
            else timeout_seconds,
            retries=put_in_order(backoff, fatal, harmless),
            tags=check_tags(tags),
            middleware=tuple(rule for rule in middleware if not isinstance(rule, Timeout)),
            encrypted=encrypted,
            masked=tuple(masked),
            max_lost=max_lost,
            at_most_once=at_most_once,
            store_result=store_result,
            result_expires_seconds=result_expires_seconds,
        )
        register(kind)
        if schedule:
            _declare(kind, schedule)
        return kind

    return mark(function) if function is not None else mark


def _declare(kind: JobType[Any, Any], cron: str) -> None:
    from penstock.jobs.schedules import declaration  # noqa: PLC0415 - it imports this module

    try:
        call = kind()
    except BadArguments as error:
        raise BadArguments(
            f"@job(schedule=...) calls it without arguments: {error}; "
            "penstock.jobs.schedule(name, call, cron) takes a call with arguments"
        ) from error
    declaration.schedule(kind.name.replace(".", "-"), call, cron)


def _check_numbers(**numbers: object) -> None:
    for name, value in numbers.items():
        kinds = (int, float) if name.endswith("_seconds") else int
        wanted = "seconds" if name.endswith("_seconds") else "a whole number"
        example = ", such as 300 for five minutes" if name.endswith("_seconds") else ""
        if not isinstance(value, kinds) or isinstance(value, bool) or math.isnan(value):
            raise TypeError(f"{name}: found {value!r}, expected {wanted}{example}")
        if value < 0:
            raise ValueError(f"{name}: found {value!r}, expected 0 or more")


def _check_result_terms(store_result: bool, expires_seconds: float) -> None:
    if expires_seconds and not store_result:
        raise ValueError("store_result=False stores nothing that could expire")
    if 0 < expires_seconds < 1 or expires_seconds > MAX_RESULT_SECONDS:
        raise ValueError(
            f"result_expires_seconds: found {expires_seconds:g}, expected 1 s to a year, or 0"
        )


def register(kind: JobType[Any, Any]) -> None:
    """Lets messages name it. Raises ValueError: its module has another job of this name."""
    check_not_hidden(kind, REGISTRY.get(kind.name))
    REGISTRY[kind.name] = kind


def check_not_hidden(kind: JobType[Any, Any], earlier: JobType[Any, Any] | None) -> None:
    """Of two functions of one name in a module, messages could only ever mean the second.

    A module that is executed anew (`importlib.reload`) may define its functions again: it has
    another specification then. A notebook's cell may, too.

    Args:
        kind: about to be registered.
        earlier: of the same name, where there is one.

    Raises:
        ValueError: names the two places.
    """
    module = sys.modules.get(kind.function.__module__)
    kind.made_in = getattr(module, "__spec__", None)
    if (
        earlier is None
        or kind.unreachable
        or kind.made_in is None
        or earlier.made_in is not kind.made_in
        or earlier.function is kind.function
    ):
        return
    raise ValueError(
        f"two jobs are called {kind.name!r}: {_place(earlier.function)} and "
        f"{_place(kind.function)}; rename one, or give it a name: @job(name=...)"
    )


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"line {code.co_firstlineno}" if code else repr(function)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """``tags`` without doubles. Raises ValueError when there are too many or one is too long."""
    distinct = tuple(dict.fromkeys(tags))
    if len(distinct) > MAX_TAGS:
        raise ValueError(f"a job has at most {MAX_TAGS} tags, found {len(distinct)}")
    for tag in distinct:
        if not 0 < len(tag) <= MAX_TAG_LENGTH:
            raise ValueError(f"a tag has 1 to {MAX_TAG_LENGTH} characters, found {tag[:120]!r}")
    return distinct


def with_automatic(
    tags: tuple[str, ...], automatic: Iterable[str], most: int = MAX_TAGS
) -> tuple[str, ...]:
    """``tags``, then the automatic ones, as far as 10 have room.

    What the platform adds never makes a dispatch fail: the author's tags come first.
    """
    room = max(most, len(tags))
    return tuple(dict.fromkeys((*tags, *automatic)))[:room]


REGISTRY: dict[str, JobType[Any, Any]] = {}
"""Filled by importing the modules that the configuration names."""


def load(modules: Iterable[str]) -> None:
    """Imports the configured modules. Raises ImportError with the module's name."""
    for module in modules:
        importlib.import_module(module)


def build(label: str = "") -> str:
    """Names the version of the job code in this process: equal where all signatures are equal.

    Args:
        label: the operator's name for it (``jobs.build``); the digest follows it.
    """
    signatures = (
        _ADDRESS.sub("", f"{kind.shown_signature}{' encrypted' if kind.encrypted else ''}")
        for _, kind in sorted(REGISTRY.items())
    )
    digest = hashlib.sha256("\n".join(signatures).encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{label}-{digest}" if label else digest


def find(name: str) -> JobType[Any, Any]:
    """The registered function of that name. Raises UnknownJob with the nearest known names."""
    try:
        return REGISTRY[name]
    except KeyError:
        near = difflib.get_close_matches(name, REGISTRY, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "is its module named in jobs.modules?"
        raise UnknownJob(f"no job is called {name[:200]!r}; {hint}") from None
