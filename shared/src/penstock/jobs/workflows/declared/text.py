"""Conditions and paths as people write them: ``results.check.total > 100 and context.paid``.

Python's parser reads the text, which is never executed: comparisons, ``and``, ``or``, ``not``,
constants, paths and ``exists(path)`` become data, anything else is refused. Pure.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec

from penstock.events.condition import Condition, Operand, Pair, Path, Reference
from penstock.jobs.errors import JobRefused

MAX_LENGTH = 1_000
ROOTS = ("results", "context")
_CONSTANTS = {"true": True, "false": False, "null": None}
_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.In: "within",
}
_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "within": "in"}


class BadCondition(JobRefused):
    """A condition, or a path, that cannot be read: the text names the place."""


def parse_condition(text: str) -> Condition:
    """A condition from its text.

    Args:
        text: at most 1,000 characters.

    Raises:
        BadCondition

    Example::

        parse_condition("results.check.total > 100 and context.gateway in ['stripe', 'paypal']")
    """
    with _naming("condition", text):
        return _condition(_parsed(text))


def parse_path(text: str, roots: tuple[str, ...] = ROOTS) -> Path:
    """A path from its text: ``results.STEP.FIELD`` or ``context.KEY``.

    Args:
        text: a name that is no plain word stands in brackets: ``results["load all"].rows``.
        roots: what it may begin with.

    Raises:
        BadCondition
    """
    with _naming("path", text):
        path = _path(_parsed(text))
        if path[0] not in roots or len(path) < 2:
            raise ValueError(f"expected {' or '.join(f'{root}.NAME' for root in roots)}")
        return path


def parse_result_path(text: str) -> tuple[str | int, ...]:
    """The part of a step's own result: ``result`` for all of it, ``result.FIELD``.

    Raises:
        BadCondition
    """
    with _naming("path", text):
        path = _path(_parsed(text))
        if path[0] != "result":
            raise ValueError("expected result or result.FIELD")
        return path[1:]


@contextmanager
def _naming(what: str, text: str) -> Iterator[None]:
    """Raises BadCondition where the text cannot be read, with the text."""
    try:
        yield
    except ValueError as error:
        raise BadCondition(f"{what} {text[:200]!r}: {error}") from None
    except RecursionError:
        raise BadCondition(f"{what} {text[:200]!r}: it is nested too deeply") from None


def written(condition: Condition) -> str:
    """A condition as text, which :func:`parse_condition` reads."""
    if condition.exists is not None:
        return f"exists({written_path(condition.exists)})"
    if condition.comparison is not None:
        left, right = map(_written_operand, condition.comparison)
        return f"{left} {_SYMBOLS[condition.operator]} {right}"
    if condition.negated is not None:
        return f"not ({written(condition.negated)})"
    word = " and " if condition.all_of is not None else " or "
    neutral = "true == true" if condition.all_of is not None else "true == false"
    return word.join(f"({written(part)})" for part in condition.parts) or neutral


def written_path(path: Path) -> str:
    """A path as text."""
    first, *others = path
    return str(first) + "".join(f".{key}" if _is_word(key) else f"[{key!r}]" for key in others)


def _is_word(key: str | int) -> bool:
    """Whether a key reads the same after a dot; Python's parser changes some letters (NFKC)."""
    return (
        isinstance(key, str) and key.isascii() and key.isidentifier() and not keyword.iskeyword(key)
    )


def _written_operand(operand: Operand) -> str:
    return written_path(operand.ref) if isinstance(operand, Reference) else repr(operand)


# --- from the syntax tree -------------------------------------------------------------------------
def _parsed(text: str) -> ast.expr:
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ValueError(f"expected text of at most {MAX_LENGTH} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(getattr(error, "msg", None) or "it is nested too deeply") from None


def _condition(node: ast.expr) -> Condition:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return Condition(all_of=tuple(map(_condition, values)))
        case ast.BoolOp(values=values):
            return Condition(any_of=tuple(map(_condition, values)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Condition(negated=_condition(operand))
        case ast.Call(func=ast.Name(id="exists"), args=[argument], keywords=[]):
            return Condition(exists=_rooted(argument))
        case ast.Compare(left=left, ops=operators, comparators=others):
            sides = [_operand(side) for side in (left, *others)]
            pairs = zip(operators, pairwise(sides), strict=True)
            parts = [_compared(operator, pair) for operator, pair in pairs]
            return parts[0] if len(parts) == 1 else Condition(all_of=tuple(parts))
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return Condition(eq=(Reference(_rooted(node)), True))
    raise ValueError(
        f"found {ast.unparse(node)[:100]!r}; expected comparisons, and, or, not, exists(PATH)"
    )


def _compared(operator: ast.cmpop, pair: Pair) -> Condition:
    if isinstance(operator, ast.NotIn):
        return Condition(negated=Condition(within=pair))
    if (name := _OPERATORS.get(type(operator))) is None:
        raise ValueError("'is' compares no values; write ==")
    fields: dict[str, Any] = {name: pair}
    return Condition(**fields)


def _operand(node: ast.expr) -> Operand:
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return Reference(_rooted(node))
    try:
        value: Any = ast.literal_eval(node)
        operand: Operand = msgspec.convert(value, Operand)
        return operand
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(
            f"found {ast.unparse(node)[:100]!r}; expected a path, or a constant"
        ) from None


def _rooted(node: ast.expr) -> Path:
    path = _path(node)
    if path[0] not in ROOTS or len(path) < 2:
        raise ValueError(
            f"{ast.unparse(node)[:100]!r} is no path; it begins with results.STEP or context.KEY"
        )
    return path


def _path(node: ast.expr) -> tuple[str | int, ...]:
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            return (*_path(value), name)
        case ast.Subscript(value=value, slice=ast.Constant(value=str() | int() as key)):
            return (*_path(value), key)
    raise ValueError(f"found {ast.unparse(node)[:100]!r}; expected a path such as results.a.b")
