"""What an inbox holds, also of signals whose events have left the log."""

from __future__ import annotations

import pytest

from penstock.events.envelope import Event
from penstock.events.workflow import (
    CarriedSignal,
    InboxCarried,
    SignalReceived,
)
from penstock.events.workflow_memo import MAX_INBOX_BYTES
from penstock.jobs.workflows.coded import inbox


def sent(name: str = "go", value: bytes = b"v", signal_id: str = "") -> SignalReceived:
    return SignalReceived(workflow_id="w", signal=name, value=value, signal_id=signal_id)


def carried(*signals: CarriedSignal) -> InboxCarried:
    return InboxCarried(workflow_id="w", signals=signals)


def test_carried_signals_are_read_in_the_order_of_their_sending_and_once() -> None:
    one = CarriedSignal(sequence=5, signal="go", value=b"first")
    events: list[tuple[int, Event]] = [
        (50, sent(value=b"third")),
        (60, carried(CarriedSignal(sequence=7, signal="go", value=b"second"), one)),
        (70, carried(one)),
    ]
    assert [signal.value for signal in inbox.unread(events, ())] == [b"first", b"second", b"third"]
    assert [signal.value for signal in inbox.unread(events, {5, 50})] == [b"second"]


def test_the_id_of_a_consumed_signal_counts_after_its_event_has_left() -> None:
    before: list[tuple[int, Event]] = [(5, sent(signal_id="a")), (6, sent())]
    left = inbox.kept(before, {5, 6}).signals
    assert [(signal.sequence, signal.signal_id, signal.value) for signal in left] == [(5, "a", b"")]
    after = [(90, carried(*map(inbox.carried, left))), (95, sent(signal_id="a"))]
    assert not inbox.unread(after, {5, 6})


def test_what_is_carried_again_is_known_by_its_latest_event() -> None:
    one = CarriedSignal(sequence=5, signal="go", value=b"v")
    [signal] = inbox.kept([(60, carried(one)), (90, carried(one))], ()).signals
    assert (signal.sequence, signal.stored_at) == (5, 90)


@pytest.mark.parametrize("consumed", [(), {1}])
def test_unread_signals_beyond_the_limits_are_refused_not_those_that_came_first(
    consumed: set[int],
) -> None:
    large = MAX_INBOX_BYTES // 2
    events = [(at, sent(value=b"x" * large)) for at in (1, 2, 3, 4)]
    kept = inbox.kept(events, consumed)
    first = 1 + len(consumed)
    assert [signal.sequence for signal in kept.signals] == [first, first + 1]
    assert kept.refused == 2 - len(consumed)
