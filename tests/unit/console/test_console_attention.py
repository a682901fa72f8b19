"""What needs attention, as sentences, the most urgent first."""

from __future__ import annotations

from typing import Any

from penstock.console.core.attention import DeadGroup, Facts, UnservedQueue, attention
from penstock.console.core.promises import Promise, burn_rate, kept_share, used_up_in_seconds
from penstock.events.snapshot import Budget


def promise(**fields: Any) -> Promise:
    known = {"pool": "reports", "kind": "queue", "sla_seconds": 30.0, "quantile": 0.95}
    return Promise(**{**known, "state": "ok", **fields})


def test_nothing_needs_attention_while_promises_are_kept() -> None:
    assert attention(Facts(promises=[promise(budget_left_share=0.9, burn_rate=0.5)])) == []


def test_the_most_urgent_comes_first_and_each_says_what_it_means() -> None:
    facts = Facts(
        promises=[
            promise(
                pool="imports", budget_left_share=0.3, burn_rate=7.1, used_up_in_seconds=19_200
            ),
            promise(state="late", oldest_waiting_seconds=41.0),
        ],
        lost_hosts=["h2"],
        dead=[DeadGroup(function="load", error_kind="builtins.TimeoutError", jobs=1204)],
        unserved=[UnservedQueue(queue="mail", waiting=1, is_paused=True)],
        gap="history before event 5 was removed",
    )
    assert [(one.kind, one.text) for one in attention(facts)] == [
        ("late", "reports: the oldest job has waited 41 s; 30 s are promised."),
        (
            "burning",
            "imports: at this pace the budget of late jobs is used up in 5 h 20 min (burning 7.1 "
            "times as fast as allowed).",
        ),
        ("host-lost", "Host h2 is silent: its share of the workers moved to other hosts."),
        ("dead", "1,204 jobs of load died within the last hour: TimeoutError."),
        ("paused", "Queue mail is paused: 1 job waits."),
        ("gap", "Older history is not shown: history before event 5 was removed."),
    ]


def test_a_budget_at_rate_one_lasts_its_window() -> None:
    budget = Budget(
        sla_seconds=30, quantile=0.99, window_seconds=86_400, jobs=1000, late=4, burn_rate_short=2.0
    )
    assert kept_share(budget) == 0.996
    assert burn_rate(budget) == 2.0
    assert used_up_in_seconds(budget) == 43_200


def test_each_failure_leads_to_its_group_and_a_paused_queue_is_named_without_jobs() -> None:
    dead = [
        DeadGroup(function="load", error_kind=kind, jobs=1, fingerprint=group)
        for kind, group in (("KeyError", "f1"), ("OSError", "f2"))
    ]
    facts = Facts(dead=dead, unserved=[UnservedQueue(queue="mail", waiting=0, is_paused=True)])
    assert [(one.link, one.text) for one in attention(facts)] == [
        ("/failures/f1", "1 job of load died within the last hour: KeyError."),
        ("/failures/f2", "1 job of load died within the last hour: OSError."),
        ("/queues/mail", "Queue mail is paused: no job waits yet."),
    ]
