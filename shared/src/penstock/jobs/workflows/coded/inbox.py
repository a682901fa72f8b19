"""The inbox of a workflow: signals in the order in which they were sent, each once. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.workflow import (
    CarriedSignal,
    InboxCarried,
    SignalReceived,
)
from penstock.events.workflow_memo import (
    MAX_INBOX_BYTES,
    MAX_INBOX_SIGNALS,
    ScheduledStep,
)

Events = Iterable[tuple[int, Event | UnknownEvent]]


class Signal(NamedTuple):
    """A value that was sent.

    Attributes:
        sequence: of its event, also where that has left the log.
        value: MessagePack.
        stored_at: sequence of the last event in the log that holds it.
    """

    name: str
    sequence: int
    value: bytes
    signal_id: str = ""
    stored_at: int = 0


class Kept(NamedTuple):
    """What must outlive its events.

    Attributes:
        signals: the last consumed ones that have an id, without value, and unread ones.
        refused: how many unread ones are beyond the limits of an inbox.
    """

    signals: list[Signal]
    refused: int


def unread(events: Events, consumed: Container[int]) -> list[Signal]:
    """Signals that no wait has consumed, oldest first; of those with one id, the first.

    Args:
        consumed: sequences of those that were.
    """
    return [signal for signal in _counted(events) if signal.sequence not in consumed]


def kept(events: Events, consumed: Container[int]) -> Kept:
    """What must be carried on when the events leave the log.

    Args:
        consumed: sequences of the signals that were.
    """
    unread: list[Signal] = []
    used: deque[Signal] = deque(maxlen=MAX_INBOX_SIGNALS)
    size = refused = 0
    for signal in _counted(events):
        if signal.sequence in consumed:
            if signal.signal_id:
                used.append(signal._replace(value=b""))
            continue
        size += len(signal.value)
        if len(unread) >= MAX_INBOX_SIGNALS or size > MAX_INBOX_BYTES:
            refused += 1
        else:
            unread.append(signal)
    return Kept([*used, *unread], refused)


def answered(steps: Iterable[ScheduledStep], signals: Iterable[Signal]) -> dict[int, Signal]:
    """The signal that each open wait will be given, by the number of its step.

    Args:
        steps: that are open.
        signals: unread, oldest first.
    """
    by_name: defaultdict[str, deque[Signal]] = defaultdict(deque)
    for signal in signals:
        by_name[signal.name].append(signal)
    waits = sorted((step for step in steps if step.kind == "signal"), key=lambda step: step.n)
    return {step.n: by_name[step.digest].popleft() for step in waits if by_name[step.digest]}


def _counted(events: Events) -> Iterator[Signal]:
    """Each signal once, in the order of sending; of those with one id, the first."""
    ids: set[str] = set()
    by_sequence: dict[int, Signal] = {}
    for signal in _stored(events):
        by_sequence[signal.sequence] = signal
    for _, signal in sorted(by_sequence.items()):
        if signal.signal_id in ids:
            continue
        if signal.signal_id:
            ids.add(signal.signal_id)
        yield signal


def _stored(events: Events) -> Iterator[Signal]:
    for at, event in events:
        match event:
            case SignalReceived():
                yield Signal(event.signal, at, event.value, event.signal_id, at)
            case InboxCarried():
                for one in event.signals:
                    yield Signal(one.signal, one.sequence, one.value, one.signal_id, at)


def carried(signal: Signal) -> CarriedSignal:
    """A signal as it stands in :class:`InboxCarried`."""
    return CarriedSignal(
        sequence=signal.sequence,
        signal=signal.name,
        value=signal.value,
        signal_id=signal.signal_id,
    )
