"""Generated settings: every setting that decides, as a file, variables, flags or Python say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import msgspec
from hypothesis import strategies as st
from tests.exactness import values

from penstock.config import ConfigError, Settings, explain, load
from penstock.config.load import check
from penstock.config.profiles import PROFILES, PoolTable, ProfileOverride
from penstock.decider import app, plugins
from penstock.decider.core import options
from penstock.decider.core.inputs import Rules
from penstock.decider.publishing.adopting import Adopted

STRATEGIES, POLICIES = plugins.strategies(), plugins.policies()
POOLS = ("mails", "reports", "ledger", "tasks")
OWN_PROFILE = "own"
SECTIONS = ("decider", "host")
"""Those with settings that become rules of the decider."""
Border = Callable[[Mapping[str, Any]], Settings]


def _table_of(owner: object) -> values.Values:
    kind = options.declared(owner)
    return st.just({}) if kind is None else values.table(kind, {"weights": _weights})


def _tables_of(owners: Mapping[str, object]) -> values.Values:
    """Settings of strategies or policies, each table drawn from what its owner declares."""
    names = sorted(name for name, owner in owners.items() if options.declared(owner) is not None)
    tables = {name: _table_of(owners[name]) for name in names}
    return st.lists(st.sampled_from(names), max_size=3, unique=True).flatmap(
        lambda some: st.fixed_dictionaries({name: tables[name] for name in some})
    )


def _without_defaults(owner: object) -> bool:
    kind = options.declared(owner)
    try:
        return kind is not None and not msgspec.convert({}, kind)
    except msgspec.ValidationError:
        return True


_DEMANDING = {
    name for name, owner in {**STRATEGIES, **POLICIES}.items() if _without_defaults(owner)
}
"""Strategies and policies that nobody can choose without settings."""


def _weights() -> values.Values:
    """Of `combined`: by strategy."""
    weight = st.one_of(st.integers(1, 5), st.floats(0.1, 5))
    names = sorted(STRATEGIES.keys() - {"combined"})
    return st.dictionaries(st.sampled_from(names), weight, min_size=1, max_size=3)


SPECIAL: values.Special = {
    "strategy": lambda: st.sampled_from(sorted(STRATEGIES)),
    "options": lambda: _tables_of(STRATEGIES),
    "policies": lambda: st.lists(st.sampled_from(sorted(POLICIES)), max_size=5, unique=True),
    "policy_options": lambda: _tables_of(POLICIES),
    "middleware": lambda: st.just([]),
}
_PROFILE_TABLES = values.table(ProfileOverride, SPECIAL)
_OF_CONSUMERS = frozenset(
    {
        "source",
        "preset",
        "command",
        "ready",
        "ready_seconds",
        "drain",
        "runtime_seconds",
        "environment",
    }
)
"""How consumers of other systems are run: no decision depends on it, and few values are allowed."""
_POOL_TABLES = values.table(
    PoolTable,
    SPECIAL,
    _OF_CONSUMERS | {"kind", "queues", "priorities", "profile", "serves"},
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Tables as `penstock.toml` has them."""
    tree: dict[str, Any] = {"cluster": {"master": "local"}, "profiles": {}, "pools": {}}
    for section in SECTIONS:
        tree[section] = draw(_rules_of(section))
    if draw(st.booleans()):
        tree["profiles"] = {OWN_PROFILE: _ordered(draw(_PROFILE_TABLES), {})}
    if draw(st.booleans()):
        tree["pipeline"] = {"lake": "lake"}  # adds a pool by itself
    for name in POOLS[: draw(st.integers(1, len(POOLS)))]:
        tree["pools"][name] = draw(_pools(name, tree))
    return tree


