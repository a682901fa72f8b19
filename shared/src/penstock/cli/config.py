"""`penstock config`: the settings in force, checked and shown."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from penstock.cli.command import Group
from penstock.cli.output import say, say_json
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.load import dump, masked
from penstock.config.settings import Pool
from penstock.config.topology import pools


@click.group(cls=Group, example="penstock config check")
def config() -> None:
    """Check and show the settings in force."""


@config.command(example="penstock config check --config penstock.toml")
@click.pass_obj
def check(session: Session) -> None:
    """Check the settings and the rules between pools; warn about what cannot work."""
    settings = session.settings()
    found = pools(settings)
    check_strategies(found)
    warned = list(warnings(settings))
    if session.as_json:
        shown = [masked(msgspec.to_builtins(pool)) for pool in found.values()]
        say_json({"ok": True, "pools": shown, "warnings": warned})
        return
    for text in warned:
        say(f"warning: {text}")
    queues = sum(len(pool.queues) for pool in found.values())
    say(f"ok: {len(found)} pools, {queues} queues, {len(settings.jobs.modules)} job modules")


@config.command(example="penstock config show --nats-url nats://127.0.0.1:4222")
@click.pass_obj
def show(session: Session) -> None:
    """Show every setting in force, as TOML; pools with their profile worked out."""
    settings = session.settings()
    found = pools(settings)
    tree: dict[str, Any] = json.loads(dump(settings))
    tree["pools"] = {name: _table(pool) for name, pool in found.items()}
    if session.as_json:
        say_json(tree)
        return
    for name, value in _flat(tree):
        say(f"{name} = {json.dumps(value)}")


def check_strategies(found: Mapping[str, Pool]) -> None:
    """Each pool's strategy is installed and takes its options; where the decider is, it knows.

    Raises:
        ConfigError.
    """
    if importlib.util.find_spec("penstock.decider") is None:
        return
    from penstock.decider import plugins  # noqa: PLC0415 - keeps `--help` quick
    from penstock.decider.core import registry  # noqa: PLC0415

    registry.check(found, plugins.strategies())


def warnings(settings: Settings) -> Iterator[str]:
    """What is allowed but will not do what was hoped for, as sentences."""
    if not settings.pools:
        yield "there is no pool, so nothing runs; add a table [pools.NAME]"
    if not settings.jobs.modules:
        yield "jobs.modules is empty, so workers can run no job; name the modules of your jobs"
    for module in settings.jobs.modules:
        if not _importable(module):
            yield f"jobs.modules: {module!r} cannot be imported from here"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _table(pool: Pool) -> dict[str, Any]:
    tree: dict[str, Any] = masked(msgspec.to_builtins(pool))
    tree.pop("name")
    return {**tree, **tree.pop("profile")}


def _flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        dotted = f"{above}.{name}" if above else name
        if isinstance(value, dict):
            yield from _flat(value, dotted)
        else:
            yield dotted, value
