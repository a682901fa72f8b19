"""A run whose queries get stuck goes on with a fresh Java, but not for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.pipeline.core.patience import BARREN_SESSIONS
from penstock.pipeline.lake.restarting import QueryFailed, Stuck, in_sessions, reason


def sessions(*ends: QueryFailed | str) -> Callable[[], str]:
    left = iter(ends)

    def one() -> str:
        end = next(left)
        if isinstance(end, QueryFailed):
            raise end
        return end

    return one


def test_it_ends_after_some_sessions_in_a_row_without_a_batch() -> None:
    barren, fruitful = Stuck("events: broken", 0), Stuck("events: broken", 3)
    few = [barren] * (BARREN_SESSIONS - 1)
    assert in_sessions(sessions(*few, "caught up")) == "caught up"
    assert in_sessions(sessions(*few, fruitful, *few, "caught up")) == "caught up"
    with pytest.raises(Stuck, match="events: broken"):
        in_sessions(sessions(*few, fruitful, *few, barren, "never"))


def test_what_no_session_can_change_ends_it_at_once() -> None:
    with pytest.raises(QueryFailed, match="no such stream"):
        in_sessions(sessions(QueryFailed("events: no such stream"), "never"))


def test_of_an_error_of_javas_the_reason_is_told() -> None:
    java = "Lost task 0.0: java.io.OptionalDataException\n" + "\tat java.base/x(Y.java:1)\n" * 50
    assert reason(f"{java}\n=== Streaming Query ===\nIdentifier: events") == java.partition("\n")[0]


def test_of_an_error_of_pythons_the_reason_is_told() -> None:
    stack = 'Traceback (most recent call last):\n  File "/x/link.py", line 7\n    raise it\n'
    why = "penstock.bus.protocol.BusRefused: permissions violation"
    assert reason(f"Task 0.0 failed\n{stack}{why}\n\tat x(Y.java:1)") == f"Task 0.0 failed\n{why}"
