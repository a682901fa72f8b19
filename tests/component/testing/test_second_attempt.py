"""CI repeats few failed tests, and none that judges a guarantee."""

from __future__ import annotations

import pytest
from tests.second_attempt import MOST, refused

PROCESSES = "tests/integration/test_executor.py::test_a"


def test_a_test_of_processes_may_be_run_once_more() -> None:
    assert refused([PROCESSES, "tests/e2e/test_stories.py::test_a[x-1]"]) == ""


@pytest.mark.parametrize(
    "nodeid",
    [
        "tests/unit/jobs/test_queue.py::test_a",
        "tests/contract/test_nats_bus.py::TestNats::test_a",
        "tests/integration/test_invariants_jobs.py::test_a[1]",
        "tests/integration/test_permissions.py::test_a",
        "tests/exactness/test_exactness.py::test_a",
    ],
)
def test_what_judges_a_guarantee_or_starts_no_process_is_final(nodeid: str) -> None:
    assert nodeid in refused([PROCESSES, nodeid])


def test_many_failures_are_no_accident() -> None:
    assert refused([PROCESSES] * (MOST + 1))
