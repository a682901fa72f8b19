"""Workers that are consumers of another system: their command, readiness and end."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from penstock.config.section import Positive, Section

EndSignal = Literal["TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL"]
ReadyKind = Literal["log", "port", "http", "file", "seconds"]

PLACEHOLDERS = ("queues", "queue", "worker", "host", "pool")
"""What a command may name in braces."""
USUAL_VARIABLES = (
    "HOME",
    "LANG",
    "LC_*",
    "LOGNAME",
    "PATH",
    "PYTHONPATH",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)
"""Variables that each such worker gets; others only where its pool names them."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_OWN_VARIABLES = "PENSTOCK_"
"""Variables of the platform: they may hold its credentials."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_MOST_SECONDS = 3600.0


class Drain(Section, frozen=True, kw_only=True):
    """How a process of another system is ended: it may finish what it handles first.

    Attributes:
        signal: asks it to take no further message and to end after the one that it handles.
        seconds: it may take so long.
        then: what it gets after that; five seconds later it is killed.
    """

    signal: EndSignal = "TERM"
    seconds: Positive = 30.0
    then: EndSignal = "KILL"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.signal == "KILL":
            raise ValueError(
                "signal = 'KILL' ends a process while it handles a message; name the signal that "
                "its system drains at, such as 'TERM', and 'KILL' in 'then'"
            )


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What shows that a process takes messages: a kind, and the rest of its text."""

    kind: ReadyKind
    value: str

    @property
    def seconds(self) -> float:
        """Of the kind ``seconds``."""
        return float(self.value)

    @property
    def port(self) -> int:
        """Of the kind ``port``."""
        return int(self.value)


def ready_of(text: str) -> Ready:
    """A ``ready`` setting, read.

    Raises:
        ValueError: says what was found and what is expected.
    """
    kind, colon, value = text.partition(":")
    kinds: tuple[ReadyKind, ...] = get_args(ReadyKind)
    ready_kind = next((name for name in kinds if name == kind), None)
    if ready_kind is None or not colon or not value:
        raise ValueError(
            f"found {text[:80]!r}, expected 'log:REGEX', 'port:N', 'http:URL', 'file:PATH' or "
            "'seconds:N'"
        )
    if wrong := _wrong(ready_kind, value):
        raise ValueError(f"found {text[:80]!r}, {wrong}")
    return Ready(kind=ready_kind, value=value)


def argv(
    command: Sequence[str], *, queues: Sequence[str], worker: str, host: str, pool: str
) -> list[str]:
    """The command of one worker; no shell reads it.

    ``{queues}`` are all names with commas between them. An argument with ``{queue}`` is repeated
    for each queue.
    """
    values = {"queues": ",".join(queues), "worker": worker, "host": host, "pool": pool}
    return [
        _filled(argument, {**values, "queue": queue})
        for argument in command
        for queue in (queues if "{queue}" in argument else queues[:1])
    ]


def unknown_placeholders(command: Sequence[str]) -> list[str]:
    """Names in braces that stand for nothing; other braces, as of JSON, are left as they are."""
    names = {name for argument in command for name in _PLACEHOLDER.findall(argument)}
    return sorted(names.difference(PLACEHOLDERS))


def filled_path(path: str, *, worker: str, host: str, pool: str) -> str:
    """The path of a ``ready`` file for one worker."""
    return _filled(path, {"worker": worker, "host": host, "pool": pool})


def wrong_variable(pattern: str) -> str:
    """Why a process cannot get the variables of this name; empty where it can."""
    if not _VARIABLE.fullmatch(pattern):
        return f"found {pattern[:80]!r}, expected the name of a variable, or 'PREFIX_*'"
    if pattern.startswith(_OWN_VARIABLES) or (
        pattern.endswith("*") and _OWN_VARIABLES.startswith(pattern[:-1])
    ):
        return f"{pattern!r} covers variables of the platform, which may hold its credentials"
    return ""


def signal_number(name: EndSignal) -> signal.Signals:
    """The signal of a setting."""
    return signal.Signals[f"SIG{name}"]


def _filled(text: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _wrong(kind: ReadyKind, value: str) -> str:
    match kind:
        case "log":
            return _wrong_regex(value)
        case "port":
            is_port = value.isdecimal() and 0 < int(value) < 65_536
            return "" if is_port else "expected a port from 1 to 65535"
        case "seconds":
            return "" if _is_seconds(value) else f"expected 0 to {_MOST_SECONDS:g} seconds"
        case "file":
            is_path = PurePosixPath(value).is_absolute()
            return "" if is_path else "expected an absolute path, in which {worker} may stand"
        case "http":
            return _wrong_url(value)


def _wrong_regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"which is no regular expression: {error}"
    return ""


def _is_seconds(value: str) -> bool:
    try:
        return 0 <= float(value) <= _MOST_SECONDS
    except ValueError:
        return False


def _wrong_url(value: str) -> str:
    expected = "expected an address of this machine, such as http:http://127.0.0.1:8080/ready"
    try:
        url = urlsplit(value)
        is_fitting = url.scheme == "http" and url.hostname in _LOOPBACK and url.username is None
        return "" if is_fitting and url.port != 0 else expected
    except ValueError:
        return expected
