"""Arguments of jobs that lists are searched by: those that the settings name. Pure.

An argument is kept as an *item*, ``table=orders``. What is masked, encrypted, long or nested has
none: an act on all jobs of a filter must never reach one that it does not mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

import msgspec

from penstock.config.masking import MASK, masked
from penstock.console.core.log_entry import LogEntry
from penstock.events.job import JobCarried, JobDispatched, JobMoved, JobRevived
from penstock.events.workflow import WorkflowContinued
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import is_sealed

LONGEST_VALUE = 200
"""Characters; a longer value is not found by any part of it."""
MOST_ITEMS = 16
"""Of a job."""
_LONGEST_ENCODED = 8_000
"""Bytes of an argument beyond which it is not looked at."""
_CALLED = (JobDispatched, JobRevived, JobCarried, JobMoved, WorkflowContinued)
"""Events that hold the encoded call of a job."""
_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


def item(name: str, value: str) -> str:
    """An argument as it is kept."""
    return f"{name}={value}"


def name_of(argument: str) -> str:
    """The name of an argument, as a filter has it; ``load_orders:table`` has ``table``."""
    return argument.rpartition(":")[2]


def call_of(entry: LogEntry) -> bytes | None:
    """The encoded call that an event gives its job; None for an event without one."""
    return (entry.event.payload or None) if isinstance(entry.event, _CALLED) else None


def items(call: bytes, searched: Iterable[str]) -> tuple[str, ...]:
    """The items of a call, each once.

    Args:
        call: as it is encoded.
        searched: ``name``, or ``function:name`` for the argument of one function, by its registered
            name or the last part of it.

    Returns:
        None of what is masked or encrypted, nor of a call that cannot be read.
    """
    try:
        read = payload.decode(call)
        names = _names(read.function, searched)
        if not names or is_sealed(read.arguments):
            return ()
        arguments = _fields(read.all_arguments())
        every = (
            item(name, text)
            for name in names
            if len(raw := arguments.get(name, b"")) <= _LONGEST_ENCODED
            for text in _texts(bytes(raw), name, read.masked)
        )
        return tuple(dict.fromkeys(every))[:MOST_ITEMS]
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return ()


def _names(function: str, searched: Iterable[str]) -> list[str]:
    of_call = ("", function, function.rpartition(".")[2])
    return list(
        dict.fromkeys(name_of(one) for one in searched if one.rpartition(":")[0] in of_call)
    )


def _texts(raw: bytes, name: str, hidden: tuple[str, ...]) -> Iterator[str]:
    """A value as texts: one, or one for each item of a list."""
    if not raw or is_sealed(raw):
        return
    plain = {name: msgspec.msgpack.decode(raw)}
    shown = masked(plain, hidden)
    if shown != plain or MASK in shown:  # a part of a text can be a secret, too
        return
    value = plain[name]
    for one in value if isinstance(value, list) else [value]:
        text = _text(one)
        if text and len(text) <= LONGEST_VALUE:
            yield text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    return value.isoformat() if isinstance(value, date) else ""
