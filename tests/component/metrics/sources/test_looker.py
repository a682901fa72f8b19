"""The task that looks at a source: what it hands on, how it backs off, what it reports."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.config.load import check
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.events.envelope import encode
from penstock.events.snapshot import PoolSnapshot
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.looker import MOST_BACKOFF_SECONDS, SourceLooker
from penstock.metrics.patterns import NAMES_SECONDS
from penstock.metrics.sources import MOST_NAMES, SourceAway, SourceFault, SourceLook
from penstock.testing.sources import SimulatedSystem

TABLE = SourceTable(kind="simulated", timeout_seconds=30)
HASTY = SourceTable(kind="simulated", timeout_seconds=0.2)


def meter_of(*queues: str, **more: Any) -> SourceMeter:
    pool = {"source": "shop", "command": ["true"], "kind": "group", "queues": queues, **more}
    tree = {"sources": {"shop": {"kind": "simulated"}}, "pools": {"mails": pool}}
    [made] = pools(check(tree)).values()
    return SourceMeter(made, 60.0, 1.0)


def looker_of(
    system: SimulatedSystem, *meters: SourceMeter, table: SourceTable = TABLE
) -> SourceLooker:
    return SourceLooker("shop", table, meters, lambda *_: system.open())


def snapshot_of(meter: SourceMeter) -> PoolSnapshot | None:
    now = time.monotonic()
    meter.observe(now)
    return meter.snapshot(now, datetime.now(UTC), {"id": "1", "source": "t"}, "tick")


async def test_a_look_becomes_the_pools_figures() -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    assert snapshot_of(meter) is None
    await looker.look()
    snapshot_of(meter)
    await system.put(5)
    await system.take(2)
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.running, snapshot.source) == (3, 2, "shop")
    assert snapshot.queues == ("mail",)
    assert snapshot.oldest_waiting_seconds == pytest.approx(0.0, abs=1.0)
    assert "arrival_per_second" not in snapshot.estimated
    assert "oldest_waiting_seconds" not in snapshot.estimated


@pytest.mark.parametrize(
    ("figures", "estimated"),
    [
        ({"claimed": 1, "ended": 0}, set()),
        ({"claimed": 1}, {"ended", "throughput_per_second"}),
        ({"ended": 0}, {"running"}),
        ({"claimed": 1, "ended": 0, "exact": False}, {"ended", "running", "throughput_per_second"}),
    ],
)
async def test_what_runs_and_ended_is_estimated_where_the_system_does_not_count_it(
    figures: dict[str, Any], estimated: set[str]
) -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    system.reports = {"mail": SourceLook(waiting=2, **figures)}
    await looker_of(system, meter).look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert {"ended", "running", "throughput_per_second"} & set(snapshot.estimated) == estimated


async def test_what_the_source_knows_to_be_stuck_does_not_wait_and_caps_add_up() -> None:
    system, meter = SimulatedSystem(), meter_of("mail", "low")
    looker = looker_of(system, meter)
    seen = SourceLook(waiting=500, stuck=480, oldest_seconds=3.0, arrived=900, ended=400, cap=4)
    system.reports = {"mail": seen, "low": SourceLook(waiting=1, cap=2)}
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.stuck, snapshot.cap) == (21, 480, 6)
    system.reports["low"] = SourceLook(waiting=1)
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.cap is None


async def test_a_fault_leaves_the_last_look_with_its_age_and_backs_off(monkeypatch) -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    await system.put(5)
    assert await looker.look() == TABLE.look_seconds
    await system.stop()
    pauses = [await looker.look() for _ in range(9)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2 * TABLE.look_seconds, MOST_BACKOFF_SECONDS)
    later = time.monotonic() + 100
    snapshot = meter.snapshot(later, datetime.now(UTC), {"id": "1", "source": "t"}, "tick")
    assert snapshot is not None
    assert snapshot.waiting == 5
    assert snapshot.queue_age_seconds >= 99
    assert "stopped" in snapshot.source_fault
    assert await system.connections() == 0
    await system.start()
    assert await looker.look() == TABLE.look_seconds
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.source_fault == ""


async def test_before_the_first_look_there_is_no_figure() -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    await system.stop()
    await looker_of(system, meter).look()
    assert snapshot_of(meter) is None


async def test_a_fault_is_reported_once_and_its_end_too(caplog) -> None:
    caplog.set_level(logging.INFO, "penstock.metrics")
    system, meter = SimulatedSystem(), meter_of("mail", "gone")
    looker = looker_of(system, meter)
    for _ in range(5):
        await looker.look()
    assert len(caplog.records) == 1
    assert "'gone' cannot be measured: no such queue" in caplog.text
    system.reports["gone"] = SourceLook(waiting=0)
    await looker.look()
    await looker.look()
    assert len(caplog.records) == 2
    assert "'gone' can be measured again" in caplog.text


async def test_another_fault_of_the_same_queue_is_reported_too(caplog) -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    for text in ("no such program", "disk gone", "no such program", "disk gone"):
        system.reports["mail"] = SourceFault(text)
        await looker.look()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no such program",
        "disk gone",
    ]


async def test_a_source_that_cannot_be_made_is_made_when_it_can(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO, "penstock.metrics")
    secret, meter = tmp_path / "secret", meter_of("mail")
    program = ("sh", "-c", 'echo "{\\"mail\\": {\\"waiting\\": 3}}"')
    table = SourceTable(kind="command", command=program, secret_file=str(secret))
    looker = SourceLooker("shop", table, [meter])
    assert await looker.look() == 2 * table.look_seconds
    assert await looker.look() == 4 * table.look_seconds
    assert meter.source_queues[0].fault.startswith("sources.shop.secret_file")
    assert len(caplog.records) == 1
    secret.write_text("s3cret")
    secret.chmod(0o600)
    assert await looker.look() == table.look_seconds
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.source_fault) == (3, "")


async def test_a_fault_from_the_start_stands_beside_what_an_earlier_process_saw() -> None:
    system, earlier = SimulatedSystem(), meter_of("mail")
    await system.put(5)
    await looker_of(system, earlier).look()
    last = snapshot_of(earlier)
    assert last is not None
    meter = meter_of("mail")
    meter.remember(last, time.monotonic(), silent_seconds=100.0)
    assert snapshot_of(meter) is None  # nothing is known to be wrong yet
    await system.stop()
    await looker_of(system, meter).look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert "stopped" in snapshot.source_fault
    assert (snapshot.waiting, snapshot.source) == (5, "shop")
    assert snapshot.queue_age_seconds >= 100
    other = meter_of("mail", "other")  # its queues are not those of the snapshot
    other.remember(last, time.monotonic(), silent_seconds=0.0)
    await looker_of(system, other).look()
    assert snapshot_of(other) is None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (SourceAway("no route to cache"), "no route to cache"),
        (RuntimeError("plug-in broke, password=hunter2"), "RuntimeError: plug-in broke"),
        (ConnectionResetError("reset"), "reset"),
    ],
)
async def test_no_exception_of_a_source_ends_the_task_and_no_secret_is_shown(
    fault, text, caplog
) -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    await looker.look()
    system.faults.append(fault)
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert text in snapshot.source_fault
    assert "hunter2" not in snapshot.source_fault + caplog.text
    assert await system.connections() == 0


async def test_a_look_that_takes_too_long_is_given_up() -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    await looker_of(system, meter).look()
    system.slow_seconds = 3_600.0
    hasty = looker_of(system, meter, table=HASTY)
    await asyncio.wait_for(hasty.look(), 60)
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert "no answer within 0.2 s" in snapshot.source_fault
    assert await system.connections() == 1  # of the first looker, which goes on


async def test_figures_that_cannot_be_are_a_fault_of_that_queue() -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    await system.put(3)
    await looker.look()
    system.reports["mail"] = SourceLook(waiting=-5)
    assert await looker.look() == TABLE.look_seconds
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.waiting == 3
    assert "waiting = -5" in snapshot.source_fault


async def test_counters_that_begin_anew_are_no_arrivals() -> None:
    system, meter = SimulatedSystem(), meter_of("mail")
    looker = looker_of(system, meter)
    await system.put(1000)
    for _ in range(3):
        await looker.look()
        snapshot_of(meter)
    system.restart()
    await looker.look()
    assert meter.source_queues[0].arrived is None
    snapshot_of(meter)
    await system.put(2)
    await looker.look()
    assert meter.source_queues[0].arrived == 2


async def test_a_fault_of_the_system_in_a_queue_does_not_hide_the_others() -> None:
    system, mail, other = SimulatedSystem(), meter_of("mail"), meter_of("other")
    system.reports["other"] = SourceFault("it is being moved")
    looker = looker_of(system, mail, other)
    await system.put(1)
    await looker.look()
    assert snapshot_of(mail) is not None
    assert snapshot_of(other) is None


# --- patterns -----------------------------------------------------------------------------------
async def test_a_pattern_is_measured_as_the_sum_of_the_queues_that_it_names() -> None:
    system, meter = SimulatedSystem(), meter_of("mail-*", "mail")
    system.reports = {f"mail-{nth}": SourceLook(waiting=nth, claimed=1) for nth in range(4)}
    system.reports["other"] = SourceLook(waiting=1_000)
    await system.put(10)
    await looker_of(system, meter).look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.running) == (16, 4)
    assert snapshot.queues == ("mail-*", "mail")
    assert snapshot.source_fault == ""


async def test_a_queue_named_by_itself_is_in_no_pattern_of_another_pool() -> None:
    system, some, vip = SimulatedSystem(), meter_of("mail-*"), meter_of("mail-vip")
    system.reports = {"mail-vip": SourceLook(waiting=7), "mail-a": SourceLook(waiting=1)}
    await looker_of(system, some, vip).look()
    found = [snapshot_of(meter) for meter in (some, vip)]
    assert [snapshot.waiting for snapshot in found if snapshot] == [1, 7]


async def test_a_queue_of_a_pattern_that_goes_away_ends_without_a_fault(caplog) -> None:
    system, meter = SimulatedSystem(), meter_of("m*")
    looker = looker_of(system, meter)
    system.reports = {"m1": SourceLook(waiting=1), "m2": SourceLook(waiting=2)}
    await looker.look()
    looker._patterns._read_at = time.monotonic() - 10
    del system.reports["m2"]
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.source_fault, caplog.messages) == (1, "", [])
    assert "m2" not in looker._patterns.names


async def test_a_queue_of_a_pattern_that_is_there_and_cannot_be_read_is_a_fault() -> None:
    system, meter = SimulatedSystem(), meter_of("m*")
    looker = looker_of(system, meter)
    system.reports = {"m1": SourceLook(waiting=1), "m2": SourceFault("wrong type")}
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.waiting == 1
    assert snapshot.source_fault == "1 of 3 queues, e.g. 'm2': wrong type"


async def test_new_queues_of_a_pattern_are_seen_when_its_names_are_read_again() -> None:
    system, meter = SimulatedSystem(), meter_of("m*")
    looker = looker_of(system, meter)
    await looker.look()
    system.reports = {"m1": SourceLook(waiting=5)}
    await looker.look()
    assert set(looker._patterns.names) == {"mail"}
    looker._patterns._read_at = time.monotonic() - NAMES_SECONDS
    await looker.look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.waiting == 5


async def test_no_more_queues_than_a_look_can_read_are_counted_and_that_is_shown() -> None:
    system, meter = SimulatedSystem(), meter_of("m*")
    system.reports = {f"m{nth}": SourceLook(waiting=1) for nth in range(MOST_NAMES + 5)}
    await looker_of(system, meter).look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert snapshot.waiting == MOST_NAMES
    assert "only so many are counted" in snapshot.source_fault
    assert "waiting" in snapshot.estimated
    assert len(encode(snapshot)) < 3_000


async def test_a_pattern_that_matches_nothing_is_logged_once(caplog) -> None:
    system, meter = SimulatedSystem(), meter_of("mial-*")
    looker = looker_of(system, meter)
    for _ in range(3):
        await looker.look()
        looker._patterns._read_at = None
    assert caplog.messages == ["source shop: 'mial-*' matches no queue yet"]
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert (snapshot.waiting, snapshot.source_fault) == (0, "")


async def test_a_kind_that_lists_no_queues_is_a_fault_that_says_so() -> None:
    class Unlisted:
        async def look(self, queues: Any) -> Any:
            return {}

        async def close(self) -> None: ...

    system, meter = SimulatedSystem(), meter_of("m*")
    await system.put(1)
    await looker_of(system, meter).look()
    await SourceLooker("shop", TABLE, [meter], lambda *_: Unlisted()).look()
    snapshot = snapshot_of(meter)
    assert snapshot is not None
    assert "cannot list queues" in snapshot.source_fault
