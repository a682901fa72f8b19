"""A function marked as a job, and a call of it: checked arguments, encoded results.

A program without the job's code calls it by name (:class:`NamedJob`).
"""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NoReturn, ParamSpec, TypeVar

import msgspec

from penstock.events.subjects import check_name
from penstock.jobs.errors import BadArguments, UnknownJob, WrongResult
from penstock.jobs.payloads import sendable
from penstock.jobs.payloads.unencodable import place_of, unencodable
from penstock.jobs.retry import Retries

P = ParamSpec("P")
R = TypeVar("R")
_MAX_NAME_LENGTH = 200
_MISSING = re.compile(r"^Object missing required field `(\w+)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(\w+)`$")
"""How msgspec words it, for an argument itself and not for something inside of one."""


class Call(msgspec.Struct, frozen=True):
    """A function with its arguments, ready to be dispatched."""

    job: JobType[Any, Any] | NamedJob
    arguments: bytes

    def __repr__(self) -> str:
        return f"<call of {self.job.name}>"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("job", self.job.name)]

    def __await__(self) -> NoReturn:
        function = self.job.name.rpartition(".")[2]
        raise TypeError(
            f"{self!r} is not awaited itself: 'await ctx.run({function}(...))' in a workflow, "
            f"'await client.dispatch({function}(...))' elsewhere"
        )


class JobType(Generic[P, R]):
    """A function marked as a job; calling it gives a :class:`Call`, not a run.

    Attributes:
        name: its name in messages.
        function: the author's function, for direct tests.
        takes_context: its first parameter is the :class:`Context`.
        middleware: values of :mod:`penstock.jobs.middleware`, or the author's own.
        encrypted: its arguments and result can be read only with the key.
        masked: names of fields that are never shown.
        max_lost: lost workers in a row after which it is dead; 0: not set.
        at_most_once: it does not run again after it was started.
        store_result: False: what it returns is checked, and not stored.
        result_expires_seconds: how long its result is stored; 0: as long as its events.
        unreachable: why no worker can import the function, and what to do; empty if one can.
        kind: ``workflow`` for one that suspends.
        version: of a workflow.
        digest: of a workflow's code.
    """

    kind: ClassVar[str] = ""
    version: int = 0
    digest: str = ""

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
        middleware: tuple[Any, ...] = (),
        encrypted: bool = False,
        masked: tuple[str, ...] = (),
        max_lost: int = 0,
        at_most_once: bool = False,
        store_result: bool = True,
        result_expires_seconds: float = 0.0,
    ) -> None:
        self.function = function
        self.name = name
        self.unreachable = _why_unreachable(name)
        self.queue = check_name("queue", queue)
        self.tries, self.max_lost = tries, max_lost
        self.timeout_seconds = timeout_seconds
        self.retries = retries
        self.middleware = middleware
        self.at_most_once = at_most_once
        self.store_result, self.result_expires_seconds = store_result, result_expires_seconds
        self.encrypted, self.masked = encrypted, masked
        self.tags = tags
        self.made_in: object = None  # the execution of a module that marked it
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = inspect.signature(function)
        self.takes_context, self.parameters = self._split()
        self._arguments = argument_struct(function, name, self.parameters)
        self._decoder = msgspec.msgpack.Decoder(self._arguments)
        self._fields = self._arguments.__struct_fields__
        hints = typing.get_type_hints(function)
        self._result = msgspec.msgpack.Decoder(hints.get("return", Any))
        self._checks_result = self._result.type is not Any

    def _split(self) -> tuple[bool, list[inspect.Parameter]]:
        """Whether the first parameter is the context, and the others."""
        return _split_context(self.name, self.signature)

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
            raise BadArguments(*self._refusal(error)) from error

    def decode(self, arguments: bytes | msgspec.Raw) -> dict[str, Any]:
        """Keyword arguments out of an encoded call. Raises BadArguments."""
        try:
            decoded = self._decoder.decode(arguments)
        except Exception as error:  # also what an author's own types raise
            raise BadArguments(*self._refusal(error)) from error
        return {name: getattr(decoded, name) for name in self._fields}

    def encode_result(self, value: Any) -> bytes:
        """A result as MessagePack, if it can be read as the declared type.

        Checked by decoding it: what the encoding makes equal (a list and a tuple) passes.

        Raises:
            WrongResult: names both types.
            TypeError: it cannot be encoded: names the function, and what in it cannot.
        """
        try:
            encoded = encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            culprit = unencodable(value, is_secret=self.encrypted or bool(self.masked))
            place = place_of(self.function)
            raise TypeError(f"{self.name} ({place}) returned {culprit}") from error
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

    def _refusal(self, error: Exception) -> tuple[str, bool]:
        """Why a call was refused, in terms of its arguments and not of their encoding.

        Returns:
            The text, and whether the call is one of another signature.
        """
        text = str(error)
        missing, unknown = _MISSING.search(text), _UNKNOWN.search(text)
        if missing:
            text = f"argument {missing[1]!r} is missing"
        elif unknown:
            near = difflib.get_close_matches(unknown[1], self._fields, 1)
            text = f"there is no argument {unknown[1]!r}"
            text += f"; did you mean {near[0]!r}?" if near else ""
        takes = ", ".join(map(_shown_parameter, self.parameters))
        return f"{self.name}({takes}): {text}", bool(missing or unknown)

    @property
    def shown_signature(self) -> str:
        """Name and parameters as text, without the values of defaults."""
        takes = (
            _shown_parameter(parameter) + ("" if parameter.default is parameter.empty else " = ...")
            for parameter in self.parameters
        )
        return f"{self.name}({', '.join(takes)})"

    def _mismatch(self, value: Any, error: Exception) -> str:
        """Without the value, which may be secret; the decoder's words quote some of it."""
        text = f"{self.name} declares the result {type_name(self._result.type)}"
        if value is not None:
            text += f" and returned {type_name(type(value))}"
        return text if self.encrypted or self.masked else f"{text}: {error}"


