"""Erlang's formulas: published values, and what must hold whatever is put in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decider.core.strategies.erlang import erlang_b, erlang_c, fewest, late_share

loads = st.floats(1e-6, 2000)
promises = st.fixed_dictionaries(
    {
        "service_seconds": st.floats(0.01, 100),
        "cv2": st.sampled_from([0.0, 0.5, 1.0, 4.0]),
        "promise_seconds": st.sampled_from([0.0, 0.1, 1.0, 10.0, 30.0]),
        "allowed_share": st.sampled_from([0.001, 0.01, 0.05, 0.3]),
    }
)


@pytest.mark.parametrize(
    ("workers", "load", "blocked"),
    [(1, 1, 0.5), (2, 1, 0.2), (5, 3, 0.1101), (10, 5, 0.0184), (20, 12, 0.0098), (0, 3, 1.0)],
)
def test_blocking_as_in_the_tables(workers, load, blocked):
    assert erlang_b(workers, load) == pytest.approx(blocked, abs=5e-5)


@pytest.mark.parametrize(
    ("workers", "load", "delayed"),
    [(1, 0.3, 0.3), (2, 1, 1 / 3), (11, 10, 0.682), (14, 10, 0.174), (10, 10, 1.0)],
    ids=["M/M/1: the utilisation", "M/M/2", "one above 10 Erlang: 68 % wait", "14", "no headroom"],
)
def test_delay_as_in_the_tables(workers, load, delayed):
    assert erlang_c(workers, load) == pytest.approx(delayed, abs=5e-4)


def test_the_call_centre_of_the_textbooks():
    """200 calls an hour of 3 minutes, 14 agents: 88.8 % are answered within 20 s."""
    assert 1 - late_share(14, 10, 180, 1, 20) == pytest.approx(0.888, abs=5e-4)
    assert fewest(10, 180, 1, 20, allowed_share=0.2) == 14


def test_the_promise_pays():
    """10 Erlang of 2 s jobs, 1 % may be late: promised at once, within 2 s, within 30 s."""
    assert [fewest(10, 2, 1, promise, 0.01) for promise in (0, 2, 30)] == [19, 14, 11]


def test_steadier_jobs_need_fewer():
    assert [fewest(50, 10, cv2, 5, 0.01) for cv2 in (0, 1, 4)] == [54, 57, 61]


def test_no_load_no_workers():
    assert fewest(0, 2, 1, 30, 0.05) == 0
    assert fewest(1e-9, 2, 1, 30, 0.05) == 1


@given(loads, promises)
def test_the_search_finds_the_smallest(load, promise):
    allowed = promise["allowed_share"]
    given_them = {name: value for name, value in promise.items() if name != "allowed_share"}
    workers = fewest(load, **promise)
    assert workers > load
    assert late_share(workers, load, **given_them) <= allowed * (1 + 1e-9)
    assert workers == 1 or late_share(workers - 1, load, **given_them) > allowed * (1 - 1e-9)


@given(loads, st.floats(1.0, 3.0), promises)
def test_more_load_or_a_tighter_promise_never_needs_fewer(load, factor, promise):
    tighter = {**promise, "promise_seconds": promise["promise_seconds"] / factor}
    assert fewest(load * factor, **promise) >= fewest(load, **promise)
    assert fewest(load, **tighter) >= fewest(load, **promise)


@given(st.integers(1, 300), st.floats(0.01, 300))
def test_the_recursion_holds(workers, load):
    """B(c, a) = a·B(c-1, a) / (c + a·B(c-1, a))."""
    before = load * erlang_b(workers - 1, load)
    assert math.isclose(
        erlang_b(workers, load), before / (workers + before), rel_tol=1e-9, abs_tol=1e-300
    )
