"""The inbox of a workflow: signals in the order in which they were sent, each once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.workflow import SignalReceived


class Signal(NamedTuple):
    """A value that was sent.

    Attributes:
        sequence: of its event.
        value: MessagePack.
    """

    name: str
    sequence: int
    value: bytes


def unread(
    events: Iterable[tuple[int, Event | UnknownEvent]], consumed: Collection[int]
) -> list[Signal]:
    """Signals that no wait has consumed, oldest first; of those with one id, the first.

    Args:
        consumed: sequences of those that were.
    """
    signals: list[Signal] = []
    ids: set[str] = set()
    for sequence, event in events:
        if not isinstance(event, SignalReceived) or (event.signal_id and event.signal_id in ids):
            continue
        ids.add(event.signal_id)
        if sequence not in consumed:
            signals.append(Signal(event.signal, sequence, event.value))
    return signals
