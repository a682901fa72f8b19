"""Policies: what each holds, limits and tells; that none can do harm."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.unit.decider.given import pool, took
from tests.unit.decider.playing import play, told

from penstock.config import ConfigError
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies import shipped
from penstock.decider.core.policies.calendar import clock, today, within
from penstock.decider.core.policies.policy import Aftermath, Policy, Verdict
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.events.scaling import PolicySpoke

HOUR = 3600.0
LATE = {"waiting": 50, "oldest_waiting_seconds": 29.0}
BUSY = {"arrival_per_second": 1.0}


def chosen(*names: str, **options: Any):
    """A pool with these policies; options of the last one."""
    table = {names[-1]: options} if options else {}
    return pool(strategy="wants", policies=names, policy_options=table)


def targets(*arguments: Any, **more: Any) -> list[int]:
    return [each.target for each in play(*arguments, **more)]


# --- those that hold the way down ----------------------------------------------------------------
def test_without_policies_the_strategy_gets_what_it_wants():
    assert targets(chosen(), [(0, 8), (1, 1), (2, 9)], start=4) == [8, 1, 9]


def test_no_scale_down_only_grows():
    assert targets(chosen("no-scale-down"), [(0, 3), (1, 9), (2, 0)], start=5) == [5, 9, 9]


def test_aggressive_empties_a_pool_without_load_whatever_is_wanted():
    assert targets(chosen("aggressive"), [(0, 5)], start=8) == [0]
    assert targets(chosen("aggressive"), [(0, 5)], start=8, seen=BUSY) == [5]
    unmeasured = {"arrival_per_second": None}
    assert targets(chosen("aggressive"), [(0, 5)], start=8, seen=unmeasured) == [8]
    assert targets(chosen("aggressive"), [(0, 9)], start=8) == [9]


# --- flap budget ---------------------------------------------------------------------------------
def test_only_so_many_reversals_an_hour():
    twice = chosen("flap-budget", reversals_per_hour=2)
    wanted = [(0, 4), (10, 8), (20, 4), (30, 8), (40, 4), (HOUR + 21, 4)]
    # the first step is no reversal, the second and third are, the fourth is one too many
    assert targets(twice, wanted, start=6) == [4, 8, 4, 4, 4, 4]
    assert targets(twice, [*wanted[:4], (HOUR + 21, 8)], start=6)[-1] == 8


def test_through_a_breach_it_always_goes_up():
    once = chosen("flap-budget", reversals_per_hour=1)
    wanted = [(0, 4), (10, 8), (20, 4), (30, 9), (40, 2)]
    assert targets(once, wanted, start=6, seen=LATE) == [4, 8, 8, 9, 9]


def test_the_flap_budget_outlives_a_leader():
    once = chosen("flap-budget", reversals_per_hour=1)
    wanted = [(0, 4), (10, 8), (20, 4)]
    assert targets(once, wanted, start=6, restart_at=15) == [4, 8, 8]


# --- break-even ----------------------------------------------------------------------------------
@pytest.mark.parametrize("restart_at", [None, 2.5])
def test_a_worker_goes_when_it_was_unneeded_for_what_starting_one_takes(restart_at):
    steps = [(0, 8), (1, 8), (2, 3), (3, 3), (4, 3), (5, 3), (6, 3), (7, 3)]
    slow = {**BUSY, "spawn": took(4.0)}
    found = targets(chosen("break-even"), steps, start=8, seen=slow, restart_at=restart_at)
    assert found == [8, 8, 8, 8, 8, 8, 3, 3]


def test_each_worker_has_a_time_of_its_own():
    steps = [(0, 8), (1, 6), (2, 6), (3, 4), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2)]
    found = targets(chosen("break-even"), steps, start=8, seen={**BUSY, "spawn": took(3.0)})
    assert found == [8, 8, 8, 8, 6, 6, 4, 2, 2]


def test_a_clock_that_goes_back_keeps_workers_rather_than_for_ever():
    steps = [(0, 8), (10, 8), (-3600, 1), (-3599, 1), (-3590, 1)]
    found = targets(chosen("break-even"), steps, start=8, seen={**BUSY, "spawn": took(3.0)})
    assert found == [8, 8, 8, 8, 1]


# --- budget cap ----------------------------------------------------------------------------------
MIDNIGHT = 1_000_080_000.0 - 1_000_080_000.0 % 86400
QUARTER = 900.0
EACH_QUARTER = [(QUARTER * number, 20) for number in range(24 * 4)]


def spent_hours(rounds) -> float:
    return sum(each.target for each in rounds) / 4


@pytest.mark.parametrize("restart_at", [None, 3 * HOUR])
def test_a_day_costs_no_more_than_its_budget(restart_at):
    capped = chosen("budget-cap", worker_hours_per_day=60)
    day = play(capped, EACH_QUARTER, begin=MIDNIGHT, restart_at=restart_at)
    assert 55 <= spent_hours(day) <= 60 + 1
    assert day[0].target == 20
    assert all(later.target <= earlier.target + 1 for earlier, later in pairwise(day))
    assert day[48].rules[-1] == "budget-cap"
    reached = told(day, "BudgetCapReached")
    assert len(reached) == 1
    assert reached[0][1]["worker_hours_per_day"] == 60


def test_money_is_a_budget_too_and_the_minimum_is_paid_for_in_any_case():
    options = {"budget-cap": {"money_per_day": 10, "price_per_worker_hour": 0.5}}
    names = ("budget-cap", "no-scale-down")  # which cannot lift the cap
    capped = pool(strategy="wants", min_workers=3, policies=names, policy_options=options)
    day = play(capped, EACH_QUARTER, begin=MIDNIGHT)
    assert {each.target for each in day} == {3}


def test_a_new_day_has_a_new_budget():
    capped = chosen("budget-cap", worker_hours_per_day=20)
    steps = [(QUARTER * number, 20) for number in range(26 * 4)]
    days = play(capped, steps, begin=MIDNIGHT)
    assert days[23 * 4].target <= 1
    assert days[24 * 4].target >= 15
    assert [at // 86400 for at, _ in told(days, "BudgetCapReached")] == [0, 1]


# --- quiet hours ---------------------------------------------------------------------------------
def berlin(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("moment", "target"),
    [
        ("2026-07-01T21:59", 9),
        ("2026-07-01T22:00", 2),
        ("2026-07-02T05:59", 2),
        ("2026-07-02T06:00", 9),
        ("2026-07-04T23:00", 9),  # saturday: not among its days
        ("2026-07-04T05:00", 2),  # still friday's night
    ],
)
def test_quiet_hours_are_those_of_the_place(moment, target):
    quiet = chosen(
        "quiet-hours",
        time_zone="Europe/Berlin",
        max_workers=2,
        days=["monday", "tuesday", "wednesday", "thursday", "friday"],
    )
    assert targets(quiet, [(0, 9)], start=5, begin=berlin(moment)) == [target]


def test_quiet_hours_leave_the_minimum():
    quiet = pool(strategy="wants", min_workers=3, policies=("quiet-hours",))
    night = berlin("2026-07-02T01:00")
    assert targets(quiet, [(0, 9)], start=5, begin=night) == [3]


def test_a_day_has_the_hours_that_its_clocks_show():
    spring, autumn = berlin("2026-03-29T12:00"), berlin("2026-10-25T12:00")
    assert [
        (day.end - day.start) / HOUR
        for day in (today(t, "Europe/Berlin") for t in (spring, autumn))
    ] == [23, 25]
    whole = within(spring, clock("00:00"), clock("00:00"), ("sunday",), "Europe/Berlin")
    assert whole is True


# --- breach notification -------------------------------------------------------------------------
def test_a_breach_that_lasts_is_told_again_with_what_holds_it():
    held = pool(strategy="wants", max_workers=4, policies=("breach-notification",))
    late = {"waiting": 90, "oldest_waiting_seconds": 60.0}
    rounds = play(held, [(60.0 * minute, 9) for minute in range(12)], seen=late)
    lasting = told(rounds, "SlaBreachLasts")
    assert [at for at, _ in lasting] == [300, 600]
    assert lasting[0][1]["held_by"] == "max_workers"
    assert lasting[0][1]["breached_seconds"] == 300


# --- users' own ----------------------------------------------------------------------------------
def with_own(**hooks: Any):
    return {**SHIPPED, "own": Policy(name="own", **hooks)}


def raising(*_: Any) -> Any:
    raise RuntimeError("no mood")


@pytest.mark.parametrize(
    "before",
    [
        raising,
        lambda proposal: Verdict(workers=-1, text=""),
        lambda proposal: Verdict(workers=2.5, text=""),
        lambda proposal: Verdict(workers=True, text=""),
        lambda proposal: Verdict(workers=10**9, text=""),
        lambda proposal: Verdict(workers=3, text="", values={"x": object()}),
        lambda proposal: "three",
    ],
    ids=["raises", "negative", "broken", "true", "beyond measure", "no values", "no verdict"],
)
def test_one_that_fails_is_reported_and_skipped(before):
    (one,) = play(
        chosen("own", "conservative"), [(0, 2)], start=8, policies=with_own(before=before)
    )
    assert one.rules == ["wants", "own", "conservative"]
    assert "own raised" in one.decision.reasons[1].text
    assert one.target == 6


@pytest.mark.parametrize(
    "aftermath",
    [
        Aftermath(memory={"x": "y" * 10_000}),
        Aftermath(memory={"x": object()}),
        Aftermath(notices=(Notice(event=PolicySpoke, fields={"pool": "emails"}),)),
        Aftermath(
            notices=(
                Notice(
                    event=PolicySpoke, fields={"pool": "e m", "policy": "own", "text": "", "x": 1}
                ),
            )
        ),
        "nothing",
    ],
    ids=["too much", "no values", "not all fields", "no such field", "no aftermath"],
)
def test_nor_does_one_that_fails_afterwards(aftermath):
    own = with_own(after=lambda proposal, result: aftermath)
    (one,) = play(chosen("own"), [(0, 2)], start=8, policies=own)
    assert (one.target, one.rules, one.notices) == (2, ["wants", "own"], ())
    assert one.decision.state.policies == {}


def test_what_one_remembers_comes_back_also_to_another_leader():
    def after(proposal, result):
        count = proposal.memory.get("count", 0) + 1
        fields = {"pool": proposal.pool, "policy": "own", "text": f"{count} times"}
        return Aftermath(
            memory={"count": count}, notices=(Notice(event=PolicySpoke, fields=fields),)
        )

    own = {"own": Policy(name="own", after=after)}
    rounds = play(chosen("own"), [(0, 1), (1, 1), (2, 1)], policies=own, restart_at=1.5)
    assert [fields["text"] for _, fields in told(rounds, "PolicySpoke")] == [
        "1 times",
        "2 times",
        "3 times",
    ]


def test_one_that_is_gone_is_said_and_its_memory_forgotten():
    (one,) = play(chosen("gone"), [(0, 2)], start=1)
    assert one.rules == ["wants", "gone"]
    assert "not installed" in one.decision.reasons[1].text


# --- settings ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"policies": ("budgetcap",)},
            "pools.emails.policies: unknown policy 'budgetcap'; did you mean 'budget-cap'?",
        ),
        ({"policies": ("cooldown", "cooldown")}, "'cooldown' is named twice"),
        ({"policies": ("budget-cap",)}, "expected worker_hours_per_day or money_per_day"),
        (
            {"policy_options": {"flap-budget": {"reversals": 2}}},
            r"\[pools.emails.policy_options.flap-budget\] unknown setting 'reversals'; "
            "did you mean 'reversals_per_hour'",
        ),
        (
            {"policy_options": {"quiet-hours": {"time_zone": "Berlin"}}},
            "policy_options.quiet-hours: found time_zone 'Berlin', expected an IANA name",
        ),
        ({"policy_options": {"quiet-hours": {"start": "ten"}}}, "expected a time of day"),
        ({"policy_options": {"cooldown": {"seconds": 3}}}, "but it takes no settings"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        shipped.check({"emails": pool(**given)}, SHIPPED)


def test_defaults_can_be_used():
    shipped.check({"emails": pool(), "one": pool("one", "exclusive")}, SHIPPED)
