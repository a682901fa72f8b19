"""Strategies of installed packages: found by their entry points; what is wrong harms nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.decider import plugins
from penstock.decider.core.registry import BUILTIN

MODULE = """
class Mine:
    def demand(self, inputs): ...

mine = Mine()

class NoDemand: ...

class BadOptions(Mine):
    options = {"per_worker": 3}

class Raises(Mine):
    def __init__(self):
        raise OSError("no licence")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a distribution with these entry points on the path, as pip would."""

    def put(**points: str) -> None:
        (tmp_path / "others.py").write_text(MODULE)
        info = tmp_path / "others-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        lines = [f"{name} = others:{where}" for name, where in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{plugins.GROUP}]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)

    return put


def test_a_class_and_an_instance_are_found_beside_those_that_ship(install) -> None:
    install(mine="Mine", same="mine")
    assert set(plugins.strategies()) == {*BUILTIN, "mine", "same"}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("Nowhere", "AttributeError"),
        ("NoDemand", "has no method 'demand'"),
        ("BadOptions", "expected a msgspec.Struct type"),
        ("Raises", "no licence"),
    ],
)
def test_one_that_cannot_be_used_is_reported_and_left_out(install, caplog, where, said) -> None:
    install(mine="Mine", other=where)
    assert set(plugins.strategies()) == {*BUILTIN, "mine"}
    assert said in caplog.text
    assert "strategy other (others:" in caplog.text


@pytest.mark.parametrize("name", ["hybrid", "combined"])
def test_one_of_the_same_name_takes_the_place_of_one_that_ships(install, caplog, name) -> None:
    install(**{name: "Mine"})
    assert type(plugins.strategies()[name]).__name__ == "Mine"
    assert f"strategy {name} of others:Mine replaces the one that ships" in caplog.text


def test_one_that_is_installed_can_be_mixed(install) -> None:
    install(mine="Mine")
    combined = plugins.strategies()["combined"]
    assert combined.options(weights={"mine": 1.0}).weights == {"mine": 1.0}
