"""What a decider works with is what a replay reads: settings, memories, and which program it is."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from tests.unit.decider.given import NOW, inputs, pool, snapshot, state

from penstock.config import ConfigError
from penstock.decider import program
from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Rules
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.strategy import Demand, StrategyInputs, ask
from penstock.decider.publishing.adopting import adopt, gather, records


def test_settings_of_strategies_have_the_types_that_these_declare():
    whole, broken = (
        pool(strategy="deadline", options={"deadline": {"change_seconds": seconds}})
        for seconds in (3, 3.0)
    )
    one, other = (adopt({"a": each}, Rules(), BUILTIN, SHIPPED) for each in (whole, broken))
    assert repr(one) == repr(other)
    assert records(one.pools, one.rules)[0].fingerprint == (
        records(other.pools, other.rules)[0].fingerprint
    )


def test_what_is_adopted_is_adopted_again_as_it_is():
    weights = {"wait_time": 1, "hybrid": 2}
    first = adopt(
        {"b": pool("b", strategy="combined", options={"combined": {"weights": weights}})},
        Rules(stale_seconds=4),
        BUILTIN,
        SHIPPED,
    )
    again = adopt(first.pools, first.rules, BUILTIN, SHIPPED)
    assert repr(again) == repr(first)


@pytest.mark.parametrize("former", ["aggressive", "moderate", "hint"])
def test_a_record_of_an_earlier_version_is_read_with_its_word_for_forecasts(former: str) -> None:
    (event,) = records({"a": pool("a")}, Rules())
    one = event.pools["a"]
    old = {**one, "profile": {**one["profile"], "forecast": former}}
    found = gather([msgspec.structs.replace(event, pools={"a": old})])
    assert found[event.fingerprint].pools["a"].profile.forecast == "on"


def test_rules_that_no_record_can_hold_are_refused():
    with pytest.raises(ConfigError, match="cannot be recorded and read again"):
        adopt({}, Rules(stale_seconds=math.nan), BUILTIN, SHIPPED)


class Forgetful:
    """Remembers what JSON has no word for."""

    name = "forgetful"

    def demand(self, inputs: StrategyInputs) -> Demand:
        memory = {"pair": (1, 2), "number": math.nan}
        return ask(self.name, 1, repr(dict(inputs.memory)), memory=memory)


def test_a_strategy_remembers_what_a_replay_would_read():
    given = inputs(
        [pool(strategy="forgetful")], [snapshot()], strategies={"forgetful": Forgetful()}
    )
    first = decide(state(), given, NOW)
    second = decide(first.state, given, NOW + 0.1)
    assert "{'pair': [1, 2], 'number': None}" in second.decisions[0].reasons[0].text


# --- the program ----------------------------------------------------------------------------------
def test_the_fingerprint_covers_every_module_that_the_core_imports():
    covered = {path for module in program.COVERED for path in program.sources(module)}
    imported = dict(_imported())
    assert "penstock.config.profiles" in imported
    assert {module for module, path in imported.items() if path not in covered} == set()


def _imported() -> Iterator[tuple[str, Path]]:
    """Our modules that deciding, and the reading of settings, import, however far."""
    waiting = [
        "penstock.decider.core",
        "penstock.decider.publishing.adopting",
        "penstock.config.topology",
    ]
    seen: set[Path] = set()
    while waiting:
        module = waiting.pop()
        for path in program.sources(module):
            if path in seen or path.suffix != ".py":
                continue
            seen.add(path)
            yield module, path
            waiting += _imports_of(path)


def _imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock"):
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if _is_module(below) else str(node.module)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution with a strategy in a package of two modules."""
    package = tmp_path / "exact_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "strategy.py").write_text("class Mine: pass\n")
    (package / "figures.py").write_text("MOST = 1\n")
    info = tmp_path / "exact_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: exact-plugin\nVersion: 1.2\n")
    points = "[penstock.strategies]\nmine = exact_plugin.strategy:Mine\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    program.program.cache_clear()


def test_the_program_is_another_one_when_the_content_of_a_plug_in_is(installed: Path):
    program.program.cache_clear()
    before = program.program()
    (installed / "figures.py").write_text("MOST = 2\n")
    program.program.cache_clear()
    after = program.program()
    assert before != after
    assert before.partition("mine@1.2+")[0] == after.partition("mine@1.2+")[0]
