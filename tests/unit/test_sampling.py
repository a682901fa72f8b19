"""The part of the long suite that CI runs."""

from __future__ import annotations

import pytest
from tests.sampling import MOST_MINUTES, minutes, sample

FORGED = [f"tests/integration/test_forged.py::test_flood[{number}]" for number in range(9)]
KILLED = ["tests/integration/pipeline/test_pipeline_killed.py::test_kills"]


def test_it_has_a_part_of_each_file_and_now_and_then_of_a_short_one() -> None:
    samples = [sample(FORGED + KILLED, 4, str(seed)) for seed in range(40)]
    assert {len(kept & set(FORGED)) for kept in samples} == {2, 3}
    assert {len(kept & set(KILLED)) for kept in samples} == {0, 1}


def test_it_is_the_same_for_the_same_seed_and_all_comes_in_turn() -> None:
    assert sample(FORGED, 4, "7") == sample(FORGED, 4, "7")
    assert set().union(*(sample(FORGED, 4, str(seed)) for seed in range(40))) == set(FORGED)


def test_one_in_one_is_all() -> None:
    assert sample(FORGED, 1, "1") == set(FORGED)


def test_how_long_a_test_takes_stands_in_its_mark(request: pytest.FixtureRequest) -> None:
    assert minutes(request.node) == 0
    request.node.add_marker(pytest.mark.long)
    assert minutes(request.node) == 0
    request.node.add_marker(pytest.mark.long(minutes=60), append=False)
    assert minutes(request.node) == 60 > MOST_MINUTES
