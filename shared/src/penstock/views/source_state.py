"""The system that a pool's queues are in: its faults, what is estimated, what is stuck."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.events.snapshot import PoolSnapshot, SourceUnread
from penstock.views import wording

ESTIMATED = "≈"
"""Before a figure that was worked out, not read from the system."""
_DASHES = "-\N{EN DASH}"
"""In place of a figure that is not known."""


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """What the last measurement of a pool says of the system that its queues are in.

    Attributes:
        name: of the table ``[sources.NAME]``.
        fault: why one of the queues could not be looked at; empty where each could. The figures
            are those of the last look.
        age_seconds: age of the figures; None before the first look at all queues.
        estimated: fields of the pool's snapshot that were worked out, not read from the system.
        stuck: messages that wait there and are not counted as waiting: none came, started or ended
            for a minute though workers were idle.
    """

    name: str
    fault: str = ""
    age_seconds: float | None = None
    estimated: tuple[str, ...] = ()
    stuck: int = 0


def source_state(
    name: str, snapshot: PoolSnapshot | SourceUnread | None, now: datetime
) -> SourceState | None:
    """The state of a pool's source, None where its queues are our own.

    Args:
        name: the source in the pool's settings; empty for none.
        snapshot: the last one of the pool, or why there is none; None before the first.
        now: the instant that ages are counted to.
    """
    if not name:
        return None
    if isinstance(snapshot, SourceUnread) and snapshot.of_source == name:
        return SourceState(name=name, fault=snapshot.source_fault)
    # Another source is that of the pool as it was set before.
    if not isinstance(snapshot, PoolSnapshot) or snapshot.source != name:
        return SourceState(name=name)
    since_snapshot = max(0.0, (now - snapshot.at).total_seconds())
    return SourceState(
        name=name,
        fault=snapshot.source_fault,
        age_seconds=since_snapshot + snapshot.queue_age_seconds,
        estimated=snapshot.estimated,
        stuck=snapshot.stuck,
    )


def marked(text: str, source: SourceState | None, field: str) -> str:
    """``≈12`` of ``12`` where the figure is estimated.

    Args:
        text: the figure in words; the dash of an unknown one is left as it is.
        source: of the pool; None for queues of our own.
        field: of the pool's snapshot, which the figure comes from.
    """
    is_estimated = source is not None and field in source.estimated
    return f"{ESTIMATED}{text}" if is_estimated and text not in _DASHES else text


def fault(source: SourceState | None) -> str:
    """What is wrong with the source and how old the figures are; empty where nothing is."""
    if source is None:
        return ""
    if source.age_seconds is None and source.fault:
        return f"source {source.name}: {source.fault.rstrip('.')}; it was never measured"
    if source.age_seconds is None:
        return (
            f"source {source.name}: not measured yet; the log of the metrics service has the "
            "reason if this lasts"
        )
    if not source.fault:
        return ""
    return (
        f"source {source.name}: {source.fault.rstrip('.')}; the figures are "
        f"{wording.seconds(source.age_seconds)} old"
    )


def stuck(source: SourceState | None) -> str:
    """How many messages are stuck; empty where none is."""
    if source is None or not source.stuck:
        return ""
    messages = "1 message is" if source.stuck == 1 else f"{source.stuck:,} messages are"
    return (
        f"source {source.name}: {messages} stuck and not counted as waiting: nothing moved for a "
        "minute though workers were idle; check that the pool's command takes this queue"
    )


def remarks(source: SourceState | None) -> tuple[str, ...]:
    """What a reader of the pool's figures has to know of its source, a phrase each."""
    return tuple(filter(None, (fault(source), stuck(source))))
