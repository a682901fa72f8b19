"""How tests are spread over processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spreading import PIPELINE, java_group, turn

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        (f"{PIPELINE}test_pipeline.py::test_a", "pipeline"),
        ("tests/integration/test_spark.py::test_a[x::y]", "spark"),
        ("tests/e2e/test_stories.py::test_a", "spark"),
        ("tests/unit/worker/test_spark_cost.py::test_a", ""),
        ("tests/integration/test_batches.py::test_a", ""),
    ],
)
def test_what_starts_java_stays_together(nodeid: str, group: str) -> None:
    assert java_group(nodeid) == group


def test_long_files_come_first_and_what_computes_last() -> None:
    files = [
        f"{PIPELINE}test_pipeline.py",
        "tests/integration/test_batches.py",
        "tests/contract/test_nats_bus.py",
        "tests/component/cli/test_help.py",
        "tests/unit/test_supply.py",
        "tests/compose/test_stack.py",
    ]
    jumbled = [*files[3:], *files[:3]]
    assert sorted(jumbled, key=turn) == files


def test_every_test_with_the_mark_stands_in_a_group() -> None:
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.spark" in path.read_text() and path != Path(__file__)
    ]
    assert marked
    assert [path for path in marked if not java_group(path)] == []
