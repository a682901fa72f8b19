"""The smallest change of one input that would have changed a decision."""

from __future__ import annotations

import pytest
from tests.unit.decider.given import GIB, NOW, host, inputs, pool, snapshot, state

from penstock.decider.core.counterfactual import Change, Setting, nearest
from penstock.decider.core.decide import decide

EMAILS = pool(strategy="hybrid", sla_seconds=30)
LATE = snapshot(waiting=100, oldest_waiting_seconds=25.0, arrival_per_second=1.0)


def round_of(seen=LATE, one=EMAILS, hosts=None, **placed: int) -> Setting:
    before = state(emails=placed or {"a": 40})
    return Setting(before, inputs([one], [seen], hosts), NOW)


def by_input(found: list[Change]) -> dict[str, Change]:
    """The nearest of each."""
    return {change.input: change for change in reversed(found)}


def target(setting: Setting) -> int:
    return decide(setting.state, setting.inputs, setting.now).decisions[0].target


def test_fewer_waiting_jobs_would_have_been_enough_for_one_worker_less():
    """100 jobs of 2 s in the 5 s that are left take 40; 97 take 39."""
    setting = round_of()
    assert target(setting) == 40
    waiting = by_input(nearest(setting, "emails"))["waiting"]
    assert (waiting.measured, waiting.needed, waiting.target) == (100, 97, 39) or (
        waiting.needed,
        waiting.target,
    ) == (101, 41)


def test_the_nearest_comes_first_and_each_is_true():
    setting = round_of()
    found = nearest(setting, "emails")
    assert [each.distance for each in found] == sorted(each.distance for each in found)
    assert {"waiting", "oldest_waiting_seconds", "service_seconds", "sla_seconds"} <= {
        each.input for each in found
    }
    for each in found:
        assert each.target != 40
        assert each.text.endswith(f", the decision would have been {each.target} workers")


def test_it_is_the_smallest_there_is():
    """One job nearer to what was measured, the number is what it was."""
    setting = round_of()
    for change in nearest(setting, "emails"):
        if change.input == "waiting":
            inner = change.needed + (1 if change.needed < 100 else -1)
            again = round_of(
                snapshot(waiting=round(inner), oldest_waiting_seconds=25.0, arrival_per_second=1.0)
            )
            assert target(again) == 40


def test_room_on_a_host_that_bounds_it():
    small = host(cores=64, memory=2 * GIB)
    setting = round_of(hosts=[small], a=1)
    assert target(setting) < 40
    found = by_input(nearest(setting, "emails"))
    more = found["memory of host a"]
    assert "GiB on host a instead of 2" in more.text
    assert "waiting" not in found or found["waiting"].needed < 100


def test_numbers_that_differ_are_printed_so():
    """2.0004 cores are not "2 cores instead of 2"."""
    setting = round_of(hosts=[host(cores=2.0004, memory=64 * GIB)], a=1)
    for change in nearest(setting, "emails"):
        if change.input.startswith(("cores", "memory")):
            before, _, after = change.text.partition(" instead of ")
            assert after.split(" ")[0].rstrip(",") not in before.split(" "), change.text


def test_that_a_plan_would_have_stayed_what_it_was_is_no_explanation():
    keeps = pool(strategy="deadline", sla_seconds=30)
    setting = round_of(snapshot(workers_ready=1, workers_idle=1), keeps, a=1)
    assert all(
        change.target != change.needed
        for change in nearest(setting, "emails")
        if change.input == "current"
    )


def test_fewer_workers_because_there_were_more_before_is_no_explanation():
    """A plan of more that waits to shrink says nothing about why this one is as it is."""
    keeps = pool(strategy="deadline", sla_seconds=30)
    for placed in range(1, 12):
        setting = round_of(snapshot(workers_ready=placed, workers_idle=placed), keeps, a=placed)
        for change in nearest(setting, "emails"):
            if change.input == "current":
                assert (change.needed > placed) == (change.target > target(setting))


def test_nothing_that_was_measured_matters_where_the_number_is_fixed():
    setting = round_of(one=pool(strategy="fixed", min_workers=3), a=3)
    inputs_that_matter = {change.input for change in nearest(setting, "emails")}
    assert not inputs_that_matter & {"waiting", "arrival_per_second", "sla_seconds"}


def test_an_unknown_pool_has_no_answer():
    assert nearest(round_of(), "other") == []


@pytest.mark.parametrize("pools", [51])
def test_among_many_pools_the_one_alone_is_looked_at(pools: int):
    names = [pool(f"p{number}", strategy="hybrid") for number in range(pools)]
    seen = [snapshot(each.name, arrival_per_second=5.0) for each in names]
    before = state(**{each.name: {"a": 10} for each in names})
    setting = Setting(before, inputs(names, seen, [host(cores=4096, memory=4096 * GIB)]), NOW)
    found = by_input(nearest(setting, "p7"))
    assert found["arrival_per_second"].target in (9, 11)
