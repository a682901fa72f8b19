"""Goes through the code of one workflow, and of the functions of its module that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from penstock.cli.workflows.lint import captures, rules
from penstock.cli.workflows.lint.rules import Rule
from penstock.cli.workflows.lint.source import (
    Function,
    Module,
    assigned_names,
    dotted,
    imports_of,
)
from penstock.cli.workflows.lint.step_options import wrong_option

_CONTEXT = "WorkflowContext"
_CANCELLATIONS = frozenset({"Cancelled", "BaseException"})
_ORDERED_COPIES = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter"})
_SETS = frozenset({"set", "frozenset"})
_USES = (
    *(ast.If, ast.While, ast.Assert, ast.For, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp),
    *(ast.Subscript, ast.Attribute, ast.FormattedValue),
)
"""What needs the value of an expression: an awaitable in its place was not awaited."""


class Breach(NamedTuple):
    """A place where a rule is broken.

    Attributes:
        what: what stands there, in words.
    """

    node: ast.expr | ast.stmt
    rule: Rule
    what: str


def breaches(module: Module, workflow: Function, *, is_inside: bool) -> Iterator[Breach]:
    """What is wrong with a workflow, and with the functions of its module that it calls.

    Args:
        module: the source.
        workflow: the function that is marked.
        is_inside: it is defined inside of another function.
    """
    if is_inside:
        yield Breach(workflow, rules.CLOSURE, f"workflow {workflow.name}")
    read: set[str] = set()
    waiting: list[Function] = [workflow]
    compensated: ast.Call | None = None
    cleans_up = False
    while waiting:
        body = _Body(module, waiting.pop())
        body.visit_all()
        yield from body.breaches
        compensated = compensated or body.compensated
        cleans_up = cleans_up or body.cleans_up
        for name in sorted(body.called - read):
            read.add(name)
            waiting.append(module.functions[name])
    if compensated is not None and not cleans_up:
        yield Breach(compensated, rules.UNDO, "compensate=")


class _Body(ast.NodeVisitor):
    """One function.

    Attributes:
        breaches: in it.
        called: functions of the module that it calls.
        compensated: its first step with ``compensate=``.
        cleans_up: it has code that also runs where the workflow is cancelled.
    """

    def __init__(self, module: Module, function: Function) -> None:
        self._module, self._function = module, function
        self.breaches: list[Breach] = []
        self.called: set[str] = set()
        self.compensated: ast.Call | None = None
        self._bounded: set[ast.Call] = set()  # signals that race against a time
        self.cleans_up = any(map(_runs_if_cancelled, ast.walk(function)))
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self._contexts = {one.arg for one in parameters if _is_context(one, function)}
        self._locals = {one.arg for one in parameters}
        self._locals |= {name for node in function.body for name in assigned_names(node)}
        self._globals = {
            name
            for node in ast.walk(function)
            if isinstance(node, ast.Global)
            for name in node.names
        }
        self._locals -= self._globals
        local_imports = imports_of(function.body)
        self._imports = {
            name: full
            for name, full in {**module.imports, **local_imports}.items()
            if name not in self._locals
        }
        self._nested = {
            node.name: node
            for node in ast.walk(function)
            if isinstance(node, Function) and node is not function
        }
        self._visited: set[str] = set()
        self._is_async = isinstance(function, ast.AsyncFunctionDef)
        self._loaded = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        self._sets = {
            name
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and self._is_set(node.value)
            for target in node.targets
            for name in assigned_names(target)
        }

    def visit_all(self) -> None:
        for statement in self._function.body:
            self.visit(statement)

    def _add(self, node: ast.expr | ast.stmt, rule: Rule, what: str) -> None:
        """Of one rule, one breach a line: two of them are mended together."""
        if not any(one.rule is rule and one.node.lineno == node.lineno for one in self.breaches):
            self.breaches.append(Breach(node, rule, what))

    # --- functions inside of it -------------------------------------------------------------------
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Looked at where it is called."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Looked at where it is called."""

    # --- calls and names --------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func, self._imports)
        root = name.partition(".")[0]
        if isinstance(node.func, ast.Name) and root in self._nested:
            self._enter(root)
        elif isinstance(node.func, ast.Name) and self._is_own_function(root):
            self.called.add(root)
        elif name and not self._is_shadowed(root) and (rule := rules.rule_of(name)):
            self._add(node, rule, f"{name}()")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in rules.FILE_METHODS:
            self._add(node, rules.FILES, f".{node.func.attr}()")
        elif name in _ORDERED_COPIES and node.args and self._is_set(node.args[0]):
            self._add(node, rules.ORDER, f"{name}() of a set")
        self._check_mutation(node)
        self._check_command(node)
        self._visit_parts(node)

    def _visit_parts(self, node: ast.Call) -> None:
        """Its arguments; functions that are given to the context run as steps, not here."""
        self.visit(node.func)
        is_command = self._command(node) != ""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if not (is_command and isinstance(argument, ast.Lambda)):
                self.visit(argument)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = dotted(node, self._imports)
        if name and (rule := rules.rule_of_read(name)):
            self._add(node, rule, name)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = self._imports.get(node.id, "")
        if name and (rule := rules.rule_of_read(name)):
            self._add(node, rule, name)
        elif isinstance(node.ctx, ast.Load) and self._is_changed_elsewhere(node.id):
            self._add(node, rules.GLOBAL, f"{node.id}, which the module changes while it runs,")

    def _enter(self, name: str) -> None:
        if name not in self._visited:
            self._visited.add(name)
            is_async, nested = self._is_async, self._nested[name]
            self._is_async = isinstance(nested, ast.AsyncFunctionDef)
            for statement in nested.body:
                self.visit(statement)
            self._is_async = is_async

    def _is_own_function(self, name: str) -> bool:
        return name in self._module.functions and name not in self._locals

    def _is_shadowed(self, name: str) -> bool:
        """Whether a builtin's name means something of this module or function."""
        return name in self._locals or name in self._module.functions

    # --- state of the module ----------------------------------------------------------------------
    def visit_Global(self, node: ast.Global) -> None:
        self._add(node, rules.GLOBAL, f"global {', '.join(node.names)}")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._check_target(node, target)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if len(names) == len(node.targets) and self._loaded.isdisjoint(names):
            self._check_awaited(node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node, node.target)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._check_target(node, target)
        self.generic_visit(node)

    def _check_target(self, node: ast.stmt, target: ast.expr) -> None:
        place = target
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if place is not target and isinstance(place, ast.Name) and self._is_variable(place.id):
            self._add(node, rules.GLOBAL, f"{place.id}, which it changes,")

    def _check_mutation(self, node: ast.Call) -> None:
        func = node.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr in rules.MUTATING
            and isinstance(func.value, ast.Name)
            and self._is_variable(func.value.id)
        ):
            self._add(node, rules.GLOBAL, f"{func.value.id}, which it changes,")

    def _is_variable(self, name: str) -> bool:
        """Whether a name is a variable of the module."""
        return name in self._module.variables and name not in self._locals

    def _is_changed_elsewhere(self, name: str) -> bool:
        return self._is_variable(name) and name in self._module.changed

    # --- awaiting ---------------------------------------------------------------------------------
    def visit_Await(self, node: ast.Await) -> None:
        if (what := self._foreign(node.value)) and not self._is_named(node.value):
            self._add(node, rules.AWAIT, what)
        self.visit(node.value)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self._add(node, rules.AWAIT, "async with")
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._add(node, rules.AWAIT, "async for")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        self._check_awaited(node.value)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if self._is_async and node.value is not None:
            self._check_awaited(node.value)
        self.generic_visit(node)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _USES):
            for part in ast.iter_child_nodes(node):
                self._check_awaited(part)
        super().visit(node)

    def _check_awaited(self, value: ast.AST) -> None:
        """Of an expression whose value is used, or dropped."""
        if isinstance(value, ast.Call) and (name := self._command(value)):
            self._add(value, rules.UNAWAITED, f"{name}(...)")

    # --- steps and signals ------------------------------------------------------------------------
    def _check_command(self, node: ast.Call) -> None:
        method = self._command(node).rpartition(".")[2]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if method == "race" and any(self._is_sleep(part) for part in node.args):
            self._bounded.update(part for part in node.args if isinstance(part, ast.Call))
        is_bounded = {"timeout", None} & keywords.keys() or node in self._bounded
        if method == "wait_signal" and not is_bounded:
            self._add(node, rules.ENDLESS, "ctx.wait_signal(...)")
        if method == "run" and (option := wrong_option(node)):
            self._add(node, rules.OPTION, f"{option} of {self._command(node)}(...)")
        if method == "run" and "compensate" in keywords:
            self.compensated = self.compensated or node
        if method == "step":
            functions = [*node.args[1:2], *(keywords.get(name) for name in ("function",))]
            for function in filter(None, functions):
                if changed := captures.changed(function, self._outer, self._nested):
                    what = f"changes {', '.join(changed)}, a variable outside of it,"
                    self._add(node, rules.CAPTURED, f"the function {what}")

    def _is_sleep(self, part: ast.expr) -> bool:
        return isinstance(part, ast.Call) and self._command(part).endswith(".sleep")

    @property
    def _outer(self) -> frozenset[str]:
        return frozenset(self._locals - self._contexts)

    def _foreign(self, value: ast.expr) -> str:
        """What is awaited, where that is not of the context; empty where it may be."""
        if not isinstance(value, ast.Call) or self._command(value):
            return ""
        func = value.func
        if isinstance(func, ast.Name):
            own = self._module.functions.get(func.id) or self._nested.get(func.id)
            if isinstance(own, ast.AsyncFunctionDef) or func.id in self._locals:
                return ""
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        if any(isinstance(one, ast.Name) and one.id in self._contexts for one in given):
            return ""
        return f"{dotted(func, self._imports) or ast.unparse(func)}()"

    def _is_named(self, value: ast.expr) -> bool:
        """Whether the call has a finding of its own, which says more."""
        return isinstance(value, ast.Call) and bool(
            rules.rule_of(dotted(value.func, self._imports))
        )

    def _command(self, node: ast.Call) -> str:
        """``ctx.run``, where the call is one of the context that is to be awaited."""
        func = node.func
        if (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and func.value.id in self._contexts
            and func.attr in rules.COMMANDS
        ):
            return f"{func.value.id}.{func.attr}"
        return ""

    # --- order ------------------------------------------------------------------------------------
    def visit_For(self, node: ast.For) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._check_order(node.value)
        self.generic_visit(node)

    def _check_order(self, iterated: ast.expr) -> None:
        is_set = isinstance(iterated, ast.Name) and iterated.id in self._sets
        if is_set or self._is_set(iterated):
            self._add(iterated, rules.ORDER, "a set")

    def _is_set(self, node: ast.expr) -> bool:
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return isinstance(node, ast.Set | ast.SetComp) or (
            is_call and node.func.id in _SETS and node.func.id not in self._locals  # type: ignore[attr-defined]
        )


def _runs_if_cancelled(node: ast.AST) -> bool:
    """Whether it is an ``except`` for `Cancelled`, or a ``finally``."""
    if isinstance(node, ast.Try | ast.TryStar):
        return bool(node.finalbody)
    if not isinstance(node, ast.ExceptHandler):
        return False
    caught = list(ast.walk(node.type)) if node.type is not None else []
    names = {ast.unparse(part).rpartition(".")[2] for part in caught if isinstance(part, ast.expr)}
    return node.type is None or not names.isdisjoint(_CANCELLATIONS)


def _is_context(argument: ast.arg, function: Function) -> bool:
    """By its annotation; the first parameter of a workflow is one without any, too."""
    annotation = argument.annotation
    text = ast.unparse(annotation).strip("'\"") if annotation else ""
    if text:
        return text.rpartition(".")[2] == _CONTEXT
    return argument.arg == "ctx" or (
        bool(function.decorator_list) and function.args.args[:1] == [argument]
    )
