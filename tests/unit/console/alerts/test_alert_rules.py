"""What each kind of rule sees in recorded events, and the sentence it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.core.alerts import rules
from penstock.console.core.alerts.backtest import backtest
from penstock.console.core.alerts.defaults import DEFAULT_RULES
from penstock.console.core.alerts.expression import BadExpression, evaluate, parse
from penstock.console.core.alerts.failures import dead_letters
from penstock.console.core.alerts.reading import read
from penstock.console.core.alerts.rules import Rule
from penstock.console.core.alerts.states import Observation
from penstock.console.core.alerts.world import World
from penstock.events.envelope import Event
from penstock.events.health import HealthChanged
from penstock.events.job import JobDead, JobError
from penstock.events.scaling import (
    BudgetCapReached,
    LeaderChanged,
    PromiseBurning,
    Reason,
    ScalingDecisionMade,
    SlaBreachPredicted,
)
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot
from penstock.events.worker import (
    HostJoined,
    HostLost,
    WorkerCrashLooping,
    WorkerReady,
    WorkerStopped,
    WorkerStuck,
)

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def seen(condition: rules.Condition, events: list[Event], at: float) -> list[Observation]:
    world = World()
    world.take_all(events)
    rule = Rule(id="r", name="r", condition=condition)  # type: ignore[arg-type]
    return list(read(rule, world, after(at).timestamp()).observations)


def firing(condition: rules.Condition, events: list[Event], at: float) -> list[str]:
    return [one.text for one in seen(condition, events, at) if one.is_met]


BUDGET = Budget(
    sla_seconds=30, quantile=0.995, window_seconds=28 * 86_400, jobs=1000, late=3,
    remaining_share=0.0564, burn_rate_short=7.1, burn_rate_long=3.0,
)  # fmt: skip


def snapshot(at: float, **fields: Any) -> PoolSnapshot:
    known = {"pool": "reports", "queues": ("reports",), "waiting": 0}
    return PoolSnapshot(**{**known, **fields}, at=after(at))


def decision(at: float, *reasons: Reason, **fields: Any) -> ScalingDecisionMade:
    known = {"pool": "reports", "current": 4, "target": 4, "strategy": "hybrid", "sla_seconds": 30}
    return ScalingDecisionMade(**{**known, **fields}, reasons=reasons, at=after(at))


def test_a_burning_promise_says_when_its_budget_is_used_up() -> None:
    burning = PromiseBurning(pool="reports", pace="fast", budget=BUDGET, at=after(0))
    assert firing(rules.Burn(pace="fast"), [burning], 10) == [
        "At this pace the budget of reports is used up in 5 h 20 min (Friday 17:20 UTC): jobs are "
        "late 7.1 times as often as the promise allows."
    ]
    calm = msgspec.structs.replace(BUDGET, burn_rate_short=0.1, burn_rate_long=0.1)
    assert firing(rules.Burn(), [burning, snapshot(20, budget=calm)], 25) == []


def test_jobs_that_wait_too_long_already_are_named_where_they_used_the_budget_up() -> None:
    spent = msgspec.structs.replace(BUDGET, late=0, waiting_late=40, remaining_share=-1.8)
    burning = PromiseBurning(pool="reports", pace="spent", budget=spent, at=after(0))
    assert firing(rules.Burn(), [burning], 10) == [
        "The budget of late jobs of reports is used up: 0 of 1,000 jobs started later than the "
        "promised 30 s, and 40 wait longer."
    ]


def test_a_pool_that_is_not_measured_any_more_is_not_known() -> None:
    events: list[Event] = [snapshot(0, budget=BUDGET)]
    assert [one.is_met for one in seen(rules.Burn(), events, 20)] == [True]
    assert [one.is_met for one in seen(rules.Burn(), events, 31)] == [None]


def test_a_predicted_breach_lasts_until_a_decision_predicts_none() -> None:
    breach = SlaBreachPredicted(
        pool="reports", predicted_pickup_seconds=41, sla_seconds=30, decision_id="d", waiting=1204,
        at=after(0),
    )  # fmt: skip
    assert firing(rules.PredictedBreach(), [breach], 1) == [
        "A job of reports that is dispatched now starts after 41 s; 30 s are promised. 1,204 jobs "
        "wait."
    ]
    assert (
        firing(rules.PredictedBreach(), [breach, decision(5, predicted_pickup_seconds=9)], 6) == []
    )


def test_a_pool_that_capacity_holds_back() -> None:
    reasons = (
        Reason(step="strategy", rule="hybrid", workers=9, text="backlog"),
        Reason(step="capacity", rule="capacity", workers=4, text="the hosts have room for 4"),
    )
    assert firing(rules.HeldByCapacity(), [decision(0, *reasons)], 1) == [
        "reports gets fewer workers than it needs: the hosts have room for 4."
    ]
    assert (
        firing(rules.HeldByCapacity(), [decision(0, *reasons), decision(1, *reasons[:1])], 2) == []
    )


def test_a_budget_cap_lasts_for_its_day() -> None:
    cap = BudgetCapReached(
        pool="reports", wanted=9, workers=4, spent_worker_hours=50, worker_hours_per_day=50,
        at=after(0),
    )  # fmt: skip
    assert len(firing(rules.BudgetCap(), [cap], 20)) == 1
    assert firing(rules.BudgetCap(), [cap, decision(12 * 3600 + 1)], 12 * 3600 + 2) == []


def test_jobs_that_wait_several_times_what_is_promised() -> None:
    old = snapshot(0, waiting=5, oldest_waiting_seconds=70.0, budget=BUDGET)
    assert firing(rules.QueueAge(promises=2), [old], 1) == [
        "The oldest job of reports has waited 70 s, 2.3 times the promised 30 s; 5 jobs wait."
    ]
    assert firing(rules.QueueAge(promises=3), [old], 1) == []


def dead(at: float, message: str = "orders timed out", kind: str = "TimeoutError") -> JobDead:
    error = JobError(kind=f"builtins.{kind}", message=message)
    return JobDead(
        job_id=f"j{at}", queue="q", function="load", attempt=1, error=error, at=after(at)
    )


def test_a_failure_that_was_never_seen_before() -> None:
    new = rules.DeadLetters(when="first-seen")
    assert firing(new, [dead(0), dead(5)], 6) == [
        "2 jobs of load died within the last hour: TimeoutError: orders timed out. This failure "
        "was never seen before."
    ]
    assert firing(new, [dead(0), dead(3700)], 3701) == []


def test_a_muted_function_is_seen_by_rules_that_name_it_alone() -> None:
    world = World()
    world.take_all([dead(0)])
    for muted, glob, number in (
        ((), "*", 1), (("load",), "*", 0), (("load",), "lo*", 0), (("load",), "load", 1),
        (("other",), "*", 1),
    ):  # fmt: skip
        world.muted = frozenset(muted)
        condition = rules.DeadLetters(when="first-seen", function=glob)
        reading = dead_letters(condition, world, after(1).timestamp())
        assert len(reading.observations) == number, (muted, glob)


def test_more_failures_than_in_a_usual_hour() -> None:
    usual: list[Event] = [dead(3600 * hour + 60 * job) for hour in range(24) for job in range(2)]
    surge: list[Event] = [dead(86_400 + second) for second in range(30)]
    condition = rules.DeadLetters(when="surge", times=5, at_least=20)
    assert firing(condition, usual, 86_000) == []
    (text,) = firing(condition, [*usual, *surge], 86_440)
    assert "31 jobs of load died" in text
    assert "Usual is 2" in text


@pytest.mark.parametrize("minute", [0, 25, 50, 59])
def test_a_failure_that_goes_on_at_one_pace_is_no_surge(minute: int) -> None:
    begin, condition = minute * 60, rules.DeadLetters(when="surge", times=5, at_least=20)
    steady = [dead(begin + 30 * job) for job in range(5 * 120)]
    for now in range(begin, begin + 5 * 3600, 300):
        assert firing(condition, [one for one in steady if one.at <= after(now)], now) == []


def test_more_than_are_remembered_of_one_hour_are_a_surge() -> None:
    usual: list[Event] = [dead(3600 * hour) for hour in range(5)]
    surge: list[Event] = [dead(5 * 3600 + second / 10) for second in range(12_000)]
    condition = rules.DeadLetters(when="surge", times=5, at_least=20)
    assert len(firing(condition, [*usual, *surge], 6 * 3600 - 1)) == 1


def test_a_failure_that_came_back() -> None:
    back = rules.DeadLetters(when="returned", quiet_hours=24)
    (text,) = firing(back, [dead(0), dead(2 * 86_400)], 2 * 86_400 + 1)
    assert text.endswith("It is back after 2 d without.")
    assert firing(back, [dead(0), dead(7200)], 7201) == []


def test_hosts_crash_loops_stuck_jobs_and_components() -> None:
    lost = HostLost(host="h2", silent_seconds=6, at=after(0))
    assert len(firing(rules.HostLost(), [lost], 1)) == 1
    joined = HostJoined(host="h2", cpu_cores=4, memory_bytes=1, at=after(2))
    assert firing(rules.HostLost(), [lost, joined], 3) == []

    def measured(at: float) -> HostSnapshot:
        return HostSnapshot(host="h2", cpu_cores=4, memory_bytes=1, at=after(at))

    assert len(firing(rules.HostLost(), [lost, measured(-6)], 3)) == 1  # read late
    assert firing(rules.HostLost(), [lost, measured(2)], 3) == []

    about: dict[str, Any] = {"worker": "w", "host": "h", "pool": "reports"}
    loop = WorkerCrashLooping(**about, failures=3, backoff_seconds=10, at=after(0))
    assert len(firing(rules.CrashLoop(), [loop], 60)) == 1
    assert firing(rules.CrashLoop(), [loop, WorkerReady(**about, pid=1, at=after(61))], 62) == []

    stuck = WorkerStuck(
        **about, pid=1, job_id="j", queue="q", score=0.9, heartbeat=1, run_time=1, memory=1,
        process=1, strategy="off", at=after(0),
    )  # fmt: skip
    assert len(firing(rules.Stuck(), [stuck], 1)) == 1
    ended = WorkerStopped(**about, pid=1, cause="stuck", at=after(2))
    assert firing(rules.Stuck(), [stuck, ended], 3) == []

    ill = HealthChanged(
        component="disk", state="degraded", before="healthy", reasons=("it is full",), at=after(0)
    )
    assert firing(rules.Health(), [ill], 1) == ["disk is degraded: it is full."]
    assert firing(rules.Health(at_least="unhealthy"), [ill], 1) == []


def test_no_leader_and_absence() -> None:
    leads = LeaderChanged(leader="d1", epoch=1, at=after(0))
    assert firing(rules.NoLeader(seconds=30), [leads], 20) == []
    assert len(firing(rules.NoLeader(seconds=30), [leads], 40)) == 1
    assert firing(rules.NoLeader(seconds=30), [leads, decision(35)], 40) == []
    (text,) = firing(rules.Absence(source="pool:rep*", seconds=60), [snapshot(0)], 100)
    assert text == (
        "The pool reports was measured last 100 s ago (12:00:00 UTC); expected at least every 60 s."
    )


def test_an_expression_over_series() -> None:
    busy = [snapshot(10 * number, waiting=100 * number) for number in range(6)]
    condition = rules.Expression(text="waiting > 400 and avg(waiting, 1m) > 200")
    assert firing(condition, list(busy), 51) == [
        "reports: waiting > 400 and avg(waiting, 1m) > 200 "
        "(waiting is 500, avg(waiting, 1m) is 250)."
    ]
    unknown = rules.Expression(text="budget_left < 0.5 or waiting > 1000")
    assert [one.is_met for one in seen(unknown, list(busy), 51)] == [None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "found the end"),
        ("waiting", "expected a comparison"),
        ("waiting >", "found the end"),
        ("__import__('os') > 1", "found .__import__"),
        ("waiting > 1 > 2", "expected the end"),
        ("(waiting > 1) + 2 > 3", "expected a number"),
        ("avg(waiting, 2h) > 1", "at most 1h"),
        ("sum(waiting, 5m) > 1", "found 'sum'"),
        ("(" * 50 + "1" + ")" * 50 + " > 0", "found parts within parts"),
        (" + ".join(["1"] * 200) + " > 0", "operators"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(BadExpression, match=expected.replace("(", r"\(")):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        node = parse(text)
    except BadExpression:
        return
    assert evaluate(node, lambda *_: 1.0) in (True, False, None)


def test_and_or_with_what_is_not_known() -> None:
    known: dict[str, float | None] = {"waiting": 5.0, "running": None}

    def answer(text: str) -> bool | None:
        return evaluate(parse(text), lambda _, name, __: known[name])

    assert answer("waiting > 9 and running > 1") is False
    assert answer("waiting > 1 or running > 1") is True
    assert answer("waiting > 1 and running > 1") is None
    assert answer("not waiting > 9") is True
    assert answer("-waiting * 2 + 1 == -9") is True
    assert answer("waiting / 0 > 1") is None


def test_the_rules_of_a_newcomer_can_be_stored_and_read_again() -> None:
    assert len({rule.id for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)
    known = {rule.id for rule in DEFAULT_RULES}
    for rule in DEFAULT_RULES:
        assert msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule
        assert set(rule.held_back_by) <= known - {rule.id}


def test_a_backtest_counts_what_would_have_fired() -> None:
    rule = Rule(
        id="r", name="r", condition=rules.HostLost(), for_seconds=30, keep_seconds=0,
        repeat_seconds=0,
    )  # fmt: skip
    events: list[Event] = [HostJoined(host="h", cpu_cores=1, memory_bytes=1, at=after(0))]
    for day in (1, 3):
        events += [
            HostLost(host="h", silent_seconds=6, at=after(day * 86_400)),
            HostJoined(host="h", cpu_cores=1, memory_bytes=1, at=after(day * 86_400 + 630)),
        ]
    events.append(HostLost(host="h", silent_seconds=6, at=after(5 * 86_400)))
    events.append(HostJoined(host="h", cpu_cores=1, memory_bytes=1, at=after(5 * 86_400 + 10)))
    answer = backtest(rule, events, after(0).timestamp(), after(14 * 86_400).timestamp())
    assert answer.summary == "Would have fired twice in 14 days, 20 min in all; 4 messages."
    assert [one.seconds for one in answer.incidents] == [600.0, 600.0]
    assert answer.incidents[0].began_at == after(86_400 + 30)


def test_a_backtest_overlooks_nothing_between_its_steps() -> None:
    rule = Rule(
        id="r", name="r", condition=rules.DeadLetters(when="first-seen"), for_seconds=0,
        keep_seconds=0,
    )  # fmt: skip
    events: list[Event] = [dead(0), dead(5, kind="ValueError"), dead(7, kind="KeyError")]
    answer = backtest(rule, events, after(-60).timestamp(), after(86_400).timestamp())
    assert answer.fired == 3
    assert [one.began_at for one in answer.incidents] == [after(0), after(60), after(60)]
    assert [one.seconds for one in answer.incidents] == [3600.0] * 3


def test_a_backtest_without_events_says_so() -> None:
    rule = DEFAULT_RULES[0]
    assert backtest(rule, [], 0.0, 86_400.0).summary.startswith("No events are recorded")


def test_a_backtest_of_what_never_happened_says_how_long_that_is_known() -> None:
    rule = Rule(id="r", name="r", condition=rules.HostLost(), for_seconds=30, keep_seconds=0)
    answer = backtest(rule, [], 0.0, 14 * 86_400.0, recorded_since=11 * 86_400.0)
    assert answer.summary == "Would not have fired in 3 days."
    joined = HostJoined(host="h", cpu_cores=1, memory_bytes=1, at=after(86_400))
    begin = after(0).timestamp()
    late = backtest(rule, [joined], begin, begin + 4 * 86_400, recorded_since=begin)
    assert late.examined_days == 4
