"""`penstock workflow check` and `graph run` on files, before any broker is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli

OUTER = """
name = "outer"
queue = "q"
[[steps]]
name = "part"
workflow = "inner"
"""
INNER = """
name = "inner"
version = 4
queue = "q"
[[steps]]
name = "a"
function = "elsewhere.a"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outer.toml").write_text(OUTER)
    (tmp_path / "inner.toml").write_text(INNER)
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workflow", "check", *arguments])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[pools.x]\nslaa = 3\n", "unknown setting 'slaa'"),
        ("[pools.x\n", "penstock.toml: cannot be read as TOML"),
        ('[pools.x]\nstrategy = "none such"\n', "none such"),
        ('[pools.x]\nqueues = ["a"]\n[pools.y]\nqueues = ["a"]\n', "queue"),
    ],
)
@pytest.mark.parametrize("target", ["orders.py", "inner.toml"])
def test_settings_that_cannot_be_used_are_not_fine(
    folder: Path, settings: str, reason: str, target: str
) -> None:
    (folder / "orders.py").write_text(
        "from penstock.jobs import workflow\n\n\n@workflow()\nasync def f(ctx): ...\n"
    )
    assert check(target).exit_code == 0
    (folder / "penstock.toml").write_text(settings)
    refused = check(target)
    assert refused.exit_code == 2
    assert reason in refused.stderr


def test_workflows_that_are_steps_are_looked_for_in_the_files(folder: Path) -> None:
    checked = check("outer.toml", "inner.toml")
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.splitlines() == [
        "workflow outer version 1: 1 steps, nothing is wrong",
        "workflow inner version 4: 1 steps, nothing is wrong",
    ]
    shown = check("inner.toml", "--json")
    assert json.loads(shown.stdout)["step_count"] == 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["outer.toml"], "no workflow 'inner' is defined, or given"),
        (["outer.toml", "circle.toml"], "workflows contain each other: outer → inner → outer"),
        (["binary.toml"], "binary.toml: this is no TOML: 'utf-8' codec"),
        (["binary.json"], "binary.json: this is no JSON"),
        (["large.toml"], "large.toml is larger than 256,000 bytes"),
        (["types.toml"], "types.toml: step 'a': Expected `int`, got `str`"),
        (["twice.toml"], "2 steps have the name 'a'"),
        (["rule.toml"], "step 'a': unknown trigger rule 'some_success'; expected one of"),
        (["absent.toml"], "no such file"),
    ],
)
def test_what_is_wrong_is_said_with_the_place(folder: Path, files: list[str], message: str) -> None:
    (folder / "circle.toml").write_text(
        INNER.replace('function = "elsewhere.a"', 'workflow = "outer"')
    )
    (folder / "binary.toml").write_bytes(b"name = '\xff'")
    (folder / "binary.json").write_bytes(b'{"name": "\xff"}')
    (folder / "large.toml").write_text("#" * 256_001)
    (folder / "types.toml").write_text(INNER + 'tries = "3"\n')
    (folder / "twice.toml").write_text(
        INNER + INNER.partition("[[steps]]")[2].join(["[[steps]]", ""])
    )
    (folder / "rule.toml").write_text(INNER + 'rule = "some_success"\n')
    checked = check(*files)
    assert checked.exit_code in (1, 2)
    assert message in " ".join(checked.stderr.split())
    assert "Traceback" not in checked.stderr
