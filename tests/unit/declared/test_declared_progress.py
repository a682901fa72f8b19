"""What follows from how the steps of a declared workflow ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.declared.conversion import of_chain
from tests.unit.declared.orders import TOML
from tests.unit.declared.workflow_run import WorkflowRun

from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import DeclaredStep, Definition
from penstock.jobs.workflows.declared.outcomes import Unreadable
from penstock.jobs.workflows.declared.step_state import StepState

FAILED, CANCELLED = Slot.FAILED, Slot.CANCELLED


def steps(_context: dict[str, Any] | None = None, /, **steps: Any) -> Definition:
    """A definition from ``name=[needs, …]``, or ``name={…}``."""
    listed = []
    for name, fields in steps.items():
        given = {"needs": fields} if isinstance(fields, list) else fields
        listed.append({"name": name, **({} if given.get("join") else {"function": "f"}), **given})
        listed[-1].pop("join", None)
    return reading.from_values({"name": "w", "steps": listed, "context": _context or {}})


def test_a_step_is_due_when_those_it_needs_have_completed() -> None:
    run = WorkflowRun(steps(a=[], b=[], c=["a", "b"]))
    assert run.dispatch() == ["a", "b"]
    run.job_ends("a")
    assert run.due == []
    run.job_ends("b")
    assert run.dispatch() == ["c"]
    assert run.end is None
    run.job_ends("c")
    assert run.end is not None and run.end.reason == ""


def test_a_step_whose_condition_does_not_hold_is_skipped_and_does_not_block() -> None:
    run = WorkflowRun(steps(a=[], b={"needs": ["a"], "when": "results.a.n > 3"}, c=["b"]))
    assert run.run({"a": {"n": 3}}) == ["a", "c"]
    assert run.states["b"] is StepState.SKIPPED
    assert run.end is not None and run.end.reason == ""


def test_all_success_skips_what_follows_a_skipped_step() -> None:
    after = {"needs": ["b"], "rule": "all_success"}
    run = WorkflowRun(steps(a=[], b={"needs": ["a"], "when": "results.a"}, c=after, d=["c"]))
    assert run.run({"a": False}) == ["a", "d"]


@pytest.mark.parametrize(
    ("rule", "outcomes", "runs", "state"),
    [
        ("none_failed", {}, True, StepState.COMPLETED),
        ("none_failed", {"b": FAILED}, False, StepState.BLOCKED),
        ("all_done", {"a": FAILED, "b": CANCELLED}, True, StepState.COMPLETED),
        ("any_failed", {}, False, StepState.SKIPPED),
        ("any_failed", {"b": FAILED}, True, StepState.COMPLETED),
        ("any_failed", {"b": CANCELLED}, True, StepState.COMPLETED),
        ("any_success", {"a": FAILED}, True, StepState.COMPLETED),
        ("any_success", {"a": FAILED, "b": FAILED}, False, StepState.BLOCKED),
        ("all_success", {"a": FAILED}, False, StepState.BLOCKED),
    ],
)
def test_rules(rule: str, outcomes: dict[str, Any], runs: bool, state: StepState) -> None:
    run = WorkflowRun(steps(a=[], b=[], c={"needs": ["a", "b"], "rule": rule}))
    assert ("c" in run.run(outcomes)) is runs
    assert run.states["c"] is state


def test_a_rule_is_judged_once_all_needs_have_ended() -> None:
    run = WorkflowRun(steps(a=[], b=[], c={"needs": ["a", "b"], "rule": "any_failed"}))
    run.dispatch()
    run.job_ends("a", FAILED)
    assert run.due == []
    run.job_ends("b")
    assert run.due == ["c"]


def test_steps_that_can_no_longer_run_fail_the_workflow_with_the_path() -> None:
    run = WorkflowRun(steps(extract=[], load=["extract"], report=["load"], other=[]))
    assert run.run({"extract": FAILED}) == ["extract", "other"]
    assert run.end is not None and run.end.step == run.names.index("extract")
    assert run.end.reason == ("step 'extract' failed; can no longer run: extract → load → report")


def test_a_failure_that_may_be_does_not_fail_the_workflow() -> None:
    soft = {"needs": [], "may_fail": True}
    either = {"needs": ["a", "b"], "rule": "any_success"}
    run = WorkflowRun(steps(a=soft, b={"needs": ["a"], "rule": "any_failed"}, c=either))
    assert run.run({"a": FAILED}) == ["a", "b", "c"]
    assert run.end is not None and run.end.reason == ""
    blocked = WorkflowRun(steps(a=soft, b=["a"], c=["b"]))
    blocked.run({"a": FAILED})
    assert blocked.end is not None
    assert blocked.end.reason == "step 'a' failed; can no longer run: a → b → c"


def test_a_branch_makes_one_call_and_has_its_result() -> None:
    run = WorkflowRun(reading.from_toml(TOML), order={"id": 1})
    ran = run.run({"check": {"total": 9, "gateway": "paypal"}, "pay/paypal": {"id": "p1"}})
    assert ran == ["check", "pay/paypal", "reserve", "ship"]
    states = run.states
    assert (states["pay/stripe"], states["pay"]) == (StepState.SKIPPED, StepState.COMPLETED)
    assert states["alarm"] is StepState.SKIPPED
    ship = run.names.index("ship")
    path = run.plan.steps[ship].reads["payment"]
    needed = run.progress().outcomes.needed(ship, [path])
    assert needed == 1 << run.names.index("pay/paypal")


def test_a_branch_without_a_case_takes_the_other_way_or_is_skipped() -> None:
    other = WorkflowRun(reading.from_toml(TOML), order=1)
    assert "pay/otherwise" in other.run({"check": {"total": 9, "gateway": "cash"}})
    without = "".join(line for line in TOML.splitlines(True) if "otherwise" not in line)
    none = WorkflowRun(reading.from_toml(without), order=1)
    none.run({"check": {"total": 9, "gateway": "cash"}})
    assert none.states["pay"] is StepState.SKIPPED


def test_a_step_sees_the_context_as_the_steps_before_it_left_it() -> None:
    """A step beside it may set the same key sooner or later: it makes no difference."""
    context = {"n": 0}
    when = {"needs": ["a"], "when": "context.n == 1"}
    definition = steps(context, a={"sets": {"n": "result"}}, b={"sets": {"n": "result"}}, c=when)
    run = WorkflowRun(definition)
    run.dispatch()
    run.job_ends("b", result=2)
    run.job_ends("a", result=1)
    assert run.due == ["c"]


def test_a_condition_that_compares_what_has_no_order_fails_its_step() -> None:
    run = WorkflowRun(steps(a=[], b={"needs": ["a"], "when": "results.a > 3"}))
    run.run({"a": "text"})
    assert run.end is not None
    assert run.end.reason == (
        "step 'b' failed: its condition: two numbers or two texts have an order, found text and "
        "a number"
    )


def test_a_result_that_cannot_be_read_fails_the_step_that_asks_for_it() -> None:
    run = WorkflowRun(steps(a=[], b={"needs": ["a"], "when": "results.a > 3"}))
    run.run({"a": Unreadable("the result is encrypted")})
    assert run.end is not None and "the result is encrypted" in run.end.reason


def test_only_the_results_that_conditions_need_are_asked_for() -> None:
    run = WorkflowRun(steps(a=[], b=[], c={"needs": ["a", "b"], "when": "results.a > 3"}))
    run.dispatch()
    run.job_ends("a", result=4)
    run.job_ends("b", result=5)
    assert run.plan.progress(run.slots, {}).unread == (0,)


def test_a_join_has_no_job() -> None:
    run = WorkflowRun(steps(a=[], b=[], both={"join": True, "needs": ["a", "b"]}, c=["both"]))
    assert run.run() == ["a", "b", "c"]


def test_what_completed_is_undone_newest_first_one_after_another() -> None:
    undo = {"compensate": {"function": "undo"}}
    run = WorkflowRun(steps(a=undo, b={"needs": ["a"], **undo}, c={"needs": ["b"], **undo}))
    run.dispatch()
    run.job_ends("a")
    run.dispatch()
    run.job_ends("b")
    run.dispatch()
    run.job_ends("c", FAILED)
    assert run.dispatch() == ["undo b"]
    assert run.dispatch() == [] and run.end is None
    run.job_ends("undo b", FAILED)
    assert run.dispatch() == ["undo a"]
    run.job_ends("undo a")
    assert run.end is not None and run.end.reason == "step 'c' failed; not undone: 'b'"
    assert run.states["undo c"] is StepState.SKIPPED


def test_nothing_is_undone_of_what_completed_as_a_whole() -> None:
    run = WorkflowRun(steps(a={"compensate": {"function": "undo"}}))
    assert run.run() == ["a"]
    assert run.end is not None and run.states["undo a"] is StepState.SKIPPED


def test_a_cancelled_workflow_begins_no_step_and_undoes_what_completed() -> None:
    run = WorkflowRun(steps(a={"compensate": {"function": "undo"}}, b=["a"], c=["b"]))
    run.dispatch()
    run.job_ends("a")
    run.dispatch()
    run.is_cancelled = True
    assert run.due == []
    run.job_ends("b", CANCELLED)
    assert run.run() == ["undo a"]
    assert run.end is not None


def test_a_step_that_is_revived_while_others_are_undone_starts_nothing() -> None:
    run = WorkflowRun(steps(a={"compensate": {"function": "undo"}}, b=["a"], c=["b"]))
    run.run({"b": FAILED})
    run.slots[run.names.index("b")] = Slot.COMPLETED
    assert run.due == []
    assert run.end is not None and "undone" in run.end.reason


def test_a_process_that_takes_over_while_steps_are_undone_comes_to_the_same_reason() -> None:
    """It has read no result yet, and a step is blocked only if a condition before it held."""
    first = {"sets": {"n": "result"}, "compensate": {"function": "undo"}}
    joined = {"join": True, "needs": ["a"], "when": "context.n == 1"}
    definition = steps({"n": 0}, a=first, b={"may_fail": True}, c=joined, d=["b", "c"])
    run = WorkflowRun(definition)
    run.dispatch()
    run.job_ends("a", result=1)
    run.job_ends("b", FAILED)
    assert run.dispatch() == ["undo a"]
    run.results.clear()
    run.job_ends("undo a")
    assert run.end is not None
    assert run.end.reason == "step 'b' failed; can no longer run: b → d"


def test_stop_begins_no_step_after_a_failure() -> None:
    chain = of_chain("chain", [DeclaredStep(name=name, function="f") for name in "abc"])
    run = WorkflowRun(chain)
    assert run.run({"b": FAILED}) == ["a", "b"]
    assert run.end is not None and run.end.reason == "step 'b' failed"
