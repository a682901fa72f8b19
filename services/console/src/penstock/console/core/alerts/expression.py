"""Comparisons of series as text: a small grammar, parsed into values. Pure.

::

    either     = both {"or" both}
    both       = negation {"and" negation}
    negation   = ["not"] comparison
    comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
    sum        = product {("+" | "-") product}
    product    = factor {("*" | "/") factor}
    factor     = NUMBER | NAME | FUNCTION "(" NAME "," DURATION ")" | "(" either ")" | "-" factor

What is not known stays not known, but for ``false and unknown`` and ``true or unknown``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

SERIES = {
    "waiting": "jobs that could start now",
    "running": "jobs that run",
    "delayed": "jobs that are scheduled or retried later",
    "oldest_waiting": "age of the oldest waiting job, seconds",
    "pickup_p99": "pickup time of late, 99 %, seconds",
    "arrivals": "jobs a second that arrive",
    "workers_ready": "workers that could take a job",
    "workers_idle": "of these, the ones without a job",
    "failed_share": "share of attempts that failed lately",
    "budget_left": "share of the budget of late jobs that is left",
    "burn_rate": "how many times faster than allowed it burns",
    "promise": "what is promised, seconds",
    "predicted_pickup": "of a job that is dispatched now, seconds",
}
"""By name: what it is."""
FUNCTIONS = ("avg", "min", "max", "change")
MAX_DEPTH, MAX_PARTS = 10, 100
MAX_WINDOW_SECONDS = 3600.0
_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:\.\d+)?(?:s|m|h)\b)|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<name>[a-z][a-z0-9_]*)|(?P<sign><=|>=|==|!=|[-+*/<>(),]))"
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
Value = float | bool | None
Lookup = Callable[[str, str, float], float | None]
"""Function (empty for the newest value), series, window in seconds: the value, None for unknown."""


class BadExpression(ValueError):
    """Text that is no expression: says where, what was found and what was expected."""


class Node(NamedTuple):
    """A part of an expression: an operator, and what it works on."""

    operator: str
    parts: tuple[Node, ...] = ()
    name: str = ""
    number: float = 0.0


_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def parse(text: str) -> Node:
    """The expression in a text.

    Raises:
        BadExpression: says what was found and what was expected.
    """
    parser = _Parser(text)
    node = parser.either(0)
    parser.expect_end()
    if node.operator not in {"or", "and", "not", *_COMPARED}:
        raise BadExpression("expected a comparison, such as waiting > 100")
    return node


def evaluate(node: Node, look_up: Lookup) -> bool | None:
    """Whether the expression holds; None where that is not known."""
    value = _value(node, look_up)
    return value if value is None else bool(value)


def _value(node: Node, look_up: Lookup) -> Value:
    if node.operator == "number":
        return node.number
    if node.operator in ("series", *FUNCTIONS):
        function = "" if node.operator == "series" else node.operator
        return look_up(function, node.name, node.number)
    values = [_value(part, look_up) for part in node.parts]
    if node.operator == "and":
        return False if False in values else None if None in values else True
    if node.operator == "or":
        return True if True in values else None if None in values else False
    if None in values:
        return None
    if node.operator == "not":
        return not values[0]
    if node.operator == "negative":
        return -float(values[0] or 0.0)
    return _arithmetic(node.operator, float(values[0] or 0.0), float(values[1] or 0.0))


def _arithmetic(sign: str, left: float, right: float) -> Value:
    if sign in _COMPARED:
        return _COMPARED[sign](left, right)
    if sign == "/":
        return left / right if right else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                place = f"character {position + 1}"
                raise BadExpression(
                    f"found {text[position:][:20]!r} at {place}, expected a series or a number"
                )
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self._at = 0
        self._parts = 0

    def either(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise BadExpression(f"found parts within parts, {MAX_DEPTH} are allowed")
        node = self._both(depth)
        while self._accept("or"):
            node = self._node("or", node, self._both(depth))
        return node

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error("the end, or 'and' or 'or'")

    def _both(self, depth: int) -> Node:
        node = self._negation(depth)
        while self._accept("and"):
            node = self._node("and", node, self._negation(depth))
        return node

    def _negation(self, depth: int) -> Node:
        if self._accept("not"):
            return self._node("not", _boolean(self._comparison(depth)))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        left = self._sum(depth)
        sign = self._peek()
        if sign in _COMPARED:
            self._at += 1
            return self._node(sign, left, self._sum(depth))
        return left

    def _sum(self, depth: int) -> Node:
        node = self._product(depth)
        while (sign := self._peek()) in ("+", "-"):
            self._at += 1
            node = self._node(sign, node, self._product(depth))
        return node

    def _product(self, depth: int) -> Node:
        node = self._factor(depth)
        while (sign := self._peek()) in ("*", "/"):
            self._at += 1
            node = self._node(sign, node, self._factor(depth))
        return node

    def _factor(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise BadExpression(f"found parts within parts, {MAX_DEPTH} are allowed")
        if self._accept("("):
            node = self.either(depth + 1)
            self._expect(")")
            return node
        if self._accept("-"):
            return self._node("negative", self._factor(depth + 1))
        kind, text, _ = self._next("a number, a series or '('")
        if kind == "number":
            return Node("number", number=float(text))
        if kind == "name" and text in FUNCTIONS:
            return self._function(text)
        if kind == "name" and text in SERIES:
            return Node("series", name=text)
        self._at -= 1
        raise self._error(f"a number, or a series: {', '.join(SERIES)}")

    def _function(self, function: str) -> Node:
        self._expect("(")
        _, series, _ = self._next("a series")
        if series not in SERIES:
            self._at -= 1
            raise self._error(f"a series: {', '.join(SERIES)}")
        self._expect(",")
        kind, text, _ = self._next("a time such as 5m")
        seconds = float(text[:-1]) * _UNITS[text[-1]] if kind == "duration" else 0.0
        if not 0 < seconds <= MAX_WINDOW_SECONDS:
            self._at -= 1
            raise self._error("a time such as 30s or 5m, at most 1h")
        self._expect(")")
        return Node(function, name=series, number=seconds)

    def _node(self, sign: str, *parts: Node) -> Node:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadExpression(f"found more than {MAX_PARTS} operators")
        if sign in ("and", "or"):
            parts = tuple(_boolean(part) for part in parts)
        elif sign != "not" and any(_is_boolean(part) for part in parts):
            raise BadExpression(f"found a comparison on a side of {sign!r}, expected a number")
        return Node(sign, parts)

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _accept(self, text: str) -> bool:
        if self._peek() == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(repr(text))

    def _next(self, expected: str) -> tuple[str, str, int]:
        if self._at >= len(self._tokens):
            raise self._error(expected)
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, expected: str) -> BadExpression:
        if self._at >= len(self._tokens):
            return BadExpression(f"found the end, expected {expected}")
        _, text, place = self._tokens[self._at]
        return BadExpression(f"found {text!r} at character {place + 1}, expected {expected}")


def _is_boolean(node: Node) -> bool:
    return node.operator in {"and", "or", "not", *_COMPARED}


def _boolean(node: Node) -> Node:
    if not _is_boolean(node):
        raise BadExpression("found a number, expected a comparison, such as waiting > 100")
    return node
