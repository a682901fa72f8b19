"""What a console that is behind leaves out, and when it takes it up again."""

from __future__ import annotations

from penstock.console.core.shedding import PUSH, SECONDS, TEXTS, held_back


def test_texts_go_first_then_the_finest_points_and_live_pages_last() -> None:
    assert held_back(3.0, ()) == ()
    assert held_back(3.1, ()) == (TEXTS,)
    assert held_back(5.1, (TEXTS,)) == (TEXTS, SECONDS)
    assert held_back(10.1, (TEXTS, SECONDS)) == (TEXTS, SECONDS, PUSH)


def test_it_does_not_flap() -> None:
    assert held_back(6.0, (TEXTS, SECONDS, PUSH)) == (TEXTS, SECONDS, PUSH)
    assert held_back(4.9, (TEXTS, SECONDS, PUSH)) == (TEXTS, SECONDS)
    assert held_back(2.4, (TEXTS, SECONDS)) == (TEXTS,)
    assert held_back(1.4, (TEXTS,)) == ()
