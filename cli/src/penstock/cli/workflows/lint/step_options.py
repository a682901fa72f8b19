"""Options of a step whose values stand in the source, and that `ctx.run` refuses."""

from __future__ import annotations

import ast
from typing import Any

from penstock.config.topology import PRIORITIES

_SECONDS = ("timeout", "delay")


def wrong_option(call: ast.Call) -> str:
    """The first option that cannot be, as it is written; empty where none is known to be wrong.

    Args:
        call: of `ctx.run`.
    """
    for keyword in call.keywords:
        if keyword.arg is not None and _is_wrong(keyword.arg, keyword.value):
            return f"{keyword.arg}={ast.unparse(keyword.value)}"
    return ""


def _is_wrong(option: str, value: ast.expr) -> bool:
    if option == "backoff":
        is_list = isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Lambda)
        return is_list or (_is_literal(value) and _literal(value) is not None)
    if not _is_literal(value):
        return False
    literal = _literal(value)
    is_number = isinstance(literal, int | float) and not isinstance(literal, bool)
    if option in _SECONDS:
        return not is_number or literal < 0
    if option == "tries":
        return not isinstance(literal, int) or not is_number or literal < 0
    if option == "priority":
        return literal not in PRIORITIES
    return option == "tags" and isinstance(literal, str)


def _is_literal(value: ast.expr) -> bool:
    """Whether it is a number, a text, a truth value or None; also a negative number."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        value = value.operand
    return isinstance(value, ast.Constant)


def _literal(value: ast.expr) -> Any:
    return ast.literal_eval(value)
