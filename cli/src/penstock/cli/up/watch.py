"""Follows snapshots and decisions for the board, and events for the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from penstock.bus.protocol import Bus
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event, MalformedEvent
from penstock.events.log_lines import LogChunk
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.operations import orders
from penstock.views.pool_board import Board

_chunk = msgspec.json.Decoder(LogChunk).decode

NOUNS = ("pool", "worker", "host", "decider")
"""Events that the screen shows; single jobs are too many."""


async def watch(
    bus: Bus,
    subjects: Subjects,
    board: Board,
    happened: Callable[[Event], None],
    wrote: Callable[[LogChunk], None] | None = None,
) -> None:
    """Follows the streams until cancelled.

    Args:
        bus: a connection.
        subjects: of the installation.
        board: takes snapshots and decisions.
        happened: called with each event that is worth a line.
        wrote: called with the lines of jobs; None where they are not stored, or not shown.
    """
    snapshots = [subjects.pool_snapshot("*"), subjects.host_snapshot("*")]
    decisions = [subjects.events(noun="pool", name="ScalingDecisionMade")]
    news = [subjects.events(noun=noun) for noun in NOUNS]

    def take_event(event: Event) -> None:
        if not isinstance(event, ScalingDecisionMade) or event.current != event.target:
            happened(event)

    async with asyncio.TaskGroup() as group:
        for stream, wanted, start, take in (
            (subjects.snapshots_stream, snapshots, "last", board.take),
            (subjects.events_stream, decisions, "last", board.take),
            (subjects.state_stream, orders.patterns(subjects), "last", board.take),
            (subjects.events_stream, news, "new", take_event),
        ):
            group.create_task(_read(bus, stream, wanted, start, take))
        if wrote is not None:
            group.create_task(_read_lines(bus, subjects, wrote))


async def _read(
    bus: Bus, stream: str, wanted: Sequence[str], start: str, take: Callable[[Event], None]
) -> None:
    async for stored in bus.follow(stream, wanted, start):
        try:
            event = ALL.decode(stored.body)
        except MalformedEvent:
            continue  # the service that reads it logs an error; the rest is still right
        if isinstance(event, Event):
            take(event)


async def _read_lines(bus: Bus, subjects: Subjects, wrote: Callable[[LogChunk], None]) -> None:
    async for stored in bus.follow(subjects.logs_stream, [subjects.log_lines("*")], "new"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            wrote(_chunk(stored.body))
