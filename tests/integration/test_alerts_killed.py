"""The messages of alerts are exact: leaders are killed while they send, receivers fail.

Two consoles stand for leader over a real broker. Hosts are lost and come back, a pool is busy, by a
seed; the consoles' time is that of the events, so that two days pass in minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from tests.integration.alert_player import Player
from tests.integration.alert_receivers import Entry, Receivers, check_exact, receivers
from tests.making import MakeSettings

from penstock.bus.nats import NatsBus, connect
from penstock.console.core.alerts import rules
from penstock.console.core.alerts.rules import Rule
from penstock.events.envelope import Event
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import HostJoined, HostLost

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MINUTE = 60.0
FOR, KEEP = 90.0, 330.0
"""No multiple of a minute: nothing is due at the time of an event."""
QUIET_MINUTES = 30
"""At the end: what failed is given to the fallback 755 s after it was made."""
HOSTS = {"h1": (20, 200), "h2": (5, 40), "h3": (5, 40)}
"""For how many minutes at a time each is there; of the first come mails, which take seconds."""
LOST = Rule(
    id="lost", name="A host is lost", condition=rules.HostLost(), for_seconds=FOR,
    keep_seconds=KEEP, channels=("hook",), repeat_seconds=0,
)  # fmt: skip
MAILED = Rule(
    id="mailed", name="A host is lost", condition=rules.HostLost(host="h1"), for_seconds=FOR,
    keep_seconds=KEEP, channels=("mail",), repeat_seconds=0,
)  # fmt: skip
BUSY = Rule(
    id="busy", name="Busy", condition=rules.Expression(text="waiting > 100", pool="reports"),
    for_seconds=FOR, keep_seconds=KEEP, channels=("dead",), repeat_seconds=0,
)  # fmt: skip


class Minute(NamedTuple):
    """One minute of the story. ``waiting`` None: the pool is not measured."""

    lost: frozenset[str]
    waiting: int | None


def story(minutes: int, seed: int) -> list[Minute]:
    """Which hosts are lost, and how busy the pool is, minute by minute; quiet at the end.

    The pool's measurements stop only a while after it became busy or idle.
    """
    random = Random(seed)
    lost = {host: _stretches(random, minutes, there, (1, 20)) for host, there in HOSTS.items()}
    busy = _stretches(random, minutes, (12, 60), (8, 40))
    blind = set[int]()
    for minute in range(3, minutes):
        is_settled = len(set(busy[minute - 3 : minute])) == 1
        if is_settled and random.random() < 0.05:
            blind |= set(range(minute, minute + random.randint(2, 5)))
    eventful = [
        Minute(
            frozenset(host for host in HOSTS if lost[host][at]),
            None if at in blind else 200 * busy[at],
        )
        for at in range(minutes)
    ]
    return eventful + [Minute(frozenset(), 0)] * QUIET_MINUTES


def _stretches(
    random: Random, minutes: int, off: tuple[int, int], on: tuple[int, int]
) -> list[bool]:
    line: list[bool] = []
    while len(line) < minutes:
        line += [False] * random.randint(*off) + [True] * random.randint(*on)
    return line[:minutes]


def incidents(line: Iterable[bool | None]) -> list[tuple[float, float]]:
    """When one alert fires and resolves, seconds after the beginning. None: not known."""
    fires: list[tuple[float, float]] = []
    met_since: float | None = None
    ended_at: float | None = None
    for minute, is_met in enumerate(line):
        at = minute * MINUTE
        if met_since is not None and ended_at is not None and at >= ended_at + KEEP:
            fires.append((met_since + FOR, ended_at + KEEP))
            met_since = ended_at = None
        if is_met:
            met_since, ended_at = at if met_since is None else met_since, None
        elif is_met is False and met_since is not None and ended_at is None:
            ended_at = at
            if ended_at < met_since + FOR:
                met_since = ended_at = None  # it never fired
    assert met_since is None
    return fires


async def play_minute(player: Player, number: int, minute: Minute, before: Minute) -> None:
    """Stores what happens in a minute, and waits until the leader has acted on it."""
    at = BEGIN + timedelta(minutes=number)
    events: list[Event] = [
        HostLost(host=host, silent_seconds=6, at=at) for host in sorted(minute.lost - before.lost)
    ]
    events += [
        HostJoined(host=host, cpu_cores=1, memory_bytes=1, at=at)
        for host in sorted(before.lost - minute.lost)
    ]
    if minute.waiting is not None:
        snapshot = PoolSnapshot(pool="reports", queues=("reports",), waiting=minute.waiting, at=at)
        events.append(snapshot)
    await player.store(events)
    await player.pass_until(at)


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(settings(), makes_streams=True)
    yield bus
    await bus.close()


@pytest.mark.parametrize(
    ("minutes", "kills", "seed"),
    [
        pytest.param(75, 2, 28, id="an hour"),
        pytest.param(48 * 60, 24, 1, id="two days", marks=pytest.mark.long),
    ],
)
async def test_messages_are_exact_while_leaders_are_killed_and_receivers_fail(
    settings: MakeSettings, bus: NatsBus, tmp_path: Path, minutes: int, kills: int, seed: int
) -> None:
    plan = story(minutes, seed)
    random = Random(seed)
    kill_at = set(random.sample(range(10, minutes), kills))
    async with receivers(seed) as to:
        player = Player(bus, settings(), tmp_path, to)
        await player.configure((LOST, MAILED, BUSY), {"dead": "spare"})
        try:
            player.start()
            player.start()
            await play(player, to, plan, kill_at)
        finally:
            player.stop()
    lines = {host: incidents(host in one.lost for one in plan) for host in HOSTS}
    busy = incidents(_known(one.waiting) for one in plan)
    assert busy
    assert lines["h1"]
    expected = {
        *(("lost", host, at) for host, line in lines.items() for at, _ in line),
        *(("busy", "reports", at) for at, _ in busy),
    }
    fired = {
        (change.rule, change.about, (change.at - BEGIN).total_seconds())
        for change in await player.history((LOST.id, BUSY.id))
        if change.kind == "firing"
    }
    assert fired == expected
    sent = Counter(
        {
            Entry(kind, host): len(line)
            for host, line in lines.items()
            if line
            for kind in ("firing", "resolved")
        }
    )
    check_exact("hook", to.requests, sent, player.kills)
    mailed = Counter({entry: count for entry, count in sent.items() if entry.about == "h1"})
    check_exact("mail", to.requests, mailed, player.kills)
    twice = Counter({Entry(kind, "reports"): len(busy) for kind in ("firing", "resolved")})
    check_exact("spare", to.requests, twice, player.kills)
    assert not [one for one in to.requests if one.channel == "dead" and one.is_taken]


def _known(waiting: int | None) -> bool | None:
    return None if waiting is None else waiting > 100


async def play(player: Player, to: Receivers, plan: list[Minute], kill_at: set[int]) -> None:
    """All minutes; a leader is killed while the first message after each of ``kill_at`` is sent."""
    before, holds = Minute(frozenset(), 0), []
    blind = 0
    for number, minute in enumerate(plan):
        if number in kill_at:
            holds.append(to.hold("hook"))
        await play_minute(player, number, minute, before)
        if holds and holds[0].came.is_set():
            await player.kill_leader()
            holds.pop(0).released.set()
            await play_minute(player, number, minute, minute)  # no time passes without a leader
        blind = blind + 1 if minute.waiting is None else 0
        if blind > 1 and (alert := player.alert("busy", phase="firing")) is not None:
            began = (BEGIN + timedelta(minutes=number - blind + 1)).timestamp()
            assert alert.frozen_since == began
        before = minute
    end = BEGIN + timedelta(minutes=len(plan))
    for number in range(len(plan), len(plan) + 2 * QUIET_MINUTES):
        if not player.record.outgoing:
            break
        await play_minute(player, number, before, before)
    assert not player.record.outgoing, f"not sent at {end}"
