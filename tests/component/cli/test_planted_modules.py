"""A file in the working directory does not stand in for an installed module."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.interpreter import module_command

PLANTED = ("nats", "msgspec", "click", "json", "rich", "nkeys", "sitecustomize", "penstock")
SHELL = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PENSTOCK_NATS__URL": ""}
CONSOLE_SCRIPT = [str(Path(sys.executable).with_name("penstock"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose modules leave a file behind when they are imported."""
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + ' ')"
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    (tmp_path / "my_jobs.py").write_text(
        "from penstock.jobs import job\n@job\ndef send(order: int) -> None: ...\n", "utf-8"
    )
    (tmp_path / "penstock.toml").write_text(
        '[jobs]\nmodules = ["my_jobs"]\n[pools.work]\n', "utf-8"
    )
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=SHELL, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("python", [CONSOLE_SCRIPT, module_command("penstock.cli.main")])
@pytest.mark.parametrize(
    "words", [("health", "--nats-url", "nats://127.0.0.1:1"), ("job", "ls"), ("config", "show")]
)
def test_a_command_runs_nothing_that_was_planted(folder, python, words) -> None:
    run(folder, *python, *words)
    assert not (folder / "ran").exists(), (folder / "ran").read_text("utf-8")


def test_modules_of_jobs_are_still_imported_from_there(folder: Path) -> None:
    done = run(folder, *CONSOLE_SCRIPT, "--json", "config", "check", "--offline")
    assert done.returncode == 0, done.stderr
    assert not [text for text in json.loads(done.stdout)["warnings"] if "my_jobs" in text]


def test_the_warm_parent_imports_modules_of_jobs_from_there_last(folder: Path) -> None:
    code = (
        "from penstock.runtime.interpreter import working_directory_last as last\n"
        "last(); last()\n"
        "import sys, my_jobs, nats\n"
        "print(sys.path.count(''), sys.path[-1] == '', nats.__file__)"
    )
    done = run(folder, sys.executable, "-P", "-c", code)
    assert done.stdout.startswith("1 True "), done.stderr
    assert str(folder) not in done.stdout


def test_no_process_is_started_with_the_working_directory_first() -> None:
    root = Path(__file__).parents[3]
    unsafe = [
        str(path.relative_to(root))
        for part in ("shared", "services", "cli", "testing")
        for path in (root / part).rglob("src/**/*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.List, ast.Tuple)) and _starts_a_module(node)
    ]
    assert unsafe == []


def _starts_a_module(words: ast.List | ast.Tuple) -> bool:
    return ast.unparse(words).startswith(("[sys.executable, '-m'", "(sys.executable, '-m'"))
