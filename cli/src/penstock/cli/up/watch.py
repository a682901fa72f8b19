"""Follows snapshots and decisions for the board, and events for the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.bus.protocol import Bus
from penstock.events.envelope import Event
from penstock.events.log_lines import LogChunk
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.views.board_follower import follow_board, follow_events
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
    news = [subjects.events(noun=noun) for noun in NOUNS]

    def take_event(event: Event) -> None:
        if not isinstance(event, ScalingDecisionMade) or event.current != event.target:
            happened(event)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow_board(bus, subjects, board))
        group.create_task(
            follow_events(bus, subjects, subjects.events_stream, news, "new", take_event)
        )
        if wrote is not None:
            group.create_task(_read_lines(bus, subjects, wrote))


async def _read_lines(bus: Bus, subjects: Subjects, wrote: Callable[[LogChunk], None]) -> None:
    async for stored in bus.follow(subjects.logs_stream, [subjects.log_lines("*")], "new"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            wrote(_chunk(stored.body))
