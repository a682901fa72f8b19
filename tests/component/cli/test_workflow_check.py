"""`penstock workflow check`: definitions, without a broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.component.cli.conftest import Penstock

from penstock.jobs import registry

MODULE = """
from penstock.jobs import job

@job(name="checked.load", queue="orders")
def load(table: str, rows: int = 0) -> int:
    return rows
"""
DEFINITION = """
name = "nightly"
[[steps]]
name = "load"
function = "checked.load"
arguments = { table = "orders" }
[[steps]]
name = "report"
function = "elsewhere.report"
queue = "reports"
needs = ["load"]
when = "results.load > 0"
"""


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "checked_jobs.py").write_text(MODULE)
    (tmp_path / "penstock.toml").write_text('[jobs]\nmodules = ["checked_jobs"]\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "nightly.toml"
    file.write_text(DEFINITION)
    yield file
    registry.REGISTRY.pop("checked.load", None)
    sys.modules.pop("checked_jobs", None)


def test_a_definition_is_checked_with_its_calls(penstock: Penstock, definition: Path) -> None:
    result = penstock("workflow", "check", str(definition))
    assert result.exit_code == 0, result.output
    assert "workflow nightly version 1: 2 steps, nothing is wrong" in result.output
    shown = json.loads(penstock("--json", "workflow", "check", str(definition)).output)
    assert (shown["name"], shown["step_count"], len(shown["digest"])) == ("nightly", 2, 32)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"load"]', '"laod"]', "'laod', which is no step; did you mean 'load'?"),
        ('table = "orders"', "tabel = 1", "step 'load'"),
        ('queue = "reports"', "", "name its queue"),
        ("results.load > 0", "open('x')", "step 'report'"),
        ("when = ", 'rule = "never"\nwhen = ', "unknown trigger rule 'never'"),
        ("[[steps]]", "[[steps]", "TOML"),
    ],
)
def test_what_is_wrong_is_named(
    penstock: Penstock, definition: Path, old: str, new: str, message: str
) -> None:
    definition.write_text(DEFINITION.replace(old, new))
    result = penstock("workflow", "check", str(definition))
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_file_that_is_too_large_is_not_read(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    file.write_bytes(b" " * 300_000)
    result = penstock("workflow", "check", str(file))
    assert result.exit_code != 0
    assert "256,000 bytes" in result.output