@dataclass(frozen=True)
class NamedJob:
    """A job whose code this program lacks; calling it gives a :class:`Call`, as a job does.

    What the function declares (``tries``, ``timeout_seconds``, ``backoff``) holds where it runs;
    the arguments are checked there. Its uniqueness does not hold: give ``unique_for``.

    Attributes:
        name: as its function is registered: ``module.function``, or the name given to ``@job``.
        queue: where it waits.
        encrypted: as the function declares it.
        masked: names of fields that are never shown, as the function declares them.

    Raises:
        BadName, UnknownJob: no queue, or no function that a worker can import, has such a name.

    Example::

        send_mail = NamedJob("shop.jobs.send_mail", queue="mails")
        await client.dispatch(send_mail(to="ann@example.org"), delay=60)
    """

    name: str
    queue: str = field(kw_only=True)
    encrypted: bool = field(default=False, kw_only=True)
    masked: tuple[str, ...] = field(default=(), kw_only=True)

    unreachable: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    version: ClassVar[int] = 0
    digest: ClassVar[str] = ""
    tries: ClassVar[int] = 0
    timeout_seconds: ClassVar[float] = 0.0
    retries: ClassVar[Retries] = Retries()
    tags: ClassVar[tuple[str, ...]] = ()
    middleware: ClassVar[tuple[Any, ...]] = ()

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        if not 0 < len(self.name) <= _MAX_NAME_LENGTH or not self.name.isprintable():
            raise UnknownJob(
                f"a job's name has 1 to {_MAX_NAME_LENGTH} printable characters, such as "
                f"shop.jobs.send_mail; found {self.name[:80]!r}"
            )
        if reason := _why_unreachable(self.name):
            raise UnknownJob(f"{self.name}: {reason}")

    def __call__(self, /, **arguments: Any) -> Call:
        """A call with these arguments.

        Raises:
            BadArguments: one cannot be encoded.
        """
        try:
            return Call(self, encode(arguments))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadArguments(f"{self.name}: {error}; arguments are plain values") from error

    def decode(self, arguments: bytes | msgspec.Raw) -> dict[str, Any]:
        """Keyword arguments out of an encoded call, as plain values."""
        decoded: dict[str, Any] = _plain_arguments.decode(arguments)
        return decoded


def _shown_parameter(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation
    if kind is parameter.empty:
        return parameter.name
    return f"{parameter.name}: {kind if isinstance(kind, str) else type_name(kind)}"


def type_name(kind: Any) -> str:
    """A type as its author wrote it, for messages."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind)


def encode_result(value: Any) -> bytes:
    """A job's result as MessagePack. Raises TypeError when it cannot be."""
    return encode(value)


encode = msgspec.msgpack.Encoder().encode
_plain_arguments = msgspec.msgpack.Decoder(dict[str, Any])


def _why_unreachable(name: str) -> str:
    if name.startswith("__main__."):
        return (
            "no worker knows functions of the program that is being run; move it to a module that "
            "jobs.modules names, and import it from there"
        )
    if "<locals>" in name:
        return "no worker can import a function inside another one; define it in a module"
    return ""


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
        if (unsent := sendable.unsendable(kind)) and not _is_encodable(parameter.default):
            raise TypeError(
                f"{name}: argument {parameter.name!r} is a {unsent}, which no call can carry; "
                f"{sendable.instead(unsent)}"
            )
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    return msgspec.defstruct(
        f"Arguments of {name}", fields, kw_only=True, forbid_unknown_fields=True
    )


def _is_encodable(default: Any) -> bool:
    """Whether a call can do without another value: it carries the default."""
    try:
        encode(default)
    except (TypeError, ValueError):
        return False
    return True


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=value.copy)
    return value
