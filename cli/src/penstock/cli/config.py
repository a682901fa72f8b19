"""`penstock config`: the settings in force, checked and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from penstock.cli.command import Group
from penstock.cli.config_in_force import diff, reload
from penstock.cli.errors import WRONG_USE
from penstock.cli.installed import is_importable
from penstock.cli.output import write_json, write_line
from penstock.cli.scaling import measurements
from penstock.cli.scaling.measurements import Measured
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.load import dump
from penstock.config.masking import masked
from penstock.config.profiles import Pool
from penstock.config.serving import serving
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
    findings = [
        *remarks(settings),
        *([] if no_import else _job_remarks(settings)),
        *lint(settings, configured, measured),
    ]
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
    queues = sum(len(pool.queues) for pool in configured.values())
    return f"ok: {len(configured)} pools, {queues} queues, {len(settings.jobs.modules)} job modules"


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


def check_strategies(configured: Mapping[str, Pool]) -> None:
    """Checks that each pool's strategy and policies are installed and accept their options.

    Where the decider is not installed, nothing is checked.

    Raises:
        ConfigError: names the pool and the option.
    """
    if not is_importable("penstock.decider"):
        return
    from penstock.decider import plugins  # noqa: PLC0415 - keeps `--help` quick
    from penstock.decider.core import registry  # noqa: PLC0415
    from penstock.decider.core.policies import shipped  # noqa: PLC0415

    registry.check(configured, plugins.strategies())
    shipped.check(configured, plugins.policies())


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in the settings; ``level`` is ``error`` where they cannot work, else ``warning``."""

    rule: str
    level: str
    text: str


def lint(
    settings: Settings, configured: Mapping[str, Pool], measured: Measured | None = None
) -> Iterator[Remark]:
    """The findings of the decider's linter; none where the decider is not installed."""
    if not is_importable("penstock.decider"):
        return
    from penstock.decider.core.lint import check as linter  # noqa: PLC0415
    from penstock.decider.core.lint.facts import Facts  # noqa: PLC0415

    measured = measured or Measured()
    facts = Facts(
        settings=settings,
        pools=configured,
        measured_pools=measured.pools,
        measured_hosts=measured.hosts,
    )
    for finding in linter.lint(facts):
        yield Remark(rule=finding.rule, level=finding.level, text=finding.text)


def remarks(settings: Settings) -> Iterator[Remark]:
    """Settings that are allowed but will not have the effect that was hoped for."""
    if not settings.pools:
        yield _warning("no-pool", "there is no pool, so nothing runs; add a table [pools.NAME]")
    if not settings.jobs.modules:
        text = "jobs.modules is empty, so workers can run no job; name the modules of your jobs"
        yield _warning("no-module", text)
    yield from _hook_remarks(settings)
    from penstock.jobs.errors import BadSchedule  # noqa: PLC0415 - keeps `--help` quick
    from penstock.jobs.schedules.declaration import in_settings  # noqa: PLC0415

    try:
        in_settings(settings)
    except BadSchedule as error:
        yield Remark(rule="bad-schedule", level="error", text=str(error))


def _job_remarks(settings: Settings) -> Iterator[Remark]:
    """Those that take an import of the job modules."""
    from penstock.cli import declared_jobs  # noqa: PLC0415 - keeps `--help` quick

    for text in declared_jobs.faults(settings):
        rule = "unknown-module" if text.startswith("jobs.modules") else "bad-call"
        yield Remark(rule=rule, level="error", text=text)


def _hook_remarks(settings: Settings) -> Iterator[Remark]:
    """Queues and commands; a command may be installed on the orchestrator's machine alone."""
    served = serving(settings)
    tables = {f"hooks.{name}": hook.queue for name, hook in settings.hooks.items()}
    tables |= {f"schedules.{name}": one.queue for name, one in settings.schedules.items()}
    for table, queue in tables.items():
        if queue and served.is_known and (reason := served.why_not(queue)):
            yield _warning("unserved-queue", f"{table}: queue {queue!r}: {reason}")
    for name, hook in settings.hooks.items():
        if hook.command and shutil.which(hook.command[0]) is None:
            text = f"hooks.{name}: command {hook.command[0]!r} cannot be run on this machine"
            yield _warning("unknown-command", text)


def _warning(rule: str, text: str) -> Remark:
    return Remark(rule=rule, level="warning", text=text)


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
