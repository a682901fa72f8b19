"""How much of the log lives, judged by what passes over its old end carried."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.orchestrator.core.logbook import Logbook, Pass

LIMIT = 1_000
NOW = 1_000_000.0
OLD = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=2)


def _living(book: Logbook) -> int | None:
    return book.facts(NOW, LIMIT, 0.0).living_bytes


def test_before_a_pass_nothing_is_said_of_what_lives() -> None:
    book = Logbook(LIMIT)
    book.passed(NOW, Pass(0, 0), held=900)  # it was cut short
    assert _living(book) is None


def test_what_lives_is_its_share_of_what_left_the_log() -> None:
    book = Logbook(LIMIT)
    book.passed(NOW, Pass(removed=100, carried=10), held=900)
    assert _living(book) == 90


def test_what_the_same_pass_carried_does_not_stand_for_the_whole_log() -> None:
    """Given jobs that live and were dispatched together, so that one pass in ten carries them."""
    book = Logbook(LIMIT)
    for number in range(30):
        book.passed(NOW, Pass(removed=100, carried=0 if number % 10 else 90), held=900)
        if number > 10:
            assert _living(book) in (0, 90)


def test_passes_of_a_turnover_before_are_forgotten() -> None:
    book = Logbook(LIMIT)
    for _ in range(10):
        book.passed(NOW, Pass(removed=100, carried=100, oldest=OLD), held=900)
    assert (_living(book), book.facts(NOW, LIMIT, 0.0).oldest_living_seconds) == (900, 7200)
    for _ in range(10):
        book.passed(NOW, Pass(removed=100, carried=0), held=900)
    assert (_living(book), book.facts(NOW, LIMIT, 0.0).oldest_living_seconds) == (0, None)


def test_many_small_passes_are_remembered_as_few() -> None:
    book = Logbook(LIMIT)
    for _ in range(5_000):
        book.passed(NOW, Pass(removed=1, carried=0), held=1_000_000)
    assert len(book._passes) <= 5_000 / (LIMIT * 0.01) + 1


def test_all_that_was_stored_is_counted_whatever_left_meanwhile() -> None:
    book = Logbook(LIMIT)
    book.facts(NOW, 900, 0.0)
    book.passed(NOW + 1800, Pass(removed=5_000, carried=0), held=900)
    assert book.facts(NOW + 3600, 900, 0.0).growth_per_hour == 5_000
