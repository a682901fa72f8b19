"""What is wrong with settings that can be read: for `config check`, `config reload` and `up`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

import msgspec

from penstock.cli.installed import is_importable
from penstock.cli.scaling.measurements import Measured
from penstock.config import Settings, foreign_presets
from penstock.config.profiles import Pool
from penstock.config.serving import serving
from penstock.config.source_patterns import is_pattern


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in the settings; ``level`` is ``error`` where they cannot work, else ``warning``."""

    rule: str
    level: str
    text: str


def judge(
    settings: Settings,
    configured: Mapping[str, Pool],
    measured: Measured | None = None,
    *,
    no_import: bool = False,
) -> list[Remark]:
    """All findings.

    Args:
        configured: the pools of the settings.
        measured: load, start times and hosts; None where they are not known.
        no_import: leaves the jobs of hooks and schedules unjudged.
    """
    return [
        *remarks(settings),
        *_source_remarks(settings, configured),
        *_command_remarks(configured),
        *([] if no_import else _job_remarks(settings)),
        *lint(settings, configured, measured),
    ]


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
    has_own = any(not table.command for table in settings.pools.values())
    if not settings.jobs.modules and (has_own or not settings.pools):
        text = "jobs.modules is empty, so workers can run no job; name the modules of your jobs"
        yield _warning("no-module", text)
    yield from _hook_remarks(settings)
    from penstock.jobs.errors import BadSchedule  # noqa: PLC0415 - keeps `--help` quick
    from penstock.jobs.schedules.declaration import in_settings  # noqa: PLC0415

    try:
        in_settings(settings)
    except BadSchedule as error:
        yield Remark(rule="bad-schedule", level="error", text=str(error))


def _source_remarks(settings: Settings, configured: Mapping[str, Pool]) -> Iterator[Remark]:
    """Of other systems' queues; none where the metrics service is not installed."""
    if not (settings.sources and is_importable("penstock.metrics")):
        return
    from penstock.metrics.sources import registry  # noqa: PLC0415 - keeps `--help` quick

    errors = list(registry.faults(settings, configured))
    for text in errors:
        yield Remark(rule="bad-source", level="error", text=text)
    for text in () if errors else registry.doubts(settings, configured):
        yield _warning("coarse-source", text)
    # The metrics service may run on another machine, so none of these is an error.
    for name, table in settings.sources.items():
        if not errors and (fault := registry.library_fault(name, table)):
            yield _warning("missing-library", f"{fault}, where the metrics service runs")
        if fault := registry.secret_fault(name, table):
            yield _warning("unreadable-secret", f"{fault}; the metrics service needs it")
        if table.command and shutil.which(table.command[0]) is None:
            yield _warning("unknown-command", _cannot_run(f"sources.{name}", table.command[0]))


def _command_remarks(configured: Mapping[str, Pool]) -> Iterator[Remark]:
    """Of commands of other systems' consumers; they may be installed on the hosts alone."""
    for name, pool in configured.items():
        if pool.command and shutil.which(pool.command[0]) is None:
            yield _warning("unknown-command", _cannot_run(f"pools.{name}", pool.command[0]))
        for fault in foreign_presets.faults(pool.preset, pool.command, _usage(pool)):
            yield _warning("command-flags", f"pools.{name}: {fault}")


def _usage(pool: Pool) -> foreign_presets.Usage:
    preset = foreign_presets.PRESETS.get(pool.preset)
    has_patterns = any(is_pattern(name) for name in pool.source_queues)
    return foreign_presets.Usage(
        slots=pool.slots,
        drain_seconds=pool.drain.seconds,
        awaits_sign=preset is not None and pool.ready == preset.ready,
        queues=len(pool.source_queues),
        queue_names=() if has_patterns else pool.source_queues,
    )


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
            yield _warning("unknown-command", _cannot_run(f"hooks.{name}", hook.command[0]))


def _cannot_run(table: str, program: str) -> str:
    return f"{table}: command {program!r} cannot be run on this machine"


def _warning(rule: str, text: str) -> Remark:
    return Remark(rule=rule, level="warning", text=text)
