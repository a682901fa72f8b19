"""docs/testing.md: each example is a file of a fresh project, and works there as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n# ([\w.]+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
PLUGINS = {
    "alone": ("-p", "no:asyncio"),
    "beside pytest-asyncio": (),
    "with its automatic mode": ("-o", "asyncio_mode=auto"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the page's files and nothing else."""
    for name, text in EXAMPLES:
        (tmp_path / name).write_text(text)
    return tmp_path


def call(project: Path, *arguments: str, timeout: float = 60) -> str:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("P")}
    environment["PATH"] = os.environ["PATH"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_of(project: Path, *arguments: str, timeout: float = 60) -> str:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    return call(project, "-m", "pytest", *options, *arguments, timeout=timeout)


@pytest.mark.parametrize("options", PLUGINS.values(), ids=PLUGINS)
def test_the_examples_pass_without_any_configuration(
    project: Path, options: tuple[str, ...]
) -> None:
    files = (
        "test_orders.py",
        "test_priorities.py",
        "test_schedules.py",
        "test_shop_workflows.py",
    )
    output = pytest_of(project, *options, *files)
    tests = sum(len(re.findall(r"^(?:async )?def test_", text, re.M)) for _, text in EXAMPLES)
    crashes = range(1, 8)  # of one test
    assert f"{tests - 1 + len(crashes) - 1} passed" in output  # all but that of Spark


@pytest.mark.spark
def test_the_example_with_spark_passes(project: Path) -> None:
    output = pytest_of(project, "-p", "no:asyncio", "test_spark_job.py", timeout=180)
    assert "1 passed" in output


def test_the_example_of_the_simulator_runs(project: Path) -> None:
    lines = call(project, "simulate.py").splitlines()
    assert [line.split(":")[0] for line in lines] == ["deadline", "hybrid", "keda", "best"]


def test_the_settings_of_the_project_are_those_of_its_tests(project: Path) -> None:
    (project / "penstock.toml").write_text("[pools.mail]\npriorities = true\n")
    text = (project / "test_priorities.py").read_text()
    start = text.index("@pytest.fixture")
    end = text.index("async def")
    (project / "test_priorities.py").write_text(text[:start] + text[end:])
    assert "1 passed" in pytest_of(project, "-p", "no:asyncio", "test_priorities.py")
    tests = project / "tests"
    tests.mkdir()
    (project / "test_priorities.py").rename(tests / "test_priorities.py")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    below = call(tests, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider")
    assert "1 passed" in below
