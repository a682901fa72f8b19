"""Registered functions. A message names one of them or is refused; it never names an import."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from penstock.events.subjects import check_name
from penstock.jobs.errors import BadArguments, UnknownJob, WrongResult
from penstock.jobs.middleware import Middleware, Timeout
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff, Delay, Retries
from penstock.jobs.retry import retries as put_in_order

P = ParamSpec("P")
R = TypeVar("R")

MAX_TAGS = 10
MAX_TAG_LENGTH = 100


class Call(msgspec.Struct, frozen=True):
    """A function with its arguments, ready to be dispatched."""

    job: JobType[Any, Any]
    arguments: bytes

    def __repr__(self) -> str:
        return f"<call of {self.job.name}>"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("job", self.job.name)]


class JobType(Generic[P, R]):
    """A function marked as a job; calling it gives a :class:`Call`, not a run.

    Attributes:
        name: what messages call it. function: the author's function, for direct tests.
        takes_context: its first parameter is the :class:`Context`.
        encrypted: nobody without the key reads its arguments and result. masked: names of what is
            never shown. max_lost: lost workers in a row after which it is dead; 0: not said.
        unreachable: why no worker can import the function, and what to do; empty if one can.
    """

    def __init__(
        self,
        function: Callable[..., R],
        *,
        name: str,
        queue: str,
        tries: int,
        timeout_seconds: float,
        retries: Retries,
        tags: tuple[str, ...],
        middleware: tuple[Middleware, ...] = (),
        encrypted: bool = False,
        masked: tuple[str, ...] = (),
        max_lost: int = 0,
    ) -> None:
        self.function = function
        self.name = name
        self.unreachable = _why_unreachable(name)
        self.queue = check_name("queue", queue)
        self.tries, self.max_lost = tries, max_lost
        self.timeout_seconds = timeout_seconds
        self.retries = retries
        self.middleware = middleware
        self.encrypted, self.masked = encrypted, masked
        self.tags = tags
        self.made_in: object = None  # the execution of a module that marked it
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = inspect.signature(function)
        self.takes_context, self.parameters = _split_context(name, self.signature)
        self._arguments = argument_struct(function, name, self.parameters)
        self._decoder = msgspec.msgpack.Decoder(self._arguments)
        self._fields = self._arguments.__struct_fields__
        hints = typing.get_type_hints(function)
        self._result = msgspec.msgpack.Decoder(hints.get("return", Any))
        self._checks_result = self._result.type is not Any

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        """A call with these arguments.

        Raises:
            BadArguments: they do not fit the signature.
        """
        try:
            if args:
                names = [parameter.name for parameter in self.parameters]
                if len(args) > len(names):
                    raise TypeError(f"takes {len(names)} arguments, found {len(args)}")
                doubled = set(names[: len(args)]) & set(kwargs)
                if doubled:
                    raise TypeError(f"argument {doubled.pop()!r} is given twice")
                kwargs = dict(zip(names, args, strict=False)) | kwargs
            return Call(self, encode(msgspec.convert(kwargs, self._arguments)))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadArguments(f"{self.name}{self.signature}: {error}") from error

    def decode(self, arguments: bytes | msgspec.Raw) -> dict[str, Any]:
        """Keyword arguments out of an encoded call. Raises BadArguments."""
        try:
            found = self._decoder.decode(arguments)
        except Exception as error:  # also what an author's own types raise
            raise BadArguments(f"{self.name}{self.signature}: {error}") from error
        return {name: getattr(found, name) for name in self._fields}

    def encode_result(self, value: Any) -> bytes:
        """A result as MessagePack, if whoever reads it gets the declared type.

        It is read as a reader will: what the encoding makes equal (a list and a tuple) is.

        Raises:
            WrongResult: names both types. TypeError: it cannot be encoded.
        """
        encoded = encode_result(value)
        if self._checks_result:
            try:
                self._result.decode(encoded)
            except Exception as error:  # also what an author's own types raise
                raise WrongResult(self._mismatch(value, error)) from error
        return encoded

    def decode_result(self, result: bytes) -> R:
        """Raises WrongResult: it was stored by another version of the function, say."""
        try:
            value: R = self._result.decode(result)
        except Exception as error:
            raise WrongResult(self._mismatch(None, error)) from error
        return value

    def _mismatch(self, value: Any, error: Exception) -> str:
        """Without the value, which may be secret; the decoder's words quote some of it."""
        text = f"{self.name} declares the result {_type_name(self._result.type)}"
        if value is not None:
            text += f" and returned {_type_name(type(value))}"
        return text if self.encrypted or self.masked else f"{text}: {error}"


def _type_name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)


def encode_result(value: Any) -> bytes:
    """A job's result as MessagePack. Raises TypeError when it cannot be."""
    return encode(value)


