"""Names of jobs that belong together, and the order of a graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.subjects import BadName, check_name
from penstock.jobs import derived_ids
from penstock.jobs.derived_ids import Member
from penstock.jobs.workflows.graph_order import BadGraph, by_level, levels

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,36}", fullmatch=True).filter(
    lambda token: derived_ids.member(token) is None
)


@given(TOKENS, st.text(), st.integers(0, 999_999))
def test_the_name_of_a_job_tells_its_place(batch: str, key: str, number: int) -> None:
    place = Member(batch, derived_ids.producer_key(key), number)
    assert derived_ids.member(check_name("job", place.job_id)) == place


@pytest.mark.parametrize(
    "name", ["019b5c2e-7a41-7000-8000-000000000001", "a_1", "nightly_then", "a_0123abcd_1234567"]
)
def test_other_jobs_have_no_place(name: str) -> None:
    assert derived_ids.member(name) is None


def test_callbacks_and_steps_are_named_after_the_whole() -> None:
    assert derived_ids.callback_id("b", "then") == "b_then"
    assert derived_ids.callback_id("b", "then", 2) == "b_then_2"
    assert derived_ids.first_callback("b_then_2") == "b_then"
    assert derived_ids.first_callback("b_other_2") == "b_other_2"
    assert derived_ids.step(derived_ids.step_id("g", 7)) == ("g", 7)


@pytest.mark.parametrize("end", ["_then", "_catch", "_finally", "_then_1", "_finally_9999"])
def test_the_id_of_a_callback_is_for_nothing_else(end: str) -> None:
    with pytest.raises(BadName, match="callbacks of batches and graphs"):
        derived_ids.check_job_id("dispatched job", f"wf_x{end}")
    with pytest.raises(BadName, match="callbacks of batches and graphs"):
        derived_ids.check_workflow_job_id(f"wf_x{end}")


@pytest.mark.parametrize("name", ["then", "_then", "and_then_some", "finally_done", "x_then_12345"])
def test_other_ids_are_free(name: str) -> None:
    assert derived_ids.check_job_id("dispatched job", name) == name


def test_levels_are_as_early_as_can_be() -> None:
    needs = {"d": ["b", "c"], "a": [], "b": ["a"], "c": [], "e": ["c"]}
    assert levels(needs) == [["a", "c"], ["b", "e"], ["d"]]
    assert by_level(needs) == {
        "a": [], "c": [], "b": ["a", "c"], "e": ["a", "c"], "d": ["b", "e"],
    }  # fmt: skip


def test_a_step_that_needs_itself_is_named() -> None:
    with pytest.raises(BadGraph, match="steps need each other: a → a"):
        levels({"a": ["a"]})
