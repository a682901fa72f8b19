"""Keeps a board of pools and hosts at the present, for as long as a screen or a page shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.bus.protocol import Bus
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects
from penstock.jobs.event_store.event_of_subject import event_of_subject
from penstock.operations import orders
from penstock.views.pool_board import Board


async def follow_board(
    bus: Bus, subjects: Subjects, board: Board, took: Callable[[Event], None] = lambda _: None
) -> None:
    """Follows snapshots, decisions and orders until cancelled.

    Args:
        bus: a connection.
        subjects: of the installation.
        board: takes them.
        took: called with each of them after the board took it.
    """

    def take(event: Event) -> None:
        board.take(event)
        took(event)

    snapshots = [subjects.pool_snapshot("*"), subjects.host_snapshot("*")]
    decisions = [subjects.events(noun="pool", name="ScalingDecisionMade")]
    async with asyncio.TaskGroup() as group:
        for stream, wanted in (
            (subjects.snapshots_stream, snapshots),
            (subjects.events_stream, decisions),
            (subjects.state_stream, orders.patterns(subjects)),
        ):
            group.create_task(follow_events(bus, subjects, stream, wanted, "last", take))


async def follow_events(
    bus: Bus,
    subjects: Subjects,
    stream: str,
    wanted: Sequence[str],
    start: str,
    take: Callable[[Event], None],
) -> None:
    """Passes on each event that this version can read, and that is of its subject; until cancelled.

    Args:
        bus: a connection.
        subjects: of the installation.
        stream: that is followed.
        wanted: patterns of subjects.
        start: ``last`` for the last of each subject and what follows, ``new`` for what follows.
        take: called with each event.
    """
    async for stored in bus.follow(stream, wanted, start):
        if (event := event_of_subject(stored, subjects)) is not None:
            take(event)
