"""`penstock config`: the settings in force, checked and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from penstock.cli.command import Group
from penstock.cli.config_in_force import diff, reload
from penstock.cli.config_remarks import check_strategies, judge
from penstock.cli.errors import WRONG_USE
from penstock.cli.output import write_json, write_line
from penstock.cli.scaling import measurements
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.load import dump
from penstock.config.masking import masked
from penstock.config.profiles import Pool
from penstock.config.topology import pools


@click.group(cls=Group, example="penstock config check")
def config() -> None:
    """Check and show settings; compare them with those of running services; reload."""


config.add_command(diff)
config.add_command(reload)


@config.command(example="penstock config check --config penstock.toml --strict")
@click.option("--strict", is_flag=True, help="Refuse settings with warnings, too.")
@click.option("--offline", is_flag=True, help="Do not read measurements from the broker.")
@click.option(
    "--no-import", is_flag=True, help="Do not import jobs.modules, where they are not installed."
)
@click.pass_context
def check(ctx: click.Context, strict: bool, offline: bool, no_import: bool) -> None:
    """Check the settings, the rules between pools, and whether promises can hold.

    The modules of jobs are imported, by a process of its own and for at most a minute: jobs that
    hooks and schedules name have to exist and to take their arguments.

    The latest measurements (start times, load, hosts) count where a broker can be reached. Exit
    code 2 if anything cannot work; policies.md lists the rules.
    """
    session: Session = ctx.obj
    settings = session.settings()
    configured = pools(settings)
    check_strategies(configured)
    measured = None if offline else measurements.read(session)
    findings = judge(settings, configured, measured, no_import=no_import)
    errors = [remark.text for remark in findings if remark.level == "error"]
    warnings = [remark.text for remark in findings if remark.level == "warning"]
    accepted = not (errors or (strict and warnings))
    if session.as_json:
        shown = [masked(msgspec.to_builtins(pool)) for pool in configured.values()]
        verdict = {"ok": accepted, "measured": measured is not None, "pools": shown}
        write_json({**verdict, "errors": errors, "warnings": warnings, "findings": findings})
    else:
        for remark in findings:
            write_line(f"{remark.level}: {remark.text}")
        write_line(_summary(settings, configured, accepted, len(errors), len(warnings)))
    if not accepted:
        ctx.exit(WRONG_USE)


def _summary(
    settings: Settings, configured: Mapping[str, Pool], accepted: bool, errors: int, warnings: int
) -> str:
    if not accepted:
        return f"refused: {errors} errors, {warnings} warnings"
    queues = f"{sum(len(pool.queues) for pool in configured.values())} queues"
    if elsewhere := sum(len(pool.source_queues) for pool in configured.values() if pool.source):
        queues = f"{queues}, {elsewhere} queues of other systems"
    return f"ok: {len(configured)} pools, {queues}, {len(settings.jobs.modules)} job modules"


@config.command(example="penstock config show --nats-url nats://127.0.0.1:4222")
@click.pass_obj
def show(session: Session) -> None:
    """Show every setting in force, as TOML; pools with their profile applied."""
    settings = session.settings()
    configured = pools(settings)
    tree: dict[str, Any] = json.loads(dump(settings))
    tree["pools"] = {name: _table(pool) for name, pool in configured.items()}
    if session.as_json:
        write_json(tree)
        return
    for name, value in _flat(tree):
        write_line(f"{name} = {json.dumps(value)}")


def _table(pool: Pool) -> dict[str, Any]:
    tree: dict[str, Any] = masked(msgspec.to_builtins(pool))
    tree.pop("name")
    tree["profile"]["policies"] = list(pool.profile.policies_in_force)
    return {**tree, **tree.pop("profile")}


def _flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        dotted = f"{above}.{name}" if above else name
        if isinstance(value, dict):
            yield from _flat(value, dotted)
        else:
            yield dotted, value
