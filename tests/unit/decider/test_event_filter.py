"""Which decisions become events."""

from __future__ import annotations

from penstock.decider.publishing.event_filter import EventFilter
from penstock.events.scaling import Reason, ScalingDecisionMade


def decision(target: int, current: int, rule: str = "hybrid.steady") -> ScalingDecisionMade:
    reason = Reason(step="strategy", rule=rule, workers=target, text="…")
    return ScalingDecisionMade(
        pool="p", current=current, target=target, reasons=(reason,), strategy="x", sla_seconds=1
    )


def told(news: EventFilter, made: ScalingDecisionMade, now: float, urgent: bool = False) -> bool:
    return bool(news.pick([made], {"p"} if urgent else set(), now))


def test_the_first_is_told_and_the_same_only_after_a_while() -> None:
    news = EventFilter(5.0)
    assert told(news, decision(2, 2), 100.0)
    assert not told(news, decision(2, 2), 101.0)
    assert not told(news, decision(2, 2), 104.9)
    assert told(news, decision(2, 2), 105.0)
    assert not told(news, decision(2, 2), 106.0)


def test_a_change_of_number_or_reason_is_told_at_once() -> None:
    news = EventFilter(5.0)
    assert told(news, decision(2, 2), 100.0)
    assert told(news, decision(3, 2), 100.1)
    assert told(news, decision(3, 3, "hybrid.drain"), 100.2)
    assert not told(news, decision(3, 3, "hybrid.drain"), 100.3)


def test_what_another_event_names_is_told() -> None:
    news = EventFilter(5.0)
    assert told(news, decision(2, 2), 100.0)
    assert told(news, decision(2, 2), 100.1, urgent=True)


def test_a_clock_that_went_back_hides_nothing() -> None:
    news = EventFilter(5.0)
    assert told(news, decision(2, 2), 100.0)
    assert told(news, decision(2, 2), 50.0)