@st.composite
def _pools(draw: st.DrawFn, name: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """A pool that the rules of a topology permit, as far as types cannot say them."""
    kind = draw(st.sampled_from(["queue", "queue", "group", "exclusive", "spark"]))
    known = [*PROFILES, *tree["profiles"]]
    table = {"kind": kind, "profile": draw(st.sampled_from(known)), **draw(_POOL_TABLES)}
    below = msgspec.structs.asdict(PROFILES.get(table["profile"], PROFILES["balanced"]))
    below |= tree["profiles"].get(table["profile"], {})
    _ordered(table, below)
    for owners, chosen, tables in (
        (STRATEGIES, [table.get("strategy", below["strategy"])], "options"),
        (POLICIES, table.get("policies", ()), "policy_options"),
    ):
        for owner in chosen:
            if owner in _DEMANDING:
                table.setdefault(tables, {}).setdefault(owner, draw(_table_of(owners[owner])))
    if kind == "group":
        table["queues"] = [f"{name}-1", f"{name}-2"]
        table["scalable"] = True
    if kind in ("queue", "group"):
        table["priorities"] = draw(st.booleans())
    if kind == "spark":
        table["serves"] = [
            served
            for served, other in tree["pools"].items()
            if other["kind"] != "spark" and other.get("slots", 1) == 1
        ]
    if kind == "exclusive":
        table["slots"] = 1
    if kind == "exclusive" or not table.get("scalable", below["scalable"]):
        workers = draw(st.integers(1, 5))
        table |= {"min_workers": workers, "max_workers": workers}
    return table


def _ordered(table: dict[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """With bounds the right way round."""
    least = table.get("min_workers", below.get("min_workers", 1))
    most = table.get("max_workers", below.get("max_workers", 10))
    if least > most:
        table["min_workers"], table["max_workers"] = most, least
    return table


def _rules_of(section: str) -> values.Values:
    """The settings of a section that become rules of the decider."""
    kind = type(getattr(Settings(), section))
    others = frozenset(kind.__struct_fields__) - frozenset(Rules.__struct_fields__)
    return values.table(kind, without=others)


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Settings that came over any border."""
    tree, border = draw(trees()), draw(st.sampled_from(BORDERS))
    try:
        return border(tree)
    except ConfigError as error:
        hypothesis.event(f"refused: {error}")
        hypothesis.reject()


def adopted(found: Settings) -> Adopted:
    """What the decider makes of them when it starts; combinations that it refuses are left out."""
    try:
        return app.adopted(found, STRATEGIES, POLICIES)
    except ConfigError as error:
        hypothesis.event(f"refused: {error}")
        hypothesis.reject()


# --- borders --------------------------------------------------------------------------------------
def from_tables(tree: Mapping[str, Any]) -> Settings:
    """A file."""
    return check(tree)


def from_flags(tree: Mapping[str, Any]) -> Settings:
    """`--set`, one value each."""
    return load(environment={"PENSTOCK_CONFIG": "/dev/null"}, flags=dict(_leaves(tree)))


def from_environment(tree: Mapping[str, Any]) -> Settings:
    variables = {
        f"PENSTOCK_{path.replace('.', '__').upper()}": _as_variable(path, value)
        for path, value in _leaves(tree)
    }
    return load(environment={"PENSTOCK_CONFIG": "/dev/null", **variables})


def from_python(tree: Mapping[str, Any]) -> Settings:
    """Constructors, which check and convert nothing themselves."""
    return Settings(
        pools={name: _construct(PoolTable, table) for name, table in tree["pools"].items()},
        profiles={
            name: _construct(ProfileOverride, table) for name, table in tree["profiles"].items()
        },
        **{
            section: _construct(type(getattr(Settings(), section)), tree[section])
            for section in (*SECTIONS, "cluster")
        },
    )


BORDERS: tuple[Border, ...] = (from_tables, from_flags, from_environment, from_python)


def _construct(kind: type[msgspec.Struct], table: Mapping[str, Any]) -> Any:
    tuples = {
        field.name
        for field in msgspec.structs.fields(kind)
        if "tuple" in str(field.type) and isinstance(table.get(field.name), list)
    }
    return kind(**{n: tuple(v) if n in tuples else v for n, v in table.items()})


def _leaves(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        path = f"{above}.{name}" if above else name
        if isinstance(value, dict) and value:
            leaves += _leaves(value, path)
        else:
            leaves.append((path, value))
    return leaves


def _as_variable(path: str, value: Any) -> str:
    return value if explain.takes_text(path.split(".")) else _as_toml(value)


def _as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_as_toml, value))}]"
    if isinstance(value, dict):
        return "{}"
    return json.dumps(value) if isinstance(value, str) else str(value)
