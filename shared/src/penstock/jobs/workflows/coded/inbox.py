"""The inbox of a workflow: signals in the order in which they were sent, each once. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.workflow import (
    CarriedSignal,
    InboxCarried,
    SignalReceived,
)
from penstock.events.workflow_memo import MAX_READ_IDS, ScheduledStep
from penstock.jobs.payloads.encryption import is_sealed
from penstock.jobs.workflows.coded.consumed_signals import ConsumedSignals

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


class Mark(NamedTuple):
    """How far an inbox was used up.

    Attributes:
        read_to: signals up to this sequence were consumed, or passed over.
        ids: of those of them that had one, oldest first.
    """

    read_to: int
    ids: tuple[str, ...]


def unread(events: Events, consumed: ConsumedSignals) -> list[Signal]:
    """Signals that no wait has consumed, oldest first; of those with one id, the first.

    Args:
        events: of the inbox, those after ``consumed.read_to`` at least.
        consumed: those that were.
    """
    return [signal for signal in _counted(events, consumed) if signal.sequence not in consumed]


def sent_at(events: Events) -> dict[int, datetime]:
    """When signals were sent, by sequence; not of those whose events have left the log."""
    return {at: event.at for at, event in events if isinstance(event, SignalReceived)}


def mark(events: Events, consumed: ConsumedSignals) -> Mark:
    """Up to where nothing of an inbox needs to be read again. Args: as of :func:`unread`."""
    read = list(events)
    first_unread = min((one.sequence for one in unread(read, consumed)), default=None)
    signals = {signal.sequence: signal for signal in _stored(read)}
    if first_unread is not None:
        read_to = first_unread - 1
    else:  # what cannot be read, or came twice, is passed over, too
        places = (at for at, event in read if not isinstance(event, InboxCarried))
        read_to = max([consumed.read_to, *places, *signals], default=0)
    passed = [one for at, one in sorted(signals.items()) if consumed.read_to < at <= read_to]
    ids = dict.fromkeys(name for signal in passed for name in _used_ids(signal, consumed))
    return Mark(read_to, tuple(name for name in ids if name not in consumed.ids)[-MAX_READ_IDS:])


def kept(events: Events, consumed: ConsumedSignals) -> list[Signal]:
    """What must be carried on when the events leave the log.

    Args:
        events: of the inbox, those after ``consumed.read_to`` at least.
        consumed: signals that were.

    Returns:
        Unread signals; of consumed ones those that have an id, without their value.
    """
    signals = [
        signal._replace(value=b"", signal_id=next(iter(_used_ids(signal, consumed)), ""))
        if signal.sequence in consumed
        else signal
        for signal in _counted(events, consumed)
    ]
    return [one for one in signals if one.sequence not in consumed or one.signal_id]


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


def _counted(events: Events, consumed: ConsumedSignals) -> Iterator[Signal]:
    """Each signal once, in the order of sending; of those with one id, the first.

    One that was passed over uses up no id: else any key that may signal could keep out, by a value
    of another type or in clear, the signal that the workflow waits for.
    """
    ids = set(consumed.ids)
    by_sequence: dict[int, Signal] = {}
    for signal in _stored(events):
        by_sequence[signal.sequence] = signal
    for sequence, signal in sorted(by_sequence.items()):
        if sequence <= consumed.read_to or not ids.isdisjoint(_ids(signal)):
            continue
        ids.update(_used_ids(signal, consumed))
        yield signal


def _used_ids(signal: Signal, consumed: ConsumedSignals) -> Iterable[str]:
    return () if signal.sequence in consumed.refused else _ids(signal)


def _ids(signal: Signal) -> Iterator[str]:
    """What makes it the same as another one.

    An encrypted value has one of its own: a copy of it, which needs no key, is not sent again.
    """
    if signal.signal_id:
        yield signal.signal_id
    if is_sealed(signal.value):
        yield f"sealed:{hashlib.blake2b(signal.value, digest_size=16).hexdigest()}"


def _stored(events: Events) -> Iterator[Signal]:
    for at, event in events:
        match event:
            case SignalReceived():
                yield Signal(event.signal, at, event.value, event.signal_id, at)
            case InboxCarried():
                for one in event.signals:
                    yield Signal(one.signal, one.sequence, one.value, one.signal_id, at)


def without_value(signal: SignalReceived) -> SignalReceived:
    """One that was consumed, of which only the ids still count."""
    if is_sealed(signal.value):
        return signal
    return msgspec.structs.replace(signal, value=b"")


def carried(signal: Signal) -> CarriedSignal:
    """A signal as it stands in :class:`InboxCarried`."""
    return CarriedSignal(
        sequence=signal.sequence,
        signal=signal.name,
        value=signal.value,
        signal_id=signal.signal_id,
    )
