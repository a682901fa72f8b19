"""`penstock workflow check`: definitions, and the source of coded workflows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.command import Command
from penstock.cli.config_remarks import check_strategies
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import write_json, write_line
from penstock.cli.session import Session
from penstock.cli.workflows import definition
from penstock.cli.workflows.lint import findings
from penstock.cli.workflows.lint.source import Module, modules
from penstock.config.topology import pools

_DEFINITIONS = (".toml", ".json")


@click.command(
    cls=Command,
    example="penstock workflow check shop.orders\n"
    "penstock workflow check shop.orders:fulfil src/billing.py\n"
    "penstock workflow check orders.toml",
)
@click.argument("targets", nargs=-1, metavar="[TARGET]…")
@click.pass_obj
def check(session: Session, targets: tuple[str, ...]) -> None:
    """Check the source of coded workflows, or declared definitions; without a broker.

    TARGET is a module, one of its functions, a .py file or a folder; by default the modules of
    jobs.modules. Nothing of them is imported. What would not be the same each time that a workflow
    runs from its top is named by file and line, with what the context has instead: sleep, clock,
    random, environment, network, files, process, thread, global, closure, captured, await,
    unawaited, option, order. A warning, which may be meant: endless, undo.
    The comment '# penstock: ignore[clock]' on a line ignores that rule there.

    A TARGET in TOML or JSON is a definition: it is checked with its calls. Functions of
    jobs.modules are checked with their arguments; of others only that their queue is named.
    Workflows that are steps of others are looked for among the files.

    Exit code 0: nothing is wrong, but for warnings. 1: something is. 2: there is no such target, or
    the settings cannot be used.
    """
    check_strategies(pools(session.settings()))
    files = [target for target in targets if Path(target).suffix.lower() in _DEFINITIONS]
    if files and len(files) < len(targets):
        raise Refused("check definitions and source code by two calls")
    if files:
        definition.check(session, [_file(file) for file in files])
    else:
        _check_source(session, targets)


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise Refused(f"{name}: no such file")
    return path


def _check_source(session: Session, targets: Sequence[str]) -> None:
    targets = targets or session.settings().jobs.modules
    if not targets:
        raise Refused("name a module, a file or a definition; jobs.modules names none")
    reports = [_report(target) for target in targets]
    places = sorted({place for report in reports for place in report.findings})
    count = sum(report.workflows for report in reports)
    if session.as_json:
        write_json(findings.Report(workflows=count, findings=tuple(places)))
    else:
        for place in places:
            write_line(str(place))
    if not count:
        raise Refused(f"{', '.join(targets)}: no function there is marked with @workflow")
    summary = f"{count} workflow{'' if count == 1 else 's'}"
    warnings = sum(place.is_warning for place in places)
    wrong = len(places) - warnings
    also = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if wrong:
        raise Failed(f"{summary}: {wrong} place{'' if wrong == 1 else 's'} to mend{also}")
    if not session.as_json:
        write_line(f"{summary}, nothing is wrong{also}")


def _report(target: str) -> findings.Report:
    sources: list[Module]
    sources, function = modules(target)
    report = findings.check(sources, function)
    if function and not report.workflows:
        raise Refused(f"{target}: the module has no workflow of this name")
    return report
