"""Whatever stands in the file or the environment: settings, or an error that says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Settings, load
from penstock.config.load import ConfigError, check
from penstock.config.topology import pools

_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Settings())
_TABLES = sorted(_DEFAULTS)
_KEYS = sorted({key for table in _DEFAULTS.values() if isinstance(table, dict) for key in table})
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**63, 10**400]),
    st.sampled_from([0.0, -1.0, 1e308, float("inf"), float("nan")]),
    st.sampled_from(["", "sc://", "a b", "*.>", "\x00", "x" * 2000, "é"]),
)
_names = st.sampled_from([*_KEYS, *_TABLES, "", "pools.work", "__", "Ä"])
_values = st.recursive(
    _leaves,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(_names, below, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(_TABLES), _values, max_size=4))
def test_any_tree_is_settings_or_an_error(tree: dict[str, Any]) -> None:
    usable_or_refused(lambda: pools(check(tree)))


@given(st.dictionaries(_names.map("PENSTOCK_{}".format), st.text(max_size=40), max_size=4))
def test_any_environment_is_settings_or_an_error(environment: dict[str, str]) -> None:
    usable_or_refused(lambda: load(environment=environment))


@given(st.binary(max_size=80))
def test_any_file_is_settings_or_an_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "penstock.toml")
        file.write_bytes(content)
        usable_or_refused(lambda: load(file, environment={}))


_BREAKING = ["[" * 5000, "9" * 5000, "1e999", '"' * 3]


@pytest.mark.parametrize("text", _BREAKING)
def test_a_file_made_to_break_the_reader_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "penstock.toml").write_text(f"a = {text}")
    with pytest.raises(ConfigError):
        load(tmp_path / "penstock.toml", environment={})


@pytest.mark.parametrize("text", _BREAKING)
def test_a_variable_made_to_break_the_reader_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        load(environment={"PENSTOCK_JOBS__CLAIM_SECONDS": text})


def usable_or_refused(read: Any) -> None:
    try:
        read()
    except ConfigError as error:
        assert str(error)
