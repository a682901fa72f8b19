"""Two recorded days of an installation lead to exactly the messages that an oracle expects.

The record is made by the decider's own code (see :mod:`tests.integration.recorded_days`): budgets
burn at every pace, hosts are lost, jobs die of new failures, measurements stop in the middle. Two
consoles stand for leader over a real broker; leaders are killed while they send, and receivers are
slow, fail, and take what they do not confirm.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from tests.integration.alert_player import EVENT_MARK, SNAPSHOT_MARK, Change, Player
from tests.integration.alert_receivers import Entry, Hold, Receivers, check_exact, receivers
from tests.integration.recorded_days import HOUR, INTERVAL_SECONDS, MINUTE, Recorded, record
from tests.making import MakeSettings

from penstock.bus.nats import NatsBus, connect
from penstock.console.core.alerts import rules
from penstock.console.core.alerts.rules import Rule
from penstock.decider.simulator.model.engine import POOL
from penstock.events.envelope import Event
from penstock.events.job import JobDead
from penstock.events.scaling import PromiseBurning
from penstock.events.snapshot import Budget, PoolSnapshot
from penstock.events.worker import HostJoined, HostLost
from penstock.jobs.dead_letters.fingerprint import fingerprint

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
STALE_SECONDS = 30.0
BUSY_JOBS = 60
MOST_MINUTES = 30
"""After the end: what failed is given to the fallback 755 s after it was made."""
MAILED_HOST = "h3"
FAST, SLOW, LOST, MAILED, BUSY, NEW = RULES = (
    Rule(
        id="fast", name="It burns fast", condition=rules.Burn(pace="fast"), for_seconds=67.0,
        keep_seconds=331.0, channels=("hook",), repeat_seconds=0,
    ),
    Rule(
        id="slow", name="It burns", condition=rules.Burn(pace="slow"), for_seconds=307.0,
        keep_seconds=613.0, channels=("slow",), repeat_seconds=0,
    ),
    Rule(
        id="lost", name="A host is lost", condition=rules.HostLost(), for_seconds=31.0,
        keep_seconds=127.0, channels=("hook",), repeat_seconds=0,
    ),
    Rule(
        id="mailed", name="A host is lost", condition=rules.HostLost(host=MAILED_HOST),
        for_seconds=31.0, keep_seconds=127.0, channels=("mail",), repeat_seconds=0,
    ),
    Rule(
        id="busy", name="Busy", condition=rules.Expression(text=f"waiting > {BUSY_JOBS}"),
        for_seconds=43.0, keep_seconds=617.0, channels=("dead",), repeat_seconds=0,
    ),
    Rule(
        id="new", name="A new failure", condition=rules.DeadLetters(when="first-seen"),
        for_seconds=0, keep_seconds=61.0, channels=("hook",), repeat_seconds=0,
    ),
)  # fmt: skip
Line = list[tuple[float, bool | None]]
"""From which time on a condition holds, does not, or is not known (None)."""


# --- the oracle -----------------------------------------------------------------------------------
def played_times(recorded: Recorded) -> list[float]:
    """All times at which the consoles look: those of the record, and of a clock between them."""
    times = {one.at.timestamp() for one in (*recorded.snapshots, *recorded.events)}
    ordered = sorted(times | {recorded.end})
    filled = []
    for at, following in pairwise(ordered):
        filled.append(at)
        while filled[-1] + 2 * INTERVAL_SECONDS < following:
            filled.append(filled[-1] + INTERVAL_SECONDS)
    return [*filled, recorded.end]


def conditions(recorded: Recorded, times: Sequence[float]) -> dict[tuple[str, str], Line]:
    """By rule and what it is about: when its condition changed."""
    lines: dict[tuple[str, str], Line] = {}
    snapshot: PoolSnapshot | None = None
    measured_at = float("-inf")
    lost: set[str] = set()
    deaths: dict[str, list[float]] = {}
    waiting = sorted((*recorded.snapshots, *recorded.events), key=lambda one: one.at)
    waiting.reverse()
    for now in times:
        while waiting and waiting[-1].at.timestamp() <= now:
            match event := waiting.pop():
                case PoolSnapshot():
                    snapshot, measured_at = event, event.at.timestamp()
                case PromiseBurning():
                    measured_at = event.at.timestamp()
                    assert snapshot is not None
                    assert event.pace == _pace(snapshot.budget)
                case HostLost():
                    lost.add(event.host)
                case HostJoined():
                    lost.discard(event.host)
                case JobDead():
                    deaths.setdefault(fingerprint(event.error), []).append(now)
        is_known = now - measured_at <= STALE_SECONDS
        budget = snapshot.budget if snapshot else None
        current: dict[tuple[str, str], bool | None] = {
            (FAST.id, POOL): _pace(budget) in ("fast", "spent") if is_known else None,
            (SLOW.id, POOL): _pace(budget) != "" if is_known else None,
            (BUSY.id, POOL): bool(snapshot and snapshot.waiting > BUSY_JOBS) if is_known else None,
            (MAILED.id, MAILED_HOST): MAILED_HOST in lost,
        }
        current |= {(LOST.id, host): host in lost for host in ("h1", "h2", "h3")}
        for kind, died in deaths.items():
            is_of_late = any(now - HOUR < at for at in died)
            current[NEW.id, kind] = is_of_late and now - died[0] <= HOUR
        for key, value in current.items():
            line = lines.setdefault(key, [(times[0], False)])
            if line[-1][1] is not value:
                line.append((now, value))
    return lines


def _pace(budget: Budget | None) -> str:
    """By the page on metrics: used up; six times the pace that the window allows; twice that."""
    if budget is None:
        return ""
    if budget.remaining_share < 0:
        return "spent"
    if budget.burn_rate_short >= 6:
        return "fast"
    return "slow" if budget.burn_rate_long >= 2 else ""


class Incident(NamedTuple):
    """When an alert fired, and when it was resolved."""

    fired_at: float
    resolved_at: float


def incidents(line: Line, rule: Rule, end: float) -> list[Incident]:
    """What becomes of a condition; time in which it is not known counts for nothing."""
    found: list[Incident] = []
    phase, left, fired_at = "off", 0.0, 0.0
    for (at, is_met), (following, _) in pairwise([*line, (end, None)]):
        if is_met is None:
            continue
        if is_met and phase == "off":
            phase, left = "pending", rule.for_seconds
        elif is_met and phase == "kept":
            phase = "firing"
        elif not is_met and phase == "pending":
            phase = "off"
        elif not is_met and phase == "firing":
            phase, left = "kept", rule.keep_seconds
        lasts = following - at
        if phase in ("pending", "kept") and left <= lasts:
            if phase == "pending":
                phase, fired_at = "firing", at + left
            else:
                phase = "off"
                found.append(Incident(fired_at, at + left))
        left -= lasts
    assert phase == "off", f"{rule.id} does not end"
    return found


# --- playing --------------------------------------------------------------------------------------
class Beat(NamedTuple):
    """What is stored before the consoles are waited for; a condition changes at its end at most."""

    at: float
    stored: list[PoolSnapshot | float]
    events: list[Event]


def beats(recorded: Recorded, times: Sequence[float], changes: set[float]) -> Iterator[Beat]:
    """The record in parts, each ended by an event or by a change of a condition."""
    snapshots = {one.at.timestamp(): one for one in recorded.snapshots}
    events: dict[float, list[Event]] = {}
    for one in recorded.events:
        events.setdefault(one.at.timestamp(), []).append(one)
    stored: list[PoolSnapshot | float] = []
    before = times[0]
    for now in times:
        if now in events:
            if stored:
                yield Beat(before, stored, [])
            yield Beat(now, [snapshots[now]] if now in snapshots else [], events[now])
            stored = []
            continue
        stored.append(snapshots.get(now, now))
        before = now
        if now in changes or now == times[-1]:
            yield Beat(now, stored, [])
            stored = []
    for minute in range(1, MOST_MINUTES):  # what failed is tried again
        now = recorded.end + minute * MINUTE
        yield Beat(now, [now], [])


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


async def play(player: Player, beat: Beat, before: float) -> float:
    """Stores a part; returns the time until which the leader has acted."""
    snapshots = [
        one if isinstance(one, PoolSnapshot) else player.clock(_instant(one)) for one in beat.stored
    ]
    if snapshots:
        before = snapshots[-1].at.timestamp()
        await player.store(snapshots)
        await player.pass_until(snapshots[-1].at, [SNAPSHOT_MARK.id])
    if beat.events:
        before = beat.at
        await player.store(beat.events)
        await player.pass_until(_instant(beat.at), [EVENT_MARK.id])
    return before


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(settings(), makes_streams=True)
    yield bus
    await bus.close()


@pytest.mark.long
@pytest.mark.parametrize(("hours", "kills", "seed"), [pytest.param(48, 8, 2, id="two days")])
async def test_messages_of_recorded_days_are_those_of_the_oracle(
    settings: MakeSettings, bus: NatsBus, tmp_path: Path, hours: float, kills: int, seed: int
) -> None:
    recorded = record(BEGIN, hours, seed)
    times = played_times(recorded)
    lines = conditions(recorded, times)
    by_id: Mapping[str, Rule] = {rule.id: rule for rule in RULES}
    expected = {
        (rule, about): incidents(line, by_id[rule], recorded.end)
        for (rule, about), line in lines.items()
    }
    assert {rule for (rule, _), found in expected.items() if found} == set(by_id)
    changes = {at for line in lines.values() for at, _ in line}
    plan = list(beats(recorded, times, changes))
    hooked = sorted(
        at for (rule, _), found in expected.items() if rule in ("fast", "lost", "new")
        for one in found for at in one
    )  # fmt: skip
    kill_at = set(Random(seed).sample(hooked[:-1], kills))
    async with receivers(seed) as to:
        player = Player(bus, settings(), tmp_path, to)
        await player.configure(RULES, {"dead": "spare"})
        try:
            player.start()
            player.start()
            frozen = await play_all(player, to, plan, kill_at, partial(is_frozen, lines))
        finally:
            player.stop()
    assert frozen, "no alert was frozen"
    assert player.kills == kills
    assert {_rounded(change) for change in await player.history(by_id)} == {
        (kind, rule, about, round(at, 3))
        for (rule, about), found in expected.items()
        for one in found
        for kind, at in (("firing", one.fired_at), ("resolved", one.resolved_at))
    }
    for channel, sent_by in {
        "hook": ("fast", "lost", "new"), "slow": ("slow",), "mail": ("mailed",), "spare": ("busy",),
    }.items():  # fmt: skip
        messages = Counter(
            {
                Entry(kind, about): len(found)
                for (rule, about), found in expected.items()
                if rule in sent_by and found
                for kind in ("firing", "resolved")
            }
        )
        check_exact(channel, to.requests, messages, player.kills)
    assert not [one for one in to.requests if one.channel == "dead" and one.is_taken]
    fired = Counter(rule for (rule, _), found in expected.items() for _ in found)
    faults = Counter(one.fault for one in to.requests)
    sys.stdout.write(
        f"{len(recorded.snapshots)} snapshots, {len(recorded.events)} events; fired: "
        f"{dict(fired)}; requests: {dict(faults)}; {kills} kills, {frozen} times seen frozen\n"
    )


def _rounded(change: Change) -> tuple[str, str, str, float]:
    return change.kind, change.rule, change.about, round(change.at.timestamp(), 3)


def is_frozen(lines: Mapping[tuple[str, str], Line], key: tuple[str, str], at: float) -> float:
    """Since when a condition is not known at a time; 0 where it is."""
    since, value = next(one for one in reversed(lines[key]) if one[0] <= at)
    return since if value is None else 0.0


async def play_all(
    player: Player,
    to: Receivers,
    plan: Sequence[Beat],
    kill_at: set[float],
    frozen_since: Callable[[tuple[str, str], float], float],
) -> int:
    """All parts; a leader is killed while it sends what falls due at each of ``kill_at``.

    Returns:
        How often an alert that fires was seen frozen.
    """
    at, frozen, kills, end = plan[0].at, 0, 0, plan[-MOST_MINUTES].at
    hold: Hold | None = None
    for beat in plan:
        if beat.at > end and not (hold or player.record.outgoing):
            break
        kills += sum(at < due <= beat.at for due in kill_at)
        if kills and hold is None:
            hold = to.hold("hook")
        at = await play(player, beat, at)
        if hold is not None and hold.came.is_set():
            await player.kill_leader()
            hold.released.set()
            hold, kills = None, kills - 1
            await player.pass_until(_instant(at))  # no time passes without a leader
        for rule in (FAST, SLOW, BUSY):
            alert = player.alert(rule.id, phase="firing")
            if alert is not None:
                since = frozen_since((rule.id, POOL), at)
                assert (alert.frozen_since or 0.0) == pytest.approx(since, abs=1e-3)
                frozen += bool(since)
    assert not player.record.outgoing
    return frozen
