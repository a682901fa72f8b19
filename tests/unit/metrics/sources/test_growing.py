"""Counters of RabbitMQ: they only grow within an epoch, and miss nothing that one of two shows."""

from __future__ import annotations

from penstock.metrics.core.sources.growing import Counts, GrowingCounts


def _arrived(counts: GrowingCounts, *figures: tuple[int, int, int]) -> list[int]:
    return [counts.arrived(Counts(*one)) for one in figures]


def test_what_publishers_sent_counts_also_where_it_was_purged() -> None:
    counts = GrowingCounts()
    assert _arrived(counts, (5, 100, 90), (8, 103, 90), (0, 103, 90), (1, 104, 90)) == [0, 3, 3, 4]


def test_what_was_dead_lettered_into_the_queue_counts_too() -> None:
    counts = GrowingCounts()
    assert _arrived(counts, (0, 10, 10), (5, 10, 10), (2, 10, 13), (0, 10, 17)) == [0, 5, 5, 7]


def test_figures_of_different_instants_do_not_count_twice() -> None:
    """Ends are shown before the depth is, then the depth before what was published."""
    counts = GrowingCounts()
    assert _arrived(counts, (10, 10, 0), (10, 10, 4), (6, 10, 4), (9, 10, 4), (9, 13, 4)) == [
        0, 4, 4, 4, 4,
    ]  # fmt: skip


def test_counters_that_fell_begin_another_epoch() -> None:
    counts = GrowingCounts()
    assert _arrived(counts, (5, 100, 90), (5, 101, 91)) == [0, 1]
    assert counts.epoch == 0
    assert _arrived(counts, (5, 2, 0), (6, 3, 0)) == [0, 1]
    assert counts.epoch == 1


def test_only_figures_that_were_there_begin_anew() -> None:
    counts = GrowingCounts()
    counts.begin_anew()
    assert counts.epoch == 0
    _arrived(counts, (5, 100, 90))
    counts.begin_anew()
    counts.begin_anew()
    assert counts.epoch == 1
    assert _arrived(counts, (9, 200, 90)) == [0]
