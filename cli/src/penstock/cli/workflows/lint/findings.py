"""What is found in workflows, and which of it their author wants to be ignored."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from penstock.cli.workflows.lint.rules import IGNORE, RULES
from penstock.cli.workflows.lint.source import ANY_RULE, Module
from penstock.cli.workflows.lint.visitor import Breach, breaches

_NAMES = frozenset(rule.name for rule in RULES)


class Finding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One place.

    Attributes:
        file: its path.
        line: from 1 on.
        column: from 1 on.
        rule: that is broken.
        workflow: the function, the first of several; also where the place is in one that it calls.
        message: what is wrong there.
        instead: what to write in its place.
        is_warning: it may be meant.
    """

    file: str
    line: int
    column: int
    rule: str
    workflow: str
    message: str
    instead: str
    is_warning: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        level = "warning: " if self.is_warning else ""
        return f"{place}: {level}{self.rule}: {self.message}; use {self.instead}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        workflows: how many were read.
        findings: in the order of their places.
    """

    workflows: int
    findings: tuple[Finding, ...]


def check(modules: Iterable[Module], function: str) -> Report:
    """Reads the workflows of modules.

    Args:
        modules: their sources.
        function: only the workflow of this name; empty for all.
    """
    count, findings = 0, dict[tuple[str, int, str], Finding]()
    for module in modules:
        own = 0
        for workflow, is_inside in module.workflows():
            if function and workflow.name != function:
                continue
            own += 1
            for breach in breaches(module, workflow, is_inside=is_inside):
                if not _is_ignored(module, breach):
                    finding = _finding(module, workflow.name, breach)
                    findings.setdefault((finding.file, finding.line, finding.rule), finding)
        count += own
        for finding in _unknown_rules(module) if own else ():
            findings[finding.file, finding.line, finding.rule] = finding
    return Report(workflows=count, findings=tuple(sorted(findings.values())))


def _finding(module: Module, workflow: str, breach: Breach) -> Finding:
    return Finding(
        file=module.path,
        line=breach.node.lineno,
        column=breach.node.col_offset + 1,
        rule=breach.rule.name,
        workflow=workflow,
        message=f"{breach.what} {breach.rule.why}",
        instead=breach.rule.instead,
        is_warning=breach.rule.is_warning,
    )


def _is_ignored(module: Module, breach: Breach) -> bool:
    lines = {breach.node.lineno, _last_line(breach.node)}
    ignored = {rule for line in lines for rule in module.ignored.get(line, ())}
    return ANY_RULE in ignored or breach.rule.name in ignored


def _last_line(node: ast.expr | ast.stmt) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.lineno
    return node.end_lineno or node.lineno


def _unknown_rules(module: Module) -> Iterator[Finding]:
    for line, names in module.ignored.items():
        for name in sorted(names - _NAMES - {ANY_RULE}):
            yield Finding(
                file=module.path,
                line=line,
                column=1,
                rule=IGNORE.name,
                workflow="",
                message=f"{name!r} {IGNORE.why}",
                instead=IGNORE.instead,
            )
