"""Reading what happens: snapshots and decisions into the board, news to whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.bus.protocol import Bus
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event, MalformedEvent
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views.pool_board import Board

NOUNS = ("pool", "worker", "host", "decider")
"""What is shown of the event log; single jobs are too many."""


async def watch(
    bus: Bus, subjects: Subjects, board: Board, happened: Callable[[Event], None]
) -> None:
    """Until cancelled. ``happened`` hears each event that is worth a line."""
    snapshots = [subjects.pool_snapshot("*"), subjects.host_snapshot("*")]
    decisions = [subjects.events(noun="pool", name="ScalingDecisionMade")]
    news = [subjects.events(noun=noun) for noun in NOUNS]

    def hear(event: Event) -> None:
        if not isinstance(event, ScalingDecisionMade) or event.current != event.target:
            happened(event)

    async with asyncio.TaskGroup() as group:
        for stream, wanted, start, take in (
            (subjects.snapshots_stream, snapshots, "last", board.take),
            (subjects.events_stream, decisions, "last", board.take),
            (subjects.events_stream, news, "new", hear),
        ):
            group.create_task(_read(bus, stream, wanted, start, take))


async def _read(
    bus: Bus, stream: str, wanted: Sequence[str], start: str, take: Callable[[Event], None]
) -> None:
    async for stored in bus.follow(stream, wanted, start):
        try:
            event = ALL.decode(stored.body)
        except MalformedEvent:
            continue  # its reader complains; a picture of the rest is still right
        if isinstance(event, Event):
            take(event)
