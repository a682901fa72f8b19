"""Whose inbox is read when, where some are large."""

from __future__ import annotations

from collections import Counter

from penstock.orchestrator.workflows.suspended.inbox_pace import InboxPace

LARGE = 10_000


def test_a_small_inbox_is_read_whenever_there_is_a_reason() -> None:
    pace = InboxPace()
    for now in (0.0, 0.0, 0.1):
        assert pace.allows("small", now)
        pace.was_read("small", 3, now)


def test_a_large_one_is_read_once_a_second_until_it_is_small() -> None:
    pace = InboxPace()
    pace.was_read("large", LARGE, 0.0)
    assert not pace.allows("large", 0.9)
    assert pace.allows("large", 1.0)
    assert not pace.allows("large", 1.0)
    pace.was_read("large", 0, 1.0)
    assert pace.allows("large", 1.0)


def test_many_large_ones_take_turns_and_leave_the_small_ones_alone() -> None:
    pace = InboxPace()
    flooded = [f"flooded-{number}" for number in range(20)]
    for key in flooded:
        pace.was_read(key, LARGE, 0.0)
    reads: Counter[str] = Counter()
    for tenth in range(10, 1_010):
        now = tenth / 10
        assert pace.allows("small", now)
        for key in flooded:
            if pace.allows(key, now):
                reads[key] += 1
                pace.was_read(key, LARGE, now)
    assert sum(reads.values()) <= 100 * 4
    assert set(reads) == set(flooded) and max(reads.values()) - min(reads.values()) <= 2


def test_inboxes_that_nothing_came_for_are_forgotten() -> None:
    pace = InboxPace()
    for number in range(1_000):
        pace.was_read(f"flooded-{number}", LARGE, float(number))
    assert len(pace._next) < 100
