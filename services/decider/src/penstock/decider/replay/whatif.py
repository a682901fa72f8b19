"""The decisions that other settings would have made from the same measurements."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from penstock.bus.saved_log import Entry
from penstock.config import ConfigError, Pool
from penstock.config.explain import explain, hint
from penstock.config.load import nested
from penstock.config.profiles import ProfileOverride
from penstock.config.topology import check_bounds
from penstock.decider.core import registry
from penstock.decider.core.inputs import Rules
from penstock.decider.core.options import check_name
from penstock.decider.core.policies import shipped
from penstock.decider.core.state import State
from penstock.decider.publishing.adopting import Adopted
from penstock.decider.replay.chain import Installed, Step
from penstock.decider.replay.recompute import Recomputer

MOST_SHOWN = 20
_LONGEST_STEP_SECONDS = 10.0
"""Between two rounds; during a longer silence no leader planned any workers."""


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which the numbers part, or meet again."""

    at: datetime
    recorded: int
    other: int
    reason: str


class Comparison(msgspec.Struct, kw_only=True):
    """A pool under both settings. Worker-seconds are those planned.

    Attributes:
        pool: its name.
        rounds: decided.
        unlike: rounds with another target.
        recorded_worker_seconds: under the recorded settings.
        other_worker_seconds: under the others.
        recorded_actions: changes of the plan under the recorded settings.
        other_actions: under the others.
        asides: the first moments at which the numbers part or meet.
    """

    pool: str
    rounds: int = 0
    unlike: int = 0
    recorded_worker_seconds: float = 0.0
    other_worker_seconds: float = 0.0
    recorded_actions: int = 0
    other_actions: int = 0
    asides: list[Aside] = []


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Settings laid over those of the time.

    Attributes:
        pools: by a pool's name, or a pattern such as ``*``.
        rules: for all pools.
    """

    pools: Mapping[str, ProfileOverride]
    rules: Mapping[str, Any]

    def over(self, was: Adopted) -> Adopted:
        """The settings of the time with the changes in their places."""
        return Adopted(
            {name: _changed(pool, self.pools) for name, pool in was.pools.items()},
            msgspec.structs.replace(was.rules, **self.rules),
            was.orders,
        )

    def applied(self, was: Adopted, installed: Installed) -> Adopted:
        """The same, for settings that a decider could work with. Raises ConfigError for others."""
        self.check([was])
        changed = self.over(was)
        registry.check(changed.pools, installed.strategies)
        shipped.check(changed.pools, installed.policies)
        for pool in changed.pools.values():
            check_bounds(pool)
        return changed

    def check(self, settings: Iterable[Adopted]) -> None:
        """Raises ConfigError where a name or pattern is that of no pool in any of the settings."""
        pools = sorted({name for adopted in settings for name in adopted.pools})
        for pattern in self.pools:
            if not any(fnmatchcase(name, pattern) for name in pools):
                raise ConfigError(
                    f"pools.{pattern}: no pool of this name is in this part of the log; "
                    f"{hint(pattern, pools) if pools else 'it has no settings of any pool'}"
                )


def change(assignments: Mapping[str, Any]) -> Change:
    """Reads what is to be changed.

    Args:
        assignments: ``pools.NAME.SETTING`` (NAME may be a pattern such as ``*``) or a rule's name
            as `penstock.toml` has it, e.g. ``decider.placement``.

    Raises:
        ConfigError: a name that means nothing, or a value that does not fit.
    """
    pools, rules = dict[str, dict[str, Any]](), dict[str, Any]()
    for name, value in assignments.items():
        table, _, rest = name.partition(".")
        if table == "pools" and "." in rest:
            pattern, _, setting = rest.partition(".")
            pools.setdefault(pattern, {})[setting] = value
        elif table in ("decider", "host") and rest in Rules.__struct_fields__:
            rules[rest] = value
        else:
            raise ConfigError(_unknown(name))
    overrides = {pattern: _override(pattern, table) for pattern, table in pools.items()}
    return Change(pools=overrides, rules=_checked(rules))


def compare(
    entries: Iterable[Entry],
    settings: Mapping[str, Adopted],
    installed: Installed,
    other: Change,
    pool: str | None = None,
) -> list[Comparison]:
    """Both settings side by side over the same log, by pool.

    Each decision changes the state that the next one starts from; the queues stay as recorded.

    Raises:
        ConfigError: a change of a pool that is not in the log.
    """
    other.check(settings.values())
    recorded = Recomputer(settings, installed)
    changed = Recomputer(settings, installed, other.over)
    rows: dict[str, Comparison] = {}
    last: tuple[datetime, State, State] | None = None
    for entry in entries:
        for one, two in _pairs(recorded, changed, entry):
            at = one.round.at
            if last is not None:
                _count_time(rows, last, (at - last[0]).total_seconds())
            _count(rows, one, two, pool)
            last = (at, one.outcome.state, two.outcome.state)
    return [rows[name] for name in sorted(rows)]


def _pairs(recorded: Recomputer, changed: Recomputer, entry: Entry) -> Iterator[tuple[Step, Step]]:
    one = [step for step in recorded.take(entry) if isinstance(step, Step)]
    two = [step for step in changed.take(entry) if isinstance(step, Step)]
    yield from zip(one, two, strict=False)


def _count(rows: dict[str, Comparison], one: Step, two: Step, pool: str | None) -> None:
    for recorded, other in zip(one.outcome.decisions, two.outcome.decisions, strict=True):
        if pool not in (None, recorded.pool):
            continue
        row = rows.setdefault(recorded.pool, Comparison(pool=recorded.pool))
        row.rounds += 1
        row.recorded_actions += recorded.target != recorded.current
        row.other_actions += other.target != other.current
        changed = (recorded.target - other.target) != (recorded.current - other.current)
        if recorded.target != other.target:
            row.unlike += 1
        if changed and len(row.asides) < MOST_SHOWN:
            row.asides.append(
                Aside(
                    at=one.round.at,
                    recorded=recorded.target,
                    other=other.target,
                    reason=other.reasons[-1].text,
                )
            )


def _count_time(
    rows: dict[str, Comparison], last: tuple[datetime, State, State], seconds: float
) -> None:
    if not 0 <= seconds <= _LONGEST_STEP_SECONDS:
        return
    _, recorded, other = last
    for name, row in rows.items():
        if name in recorded.pools:  # a pool may have left the settings meanwhile
            row.recorded_worker_seconds += recorded.pools[name].workers * seconds
            row.other_worker_seconds += other.pools[name].workers * seconds


def _override(pattern: str, table: Mapping[str, Any]) -> ProfileOverride:
    tree = nested(table)
    for name in table:
        check_name(name, registry.BUILTIN)
    try:
        return msgspec.convert(tree, ProfileOverride, strict=False)
    except msgspec.ValidationError as error:
        text = explain(str(error), tree, {}, root=ProfileOverride, above=("pools", pattern))
        raise ConfigError(text) from error


def _changed(pool: Pool, overrides: Mapping[str, ProfileOverride]) -> Pool:
    profile = pool.profile
    for pattern, override in overrides.items():
        if fnmatchcase(pool.name, pattern):
            profile = override.over(profile)
    return msgspec.structs.replace(pool, profile=profile)


def _checked(rules: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = msgspec.convert(rules, Rules, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"rules: {error}") from error
    return {name: getattr(checked, name) for name in rules}


def _unknown(name: str) -> str:
    settable = [f"decider.{rule}" for rule in Rules.__struct_fields__] + [
        f"pools.NAME.{setting}" for setting in ProfileOverride.__struct_fields__
    ]
    near = difflib.get_close_matches(name, settable, n=1)
    hint = f"did you mean {near[0]}?" if near else "expected pools.NAME.SETTING"
    return f"{name} changes no decision; {hint}"
