"""The values that a line of code put into the message of its error.

In the message of ``raise LookupError(f"no row for {name}")`` the name looks like any other word.
The traceback shows the line, and by it which words of the message are values.
"""

from __future__ import annotations

import ast
from functools import lru_cache

import msgspec

VALUE = "<text>"
_MAX_LINE = 500
_MAX_WORDS = 3
"""A longer value is rather the text of another error, which differs with the failure."""
_ERROR_NAMES = {"e", "err", "error", "ex", "exc", "exception", "cause", "reason", "message"}


class _Literal(msgspec.Struct, frozen=True):
    """Text of the f-string itself."""

    text: str


class _Value(msgspec.Struct, frozen=True):
    """An expression of the f-string; its name shows whether it is another error."""

    is_error: bool


def without_values(message: str, line: str) -> str:
    """A message with ``<text>`` in place of the short values that a line put into it.

    Args:
        message: of the error.
        line: the first line of the statement that raised it. The message is returned as it is
            where this is no ``raise`` of an error with one f-string, or does not fit.
    """
    parts = _parts(line)
    shown: list[str] = []
    position = 0
    for part, following in zip(parts, (*parts[1:], None), strict=False):
        if isinstance(part, _Literal):
            if not message.startswith(part.text, position):
                return message
            end = position + len(part.text)
            shown.append(part.text)
        else:
            end = _end_of_value(message, position, following)
            if end < 0:
                return message
            value = message[position:end]
            is_kept = part.is_error or len(value.split()) > _MAX_WORDS
            shown.append(value if is_kept else VALUE)
        position = end
    return "".join(shown) if position == len(message) else message


def _end_of_value(message: str, start: int, following: _Literal | _Value | None) -> int:
    """Where a value ends that starts there, by the text after it; -1 where that is unknown."""
    if following is None:
        return len(message)
    return message.find(following.text, start) if isinstance(following, _Literal) else -1


@lru_cache(maxsize=1_000)
def _parts(line: str) -> tuple[_Literal | _Value, ...]:
    """What the message of a line's error is made of; empty where the line does not show it."""
    if len(line) > _MAX_LINE or not line.startswith("raise "):
        return ()
    try:
        [statement] = ast.parse(line).body  # parses only; nothing of the line is run
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    match statement:
        case ast.Raise(exc=ast.Call(args=[ast.JoinedStr(values=values)])):
            parts = tuple(map(_part, values))
        case _:
            return ()
    texts = (part.text for part in parts if isinstance(part, _Literal))
    has_words = any(character.isalpha() for text in texts for character in text)
    return parts if has_words else ()


def _part(node: ast.expr) -> _Literal | _Value:
    match node:
        case ast.Constant(value=str(text)):
            return _Literal(text)
        case ast.FormattedValue(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return _Value(name in _ERROR_NAMES)
        case ast.FormattedValue(value=ast.Call(args=[ast.Name(id=name)])):  # str(error)
            return _Value(name in _ERROR_NAMES)
        case _:
            return _Value(is_error=False)
