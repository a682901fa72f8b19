"""Calls and results as they may be shown: fields are masked, encrypted values stay encrypted.

Every place that shows a payload goes through here.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from penstock.config.masking import MASK, masked
from penstock.events.workflow_memo import MAX_STATUS_LENGTH, Status, WorkflowMemo
from penstock.jobs.errors import Undecryptable
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import is_sealed, unpack
from penstock.jobs.payloads.payload import Payload

_DEEPEST = 20
_MOST_HIDDEN = 100
_MOST_SPELLINGS = 1_000
"""Looking for one in a line takes about 50 ns."""
_LONGEST_SPELLED = 20_000
"""Characters of a text; longer ones are looked for whole, and line by line."""
_LEAST_HIDDEN = 4
"""Shorter texts are not looked for in log lines: they stand in many words."""


def arguments(body: bytes) -> Any:
    """The arguments of an encoded call as plain values, or why they cannot be shown."""
    try:
        call = payload.decode(body)
        if is_sealed(call.arguments):
            return _closed(call.arguments)
        handed = {name: _value(raw, call.masked) for name, raw in (call.handed or {}).items()}
        own = masked(msgspec.msgpack.decode(call.arguments), call.masked)
        return masked({**own, **handed}, call.masked)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        return f"(unreadable: {error})"


def status(recorded: WorkflowMemo) -> Status:
    """What a workflow shows of itself; encrypted, it stays so, whichever keys are here."""
    if not recorded.sealed_status:
        return recorded.status
    return {"status": _closed(recorded.sealed_status)[:MAX_STATUS_LENGTH]}


def hidden_texts(call: Payload) -> tuple[str, ...]:
    """The texts among a call's arguments that are masked where the call is shown.

    They are masked in stored log lines too, and so is each line of a text that has several. Sealed
    arguments have none: their lines are sealed.

    Returns:
        Longest first: each text as it is, as ``repr`` and JSON write it, and as in a URL. At most
        ``_MOST_SPELLINGS``; lines give way to whole texts.
    """
    try:
        if is_sealed(call.arguments):
            return ()
        own = msgspec.msgpack.decode(call.all_arguments())
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return ()
    shown = masked(own, call.masked)
    hidden = sorted(dict.fromkeys(_hidden(own, shown, 0)), key=len, reverse=True)[:_MOST_HIDDEN]
    lines = (line.strip() for text in hidden for line in text.splitlines())
    whole = (spelling for text in hidden for spelling in _spellings(text))
    by_line = (spelling for line in lines for spelling in _spellings(line))
    spellings = _distinct(text for text in chain(whole, by_line) if _is_looked_for(text))
    return tuple(sorted(islice(spellings, _MOST_SPELLINGS), key=len, reverse=True))


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    distinct: set[str] = set()
    for text in texts:
        if text not in distinct:
            distinct.add(text)
            yield text


def _spellings(text: str) -> Iterator[str]:
    """A text as it is, and as programs write it into their lines."""
    yield text
    if len(text) > _LONGEST_SPELLED:
        return
    raw = text.encode("utf-8", "surrogatepass")
    yield repr(text)[1:-1]
    yield repr(raw)[2:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(raw)
    yield quote(raw, safe="")
    yield quote_plus(raw)


def _hidden(value: Any, shown: Any, depth: int) -> Iterator[str]:
    """Texts of ``value`` where its masked copy has the mask."""
    if depth > _DEEPEST or value == shown:
        return
    if isinstance(value, dict) and isinstance(shown, dict):
        for key, below in value.items():
            yield from _hidden(below, shown.get(key, MASK), depth + 1)
    elif isinstance(value, list) and isinstance(shown, list):
        for below, masked_below in zip(value, shown, strict=False):
            yield from _hidden(below, masked_below, depth + 1)
    elif shown == MASK:
        yield from _texts(value, depth)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _texts(below, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if _is_looked_for(text):
            yield text


def _is_looked_for(text: str) -> bool:
    return len(text) >= _LEAST_HIDDEN


def result(raw: bytes, body: bytes) -> Any:
    """A job's result as plain values; its encoded call says what is masked."""
    if not raw:
        return None
    try:
        names = payload.decode(body).masked if body else ()
    except (msgspec.MsgspecError, ValueError):
        names = ()
    return _value(raw, names)


def shared(raw: bytes, bodies: Iterable[bytes]) -> Any:
    """Values that several calls share, the context of a graph say, as plain values.

    Args:
        raw: as MessagePack.
        bodies: the encoded calls; what is masked in one of them is.
    """
    names: set[str] = set()
    for body in bodies:
        with suppress(msgspec.MsgspecError, ValueError):
            names.update(payload.decode(body).masked)
    return _value(raw, tuple(names))


def event(tree: Any) -> Any:
    """An event as JSON gives it, with every call and result in it as they may be shown."""
    if isinstance(tree, list):
        return [event(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: _shown(key, value) for key, value in tree.items()}


def _shown(key: str, value: Any) -> Any:
    if key not in ("payload", "result", "value", "context") or not isinstance(value, str):
        return event(value)
    try:
        body = b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    if key != "payload":  # which of its fields are masked is not known here
        verb = "workflow" if key == "context" else "job"
        return f"({len(body)} bytes; see 'penstock {verb} show')"
    return arguments(body)


def _value(raw: bytes | msgspec.Raw, names: tuple[str, ...]) -> Any:
    if not bytes(raw):
        return None
    if is_sealed(raw):
        return _closed(raw)
    try:
        return masked(msgspec.msgpack.decode(raw), names)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return f"(unreadable: {error})"


def _closed(raw: bytes | msgspec.Raw) -> str:
    try:
        return f"(encrypted with key {unpack(raw).key})"
    except Undecryptable as error:
        return f"(unreadable: {error})"