encode = msgspec.msgpack.Encoder().encode


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
) -> Any:
    """Marks a function as a job.

    Args:
        queue: where it waits unless the dispatch says otherwise. A pool must take it: those that
            name none wait in ``default``.
        name: what messages call it; default is ``module.function``.
        tries: attempts allowed; 0 takes the pool's. timeout_seconds: per attempt; 0 likewise.
        backoff: delay between attempts: exponential, a list of seconds, or a function of the
            attempt and the error (None: no further attempt), asked where the job runs.
        fatal: errors after which no attempt follows. harmless: errors that count as success.
        tags: at most 10, of at most 100 characters.
        middleware: what is put around each run, the first outermost; see
            :mod:`penstock.jobs.middleware`.
        encrypted: arguments, result and checkpoint are readable only with a key of
            ``encryption.key_file``. masked: names of fields, at any depth, that are never shown.
        max_lost: lost workers in a row (by a crash, say) after which it is dead; 0 takes 1 where
            ``tries`` is 1, else ``jobs.max_lost_workers``.

    Raises:
        ValueError, TypeError: what is given cannot be, or its module has another job of this name.

    Example::

        @job(queue="reports", tries=5)
        def rebuild(context: Context, table: str, day: date) -> int: ...

        await client.dispatch(rebuild(table="orders", day=date(2026, 11, 20)))
    """

    def mark(marked: Callable[..., Any]) -> JobType[Any, Any]:
        _check_numbers(tries=tries, timeout_seconds=timeout_seconds, max_lost=max_lost)
        limits = [each.seconds for each in middleware if isinstance(each, Timeout)]
        kind: JobType[Any, Any] = JobType(
            marked,
            name=name or f"{marked.__module__}.{marked.__qualname__}",
            queue=queue,
            tries=tries,
            timeout_seconds=min([*limits, timeout_seconds or math.inf])
            if limits
            else timeout_seconds,
            retries=put_in_order(backoff, fatal, harmless),
            tags=check_tags(tags),
            middleware=tuple(each for each in middleware if not isinstance(each, Timeout)),
            encrypted=encrypted,
            masked=tuple(masked),
            max_lost=max_lost,
        )
        _check_not_hidden(kind)
        REGISTRY[kind.name] = kind
        return kind

    return mark(function) if function is not None else mark


def _check_numbers(**numbers: object) -> None:
    for name, value in numbers.items():
        kinds = (int, float) if name.endswith("_seconds") else int
        wanted = "seconds" if name.endswith("_seconds") else "a whole number"
        example = ", such as 300 for five minutes" if name.endswith("_seconds") else ""
        if not isinstance(value, kinds) or isinstance(value, bool) or math.isnan(value):
            raise TypeError(f"{name}: found {value!r}, expected {wanted}{example}")
        if value < 0:
            raise ValueError(f"{name}: found {value!r}, expected 0 or more")


def _why_unreachable(name: str) -> str:
    if name.startswith("__main__."):
        return (
            "no worker knows functions of the program that is being run; move it to a module that "
            "jobs.modules names, and import it from there"
        )
    if "<locals>" in name:
        return "no worker can import a function inside another one; define it in a module"
    return ""


def _check_not_hidden(kind: JobType[Any, Any]) -> None:
    """Of two functions of one name in a module, messages could only ever mean the second.

    A module that is executed anew (`importlib.reload`) may define its functions again: it has
    another specification then. A notebook's cell may, too.

    Raises:
        ValueError: names the two places.
    """
    module = sys.modules.get(kind.function.__module__)
    kind.made_in = getattr(module, "__spec__", None)
    known = REGISTRY.get(kind.name)
    if (
        known is None
        or kind.unreachable
        or kind.made_in is None
        or known.made_in is not kind.made_in
        or known.function is kind.function
    ):
        return
    raise ValueError(
        f"two jobs are called {kind.name!r}: {_place(known.function)} and {_place(kind.function)}; "
        "rename one, or give it a name: @job(name=...)"
    )


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"line {code.co_firstlineno}" if code else repr(function)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """``tags`` without doubles. Raises ValueError when there are too many or one is too long."""
    found = tuple(dict.fromkeys(tags))
    if len(found) > MAX_TAGS:
        raise ValueError(f"a job has at most {MAX_TAGS} tags, found {len(found)}")
    for tag in found:
        if not 0 < len(tag) <= MAX_TAG_LENGTH:
            raise ValueError(f"a tag has 1 to {MAX_TAG_LENGTH} characters, found {tag[:120]!r}")
    return found


def with_automatic(
    tags: tuple[str, ...], automatic: Iterable[str], most: int = MAX_TAGS
) -> tuple[str, ...]:
    """``tags``, then those that are added by themselves, as far as there is room.

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


def find(name: str) -> JobType[Any, Any]:
    """The registered function of that name. Raises UnknownJob with the nearest known names."""
    try:
        return REGISTRY[name]
    except KeyError:
        near = difflib.get_close_matches(name, REGISTRY, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "is its module named in jobs.modules?"
        raise UnknownJob(f"no job is called {name[:200]!r}; {hint}") from None


def _split_context(name: str, signature: inspect.Signature) -> tuple[bool, list[inspect.Parameter]]:
    parameters = list(signature.parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{name}: *{parameter.name} cannot be typed; name each argument")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{name}: {parameter.name} is positional-only; jobs are called by name")
    for parameter in parameters[1:]:
        if parameter.name == "context" and _is_context(parameter.annotation):
            raise TypeError(
                f"{name}: the context is parameter {parameters.index(parameter) + 1}, expected the "
                "first: def work(context: Context, ...)"
            )
    if parameters and parameters[0].name == "context":
        return True, parameters[1:]
    return False, parameters


def _is_context(annotation: object) -> bool:
    """By its name: the class itself belongs to workers."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.rpartition(".")[2] == "Context"


def argument_struct(
    function: Callable[..., Any], name: str, parameters: list[inspect.Parameter]
) -> type[msgspec.Struct]:
    """What the arguments of a call are checked against."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for parameter in parameters:
        kind = hints.get(parameter.name, Any)
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    return msgspec.defstruct(
        f"Arguments of {name}", fields, kw_only=True, forbid_unknown_fields=True
    )


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=value.copy)
    return value
