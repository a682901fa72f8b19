"""A declared workflow in this process, as a test or a script runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.jobs import Backoff, Context, job, registry
from penstock.jobs.workflows.declared.reading import from_values
from penstock.testing import RunFailed, run_definition, run_definition_async

TRIED: list[int] = []


@job(name="inline.double", queue="numbers")
def double(number: int) -> int:
    return 2 * number


@job(name="inline.flaky", queue="others", tries=3, backoff=Backoff(first_seconds=3_600.0))
def flaky(context: Context) -> str:
    TRIED.append(context.attempt)
    if len(TRIED) < 3:
        raise ValueError("not yet")
    assert context.graph is not None
    return context.graph.step


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    TRIED.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (double, flaky)})
    yield
    for kind in (double, flaky):
        registry.REGISTRY.pop(kind.name, None)


INNER = {
    "name": "inner",
    "required": ["n"],
    "returns": {"n": "results.twice"},
    "steps": [{"name": "twice", "function": "inline.double", "takes": {"number": "context.n"}}],
}
STEPS: list[dict[str, Any]] = [
    {"name": "a", "function": "inline.double", "takes": {"number": "context.n"}},
    {"name": "sleep", "sleep_seconds": 86_400, "needs": ["a"]},
    {"name": "b", "function": "inline.flaky", "needs": ["sleep"], "delay_seconds": 60},
    {"name": "part", "workflow": "inner", "needs": ["a"], "takes": {"n": "results.a"}},
    {"name": "never", "function": "inline.flaky", "needs": ["a"], "when": "results.a > 100"},
    {"name": "ok", "wait": {"timeout_seconds": 9_999_999, "default": "nobody"}, "needs": ["b"]},
]


def test_it_runs_here_with_retries_delays_and_timers_that_take_no_time() -> None:
    definition = from_values({"name": "w", "required": ["n"], "steps": STEPS})
    results = run_definition(definition, {"n": 3}, inner=[from_values(INNER)])
    assert TRIED == [1, 2, 3]
    assert results == {
        "a": 6, "begin part": {"n": 6}, "part/twice": 12, "part": {"n": 12}, "sleep": None,
        "b": "b", "ok": "nobody",
    }  # fmt: skip


def test_the_result_of_a_branch_is_that_of_the_call_that_was_made() -> None:
    call = {"function": "inline.double", "takes": {"number": "context.n"}}
    cases = {"card": call, "cash": call}
    branch = {"name": "pay", "branch": {"on": "context.by", "cases": cases, "otherwise": call}}
    definition = from_values({"name": "w", "required": ["n", "by"], "steps": [branch]})
    for by in ("card", "barter"):
        results = run_definition(definition, {"n": 3, "by": by}, timeout_seconds=30.0)
        assert results["pay"] == 6
        assert len(results) == 2


def test_signals_are_sent_before_it_begins() -> None:
    definition = from_values({"name": "w", "required": ["n"], "steps": STEPS})
    signals = {"ok": "mine"}
    results = run_definition(definition, {"n": 3}, inner=[from_values(INNER)], signals=signals)
    assert results["ok"] == "mine"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"function": "inline.double", "arguments": {"number": 1}, "when": "context.n < 'x'"},
         "w: failed: step 'a' failed: its condition"),
        ({"wait": {}}, "w: stuck: step 'a' waits for a signal"),
        ({"approval": {"timeout_seconds": 60}}, "w: failed: step 'a' was not approved"),
    ],
)  # fmt: skip
def test_why_it_did_not_complete(step: dict[str, Any], message: str) -> None:
    definition = from_values({"name": "w", "context": {"n": 1}, "steps": [{"name": "a", **step}]})
    with pytest.raises(RunFailed, match=message):
        run_definition(definition)


async def test_in_an_event_loop_it_is_awaited() -> None:
    definition = from_values({"name": "w", "required": ["n"], "steps": STEPS[:1]})
    with pytest.raises(RuntimeError, match="run_definition_async"):
        run_definition(definition, {"n": 1})
    assert await run_definition_async(definition, {"n": 2}) == {"a": 4}
