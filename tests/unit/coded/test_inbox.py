"""What an inbox holds, also of signals whose events have left the log."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.workflow import (
    CarriedSignal,
    InboxCarried,
    SignalReceived,
)
from penstock.jobs.payloads.encryption import About, KeyRing
from penstock.jobs.workflows.coded import inbox
from penstock.jobs.workflows.coded.consumed_signals import ConsumedSignals
from penstock.jobs.workflows.coded.inbox import Mark


def sent(name: str = "go", value: bytes = b"v", signal_id: str = "") -> SignalReceived:
    return SignalReceived(workflow_id="w", signal=name, value=value, signal_id=signal_id)


def consumed(*later: int, read_to: int = 0, ids: Sequence[str] = ()) -> ConsumedSignals:
    return ConsumedSignals(read_to, later, ids)


def carried(*signals: CarriedSignal) -> InboxCarried:
    return InboxCarried(workflow_id="w", signals=signals)


def test_carried_signals_are_read_in_the_order_of_their_sending_and_once() -> None:
    one = CarriedSignal(sequence=5, signal="go", value=b"first")
    events: list[tuple[int, Event]] = [
        (50, sent(value=b"third")),
        (60, carried(CarriedSignal(sequence=7, signal="go", value=b"second"), one)),
        (70, carried(one)),
    ]
    assert [signal.value for signal in inbox.unread(events, consumed())] == [
        b"first",
        b"second",
        b"third",
    ]
    assert [signal.value for signal in inbox.unread(events, consumed(5, 50))] == [b"second"]


def test_the_id_of_a_consumed_signal_counts_after_its_event_has_left() -> None:
    before: list[tuple[int, Event]] = [(5, sent(signal_id="a")), (6, sent())]
    left = inbox.kept(before, consumed(5, 6))
    assert [(signal.sequence, signal.signal_id, signal.value) for signal in left] == [(5, "a", b"")]
    after = [(90, carried(*map(inbox.carried, left))), (95, sent(signal_id="a"))]
    assert not inbox.unread(after, consumed(5, 6))


def test_the_id_of_a_signal_that_was_passed_over_is_not_used_up() -> None:
    events: list[tuple[int, Event]] = [
        (5, sent(value=b"clear", signal_id="a")),
        (6, sent(value=b"sealed", signal_id="a")),
        (7, sent(value=b"again", signal_id="a")),
    ]
    passed_over = consumed().and_also((), [5])
    assert [signal.value for signal in inbox.unread(events, passed_over)] == [b"sealed"]
    assert [signal.sequence for signal in inbox.kept(events, passed_over)] == [6]
    assert inbox.mark(events, passed_over) == Mark(5, ())
    assert inbox.mark(events, passed_over.and_also([6])) == Mark(7, ("a",))


def test_what_is_carried_again_is_known_by_its_latest_event() -> None:
    one = CarriedSignal(sequence=5, signal="go", value=b"v")
    [signal] = inbox.kept([(60, carried(one)), (90, carried(one))], consumed())
    assert (signal.sequence, signal.stored_at) == (5, 90)


def test_a_mark_stands_before_the_first_unread_signal_and_keeps_the_ids_before_it() -> None:
    events = [(5, sent(signal_id="a")), (6, sent(signal_id="b")), (7, sent()), (8, sent())]
    assert inbox.mark(events, consumed(5, 6, 8)) == Mark(6, ("a", "b"))
    assert inbox.mark(events, consumed(5, 6, 7, 8)) == Mark(8, ("a", "b"))
    assert inbox.mark([], consumed(read_to=4)) == Mark(4, ())


def test_what_lies_before_the_mark_is_not_unread_and_its_ids_still_count() -> None:
    before = consumed(read_to=6, ids=["a"])
    events: list[tuple[int, Event]] = [
        (7, sent(signal_id="a")),
        (9, carried(CarriedSignal(sequence=3, signal="go", value=b"v"))),
        (10, sent(value=b"new")),
    ]
    assert [signal.value for signal in inbox.unread(events, before)] == [b"new"]
    assert inbox.mark(events, before.and_also([10])) == Mark(10, ())


def test_what_cannot_be_read_is_passed_over_by_the_mark() -> None:
    events: list[tuple[int, Event | UnknownEvent]] = [
        (5, sent()),
        (6, UnknownEvent(type="SignalReceived", raw=b"?", unreadable="no JSON")),
    ]
    assert inbox.mark(events, consumed(5)).read_to == 6


def test_a_copy_of_an_encrypted_signal_counts_once_whatever_its_id() -> None:
    """Somebody without a key stores the approval of yesterday again."""
    about = About(purpose="signal", job="w", function="f", queue="")
    sealed = KeyRing({"k": b"x" * 32}).seal(b"\xc3", about)
    events = [(5, sent(value=sealed, signal_id="a")), (6, sent(value=sealed, signal_id="b"))]
    assert [signal.sequence for signal in inbox.unread(events, consumed())] == [5]
    assert not inbox.unread(events, consumed(5))
    mark = inbox.mark(events[:1], consumed(5))
    later = [(6, sent(value=sealed, signal_id="b"))]
    assert not inbox.unread(later, consumed(read_to=mark.read_to, ids=mark.ids))
