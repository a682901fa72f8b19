"""What other settings would have decided from the same measurements."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from penstock.config import ConfigError, Pool
from penstock.config.explain import hint
from penstock.config.profiles import ProfileOverride
from penstock.decider.core.inputs import Rules
from penstock.decider.core.state import State
from penstock.decider.publishing.adopting import Adopted
from penstock.decider.replay.chain import Installed, Step
from penstock.decider.replay.entry import Entry
from penstock.decider.replay.recompute import Recomputer

MOST_SHOWN = 20
_LONGEST_STEP_SECONDS = 10.0
"""Between two rounds; a longer silence is no time in which workers were planned by anybody."""


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """One moment at which the numbers part, or come together again."""

    at: datetime
    recorded: int
    other: int
    reason: str


class Comparison(msgspec.Struct, kw_only=True):
    """A pool under both settings. ``rounds``: decided; ``unlike``: with another target.

    Worker-seconds are those planned. ``asides`` are the first moments of each difference.
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
        pools: by a pool's name, or a pattern such as ``*``. rules: for all pools.
    """

    pools: Mapping[str, ProfileOverride]
    rules: Mapping[str, Any]

    def over(self, was: Adopted) -> Adopted:
        """The settings of the time with the changes in their places."""
        return Adopted(
            {name: _changed(pool, self.pools) for name, pool in was.pools.items()},
            msgspec.structs.replace(was.rules, **self.rules),
        )

    def check(self, settings: Iterable[Adopted]) -> None:
        """Raises ConfigError where a name or pattern is that of no pool in any of the settings."""
        known = sorted({name for adopted in settings for name in adopted.pools})
        for pattern in self.pools:
            if not any(fnmatchcase(name, pattern) for name in known):
                raise ConfigError(
                    f"pools.{pattern}: no pool of this name is in this part of the log; "
                    f"{hint(pattern, known) if known else 'it has no settings of any pool'}"
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
    overrides = {pattern: _override(pattern, each) for pattern, each in pools.items()}
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
    ours, theirs = Recomputer(settings, installed), Recomputer(settings, installed, other.over)
    found: dict[str, Comparison] = {}
    last: tuple[datetime, State, State] | None = None
    for entry in entries:
        for one, two in _pairs(ours, theirs, entry):
            at = one.round.at
            if last is not None:
                _count_time(found, last, (at - last[0]).total_seconds())
            _count(found, one, two, pool)
            last = (at, one.outcome.state, two.outcome.state)
    return [found[name] for name in sorted(found)]


def _pairs(ours: Recomputer, theirs: Recomputer, entry: Entry) -> Iterator[tuple[Step, Step]]:
    one = [found for found in ours.take(entry) if isinstance(found, Step)]
    two = [found for found in theirs.take(entry) if isinstance(found, Step)]
    yield from zip(one, two, strict=False)


def _count(found: dict[str, Comparison], one: Step, two: Step, pool: str | None) -> None:
    for mine, yours in zip(one.outcome.decisions, two.outcome.decisions, strict=True):
        if pool not in (None, mine.pool):
            continue
        row = found.setdefault(mine.pool, Comparison(pool=mine.pool))
        row.rounds += 1
        row.recorded_actions += mine.target != mine.current
        row.other_actions += yours.target != yours.current
        changed = (mine.target - yours.target) != (mine.current - yours.current)
        if mine.target != yours.target:
            row.unlike += 1
        if changed and len(row.asides) < MOST_SHOWN:
            row.asides.append(
                Aside(
                    at=one.round.at,
                    recorded=mine.target,
                    other=yours.target,
                    reason=yours.reasons[-1].text,
                )
            )


def _count_time(
    found: dict[str, Comparison], last: tuple[datetime, State, State], seconds: float
) -> None:
    if not 0 <= seconds <= _LONGEST_STEP_SECONDS:
        return
    _, mine, yours = last
    for name, row in found.items():
        if name in mine.pools:  # else settings of later on have it no more
            row.recorded_worker_seconds += mine.pools[name].workers * seconds
            row.other_worker_seconds += yours.pools[name].workers * seconds


def _override(pattern: str, table: Mapping[str, Any]) -> ProfileOverride:
    try:
        return msgspec.convert(table, ProfileOverride, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"pools.{pattern}: {error}") from error


def _changed(pool: Pool, overrides: Mapping[str, ProfileOverride]) -> Pool:
    profile = pool.profile
    for pattern, override in overrides.items():
        if fnmatchcase(pool.name, pattern):
            profile = override.over(profile)
    return msgspec.structs.replace(pool, profile=profile)


def _checked(rules: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = msgspec.convert(rules, Rules, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"rules: {error}") from error
    return {name: getattr(found, name) for name in rules}


def _unknown(name: str) -> str:
    known = [f"decider.{rule}" for rule in Rules.__struct_fields__] + [
        f"pools.NAME.{setting}" for setting in ProfileOverride.__struct_fields__
    ]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "expected pools.NAME.SETTING"
    return f"{name} changes no decision; {hint}"
