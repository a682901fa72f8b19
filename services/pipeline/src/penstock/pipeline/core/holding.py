"""The right to write to a lake: the record that a run keeps there, and how others judge it."""

from __future__ import annotations

import msgspec

LEASE_SECONDS = 30.0
"""A run that has not renewed its record for so long is taken to be dead."""
BEAT_SECONDS = 3.0


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that writes.

    Attributes:
        host: its name, for messages.
        pid: of the process.
        place: kernel and process namespace that ``pid`` belongs to.
        born: when that process began, in seconds since 1970; distinguishes a reused ``pid``.
    """

    host: str
    pid: int
    place: str
    born: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the lake. ``beats``: how often it was renewed. ``over``: the holder let go."""

    holder: Holder
    epoch: int
    beats: int = 0
    over: bool = False


class LakeTaken(RuntimeError):
    """Another run writes to this lake, or took it over: which one, and what to do."""

    def __init__(self, lake: str, record: Record) -> None:
        holder = record.holder
        super().__init__(
            f"the lake {lake} is being written to by process {holder.pid} on {holder.host} "
            f"(epoch {record.epoch}); one run at a time may do so: end that one first"
        )


def is_free(record: Record | None, silent_seconds: float, holder_is_gone: bool) -> bool:
    """Whether a lake may be taken.

    Args:
        record: the newest one; None where there is none, or none that can be read.
        silent_seconds: for how long it has been seen unchanged.
        holder_is_gone: this machine knows that the process has ended.
    """
    if silent_seconds >= LEASE_SECONDS:
        return True
    return record is not None and (record.over or holder_is_gone)


def may_act(now: float, renewed_at: float) -> bool:
    """A holder stops by itself, before another one can start. Both in monotonic seconds."""
    return now < renewed_at + LEASE_SECONDS * 2 / 3
