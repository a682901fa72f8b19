"""A message counts as the event of its subject alone, and no later than it was stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing, Stored
from penstock.console.alerts.feed import Feed
from penstock.events.envelope import Event, encode
from penstock.events.orders import HostDrained, PoolHeld
from penstock.events.scaling import PromiseBurning
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import HostLost
from penstock.jobs.event_store.event_of_subject import event_of_subject
from penstock.runtime.tasks import within
from penstock.testing.memory.bus import MemoryBus
from penstock.views.board_follower import follow_board
from penstock.views.pool_board import Board, read_board

SUBJECTS = Subjects()
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOST = HostSnapshot(host="h", at=NOW, cpu_cores=1, memory_bytes=1)
POOL = PoolSnapshot(pool="p", at=NOW, queues=("p",), waiting=1)
HELD = PoolHeld(pool="p", at=NOW, until=NOW, at_least=1)
DRAINED = HostDrained(host="h", at=NOW)
LOST = HostLost(host="h", at=NOW, silent_seconds=6)
BURNING = PromiseBurning(
    pool="p", at=NOW, pace="fast", budget=Budget(sla_seconds=1, quantile=0.9, window_seconds=1e308)
)
WORKERS_SUBJECT = SUBJECTS.events("job", "X", "JobDead")


def stored(event: Event, subject: str) -> Stored:
    return Stored(subject, 1, NOW, encode(event))


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (HOST, SUBJECTS.host_snapshot("h")),
        (POOL, SUBJECTS.pool_snapshot("p")),
        (HELD, SUBJECTS.state("hold", "p")),
        (DRAINED, SUBJECTS.state("host", "h")),
        (LOST, SUBJECTS.event(LOST)),
        (HELD, SUBJECTS.event(HELD)),
    ],
)
def test_an_event_of_its_subject_is_read(event: Event, subject: str) -> None:
    assert event_of_subject(stored(event, subject), SUBJECTS) == event


@pytest.mark.parametrize("event", [HOST, POOL, HELD, DRAINED, LOST, BURNING])
@pytest.mark.parametrize(
    "subject",
    [
        WORKERS_SUBJECT,
        SUBJECTS.host_snapshot("other"),
        SUBJECTS.pool_snapshot("h"),
        SUBJECTS.state("hold", "h"),
        SUBJECTS.state("host", "p"),
        SUBJECTS.events("host", "other", "HostLost"),
        SUBJECTS.events("host", "h", "HostJoined"),
    ],
)
def test_an_event_at_another_subject_is_none(event: Event, subject: str) -> None:
    assert event_of_subject(stored(event, subject), SUBJECTS) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"type": "Later"}', b"[" * 5_000])
def test_what_is_no_event_is_none(body: bytes) -> None:
    assert event_of_subject(Stored(WORKERS_SUBJECT, 1, NOW, body), SUBJECTS) is None


def test_an_event_is_no_later_than_it_was_stored() -> None:
    late = HostLost(host="h", at=datetime(9998, 1, 1, tzinfo=UTC), silent_seconds=6)
    read = event_of_subject(stored(late, SUBJECTS.event(late)), SUBJECTS)
    assert read is not None
    assert read.at == NOW
    early = HostLost(host="h", at=NOW - timedelta(days=1), silent_seconds=6)
    assert event_of_subject(stored(early, SUBJECTS.event(early)), SUBJECTS) == early


async def test_alerts_take_no_event_from_a_job_s_subject() -> None:
    bus = MemoryBus()
    for event in (HOST, LOST, BURNING):
        await bus.append(Outgoing(WORKERS_SUBJECT, encode(event)))
    feed = Feed(bus, SUBJECTS, lambda: None)
    await within(5, _until_complete(feed))
    assert (feed.world.hosts, feed.world.pools) == ({}, {})


async def _until_complete(feed: Feed) -> None:
    following = asyncio.create_task(feed.run())
    try:
        await feed.is_complete.wait()
    finally:
        following.cancel()


async def test_boards_take_no_snapshot_from_another_subject() -> None:
    bus = MemoryBus()
    await bus.append(Outgoing(SUBJECTS.host_snapshot("other"), encode(HOST)))
    await bus.append(Outgoing(SUBJECTS.pool_snapshot("p"), encode(POOL)))
    assert (set((await read_board(bus, SUBJECTS)).hosts)) == set()

    board = Board()
    following = asyncio.create_task(follow_board(bus, SUBJECTS, board))
    try:
        await eventually(lambda: "p" in board.pools, 5, "the pool's snapshot")
    finally:
        following.cancel()
    assert board.hosts == {}
