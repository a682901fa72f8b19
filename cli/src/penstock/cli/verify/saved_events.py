"""The messages that are judged: read from the broker, or from a file that `--save` wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.bus import records
from penstock.bus.protocol import Bus
from penstock.bus.saved_log import BadLog, Entry, entry, line, outside, read
from penstock.bus.since import first_since
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.jobs.event_store.event_log import begins_at
from penstock.runtime import epochs
from penstock.verifying.checker import Extent

Take = Callable[[Entry], None]
Progress = Callable[[float], None]

_NOUNS = ("job", "batch", "graph")
_MOST_RECORDS = 10_000
"""Of schedules, and of hosts."""
_EXTENT = "penstock.verify"
"""Subject of a file's last line, which holds the extent."""


async def from_broker(
    bus: Bus, subjects: Subjects, since_seconds: float | None, take: Take, progress: Progress
) -> Extent:
    """Hands each message on, as the broker stores them now.

    Args:
        bus: a connection.
        subjects: of the installation.
        since_seconds: the part of the log that is read, up to now; None for all of it.
        take: is called with each message.
        progress: is called with the share of the event log that was read.

    Returns:
        The part that was read.
    """
    before, _ = await begins_at(bus, subjects)
    # The records of schedules first: a tick that is marked as dispatched has its job by then.
    schedules = subjects.state("schedule", "*")
    for stored in await records.read_all(bus, subjects.state_stream, schedules):
        take(outside(entry(stored)))
    # Commands, too: a leader announces itself in the log before it gives any.
    every_host = subjects.command("*")
    for stored in await bus.history(subjects.commands_stream, every_host, _MOST_RECORDS):
        take(entry(stored))
    since = None if since_seconds is None else utc_now() - timedelta(seconds=since_seconds)
    start = 1
    if since is not None:
        start = await first_since(bus, subjects.events_stream, subjects.events(), since)
    async for one in _events(bus, subjects, start, progress):
        take(one)
    reached = await epochs.reached(bus, subjects)  # after the commands: none is ahead of it
    whole_from, whole_since = await begins_at(bus, subjects)
    if start > whole_from:
        return Extent(
            whole_from=start, whole_since=since, trimmed=True, carried=False, reached=reached
        )
    is_shortened = whole_from != before
    return Extent(
        whole_from=whole_from,
        whole_since=whole_since,
        judged_from=whole_from if is_shortened else 1,
        trimmed=whole_from > 1,
        carried=not is_shortened,
        reached=reached,
    )


async def _events(
    bus: Bus, subjects: Subjects, start: int, progress: Progress
) -> AsyncIterator[Entry]:
    stream = subjects.events_stream
    patterns = [subjects.events(noun) for noun in _NOUNS]
    patterns.append(subjects.events("decider", "*", "LeaderChanged"))
    ends = [await bus.last(stream, pattern) for pattern in patterns]
    end = max((stored.sequence for stored in ends if stored), default=0)
    first = max(start, (await bus.extent(stream)).first)
    if end < first:
        return
    async for stored in bus.follow(stream, patterns, start):
        yield entry(stored)
        progress((stored.sequence - first + 1) / (end - first + 1))
        if stored.sequence >= end:
            return


def from_file(path: Path, take: Take, progress: Progress) -> Extent:
    """Hands each message of a file on, and returns the part of the log that they are.

    Raises:
        BadLog: it is no such file, or was cut off.
    """
    size = path.stat().st_size
    extent: Extent | None = None
    with path.open("rb") as file:
        for offset, one in read(file):
            progress(offset / size)
            if one.subject == _EXTENT:
                extent = _extent(offset, one)
            else:
                take(one)
    if extent is None:
        raise BadLog(
            f"{path} does not end with the line that 'penstock verify --save' writes last: it was "
            "cut off, or is another file"
        )
    return extent


def saved(file: BinaryIO, take: Take) -> Take:
    """Writes each message to ``file``, too."""

    def both(one: Entry) -> None:
        file.write(line(one))
        take(one)

    return both


def last_line(extent: Extent) -> bytes:
    """What ends a file of messages."""
    return line(Entry(0, 0.0, _EXTENT, msgspec.Raw(msgspec.json.encode(extent))))


def _extent(offset: int, one: Entry) -> Extent:
    try:
        return msgspec.json.decode(one.body, type=Extent)
    except msgspec.DecodeError as error:
        raise BadLog(f"at byte {offset}: found no extent of a log ({error})") from error
