"""Variables of a workflow that a function changes which it gives to a step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from penstock.cli.workflows.lint import rules
from penstock.cli.workflows.lint.source import Function, assigned_names


def changed(function: ast.expr, outer: frozenset[str], nested: Mapping[str, Function]) -> list[str]:
    """Names of the variables that are changed, sorted.

    Args:
        function: the expression that is given to the step.
        outer: local variables of the workflow.
        nested: functions that are defined in it.
    """
    return sorted(set(_changed(function, outer, nested)))


def _changed(
    function: ast.expr, outer: frozenset[str], nested: Mapping[str, Function]
) -> Iterator[str]:
    match function:
        case ast.Lambda(args=arguments, body=body):
            own = {one.arg for one in _parameters(arguments)}
            yield from _mutated(body, outer - own)
        case ast.Name(id=name) if name in nested:
            yield from _changed_by(nested[name], outer)
        case ast.Attribute(value=ast.Name(id=name), attr=method) if name in outer:
            if method in rules.MUTATING:
                yield name
        case ast.Call(func=called, args=[first, *_]) if ast.unparse(called).endswith("partial"):
            yield from _changed(first, outer, nested)


def _changed_by(function: Function, outer: frozenset[str]) -> Iterator[str]:
    free = {
        name for node in ast.walk(function) if isinstance(node, ast.Nonlocal) for name in node.names
    }
    own = {one.arg for one in _parameters(function.args)}
    own |= {name for statement in function.body for name in assigned_names(statement)}
    yield from free & outer
    for statement in function.body:
        yield from _mutated(statement, outer - (own - free))


def _mutated(body: ast.AST, outer: frozenset[str]) -> Iterator[str]:
    """Outer variables whose values are changed in place."""
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                if name in outer and method in rules.MUTATING:
                    yield name
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from _parts_of(targets, outer)
            case ast.AugAssign(target=target):
                yield from _parts_of([target], outer)


def _parts_of(targets: list[ast.expr], outer: frozenset[str]) -> Iterator[str]:
    for target in targets:
        place = target
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if place is not target and isinstance(place, ast.Name) and place.id in outer:
            yield place.id


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
