"""Snapshots, hosts and decisions, folded into rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from rich.console import Console

from penstock.cli.scaling.pool import budget
from penstock.cli.up.table import picture
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot, PoolWorkers
from penstock.views.pool_board import Board, PoolRow
from penstock.views.wording import UNKNOWN

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOLS = pools(check({"pools": {"reports": {"sla_seconds": 5}}})).values()


def host(name: str = "a", age: float = 1.0, **workers: int) -> HostSnapshot:
    counts = PoolWorkers(**{"planned": 3, "started": 2, "ready": 1, **workers})
    at = NOW - timedelta(seconds=age)
    return HostSnapshot(
        host=name, at=at, cpu_cores=4, memory_bytes=8 << 30, pools={"reports": counts}
    )


def snapshot(age: float = 1.0, **measured: object) -> PoolSnapshot:
    known = {"pool": "reports", "queues": ("reports",), "waiting": 7, **measured}
    return PoolSnapshot(at=NOW - timedelta(seconds=age), **known)


def decision(target: int = 3) -> ScalingDecisionMade:
    reason = Reason(step="bounds", rule="max", workers=target, text="at most 3 allowed")
    return ScalingDecisionMade(
        pool="reports", current=1, target=target, reasons=(reason,), strategy="h", sla_seconds=5
    )


def row(*events: object) -> PoolRow:
    board = Board()
    for event in events:
        board.take(event)
    [found] = board.pool_rows(POOLS, lease_seconds=6, now=NOW)
    return found


def test_a_pool_nothing_is_known_of() -> None:
    found = row()
    assert (found.state, found.waiting, found.target, found.started) == (
        "unknown",
        None,
        None,
        0,
    )


def test_the_three_sets_are_summed_over_hosts_and_kept_apart() -> None:
    found = row(host("a"), host("b", ready=2))
    assert (found.planned, found.started, found.ready) == (6, 4, 3)


def test_a_host_silent_for_too_long_does_not_count() -> None:
    assert row(host("a"), host("b", age=7)).started == 2


def test_a_decision_gives_target_and_reason() -> None:
    found = row(snapshot(), host(), decision())
    assert (found.target, found.reason, found.state) == (3, "at most 3 allowed", "short")


def test_an_older_snapshot_changes_nothing() -> None:
    assert row(snapshot(age=1, waiting=7), snapshot(age=2, waiting=9)).waiting == 7


def test_states() -> None:
    assert row(snapshot(oldest_waiting_seconds=6)).state == "late"
    assert row(snapshot(oldest_waiting_seconds=4)).state == "ok"
    spent = Budget(sla_seconds=5, quantile=0.95, window_seconds=86_400, remaining_share=-0.2)
    assert row(snapshot(budget=spent)).state == "spent"
    assert row(snapshot(budget=replace(spent, remaining_share=0.1))).state == "ok"
    assert row(snapshot(budget=spent, oldest_waiting_seconds=6)).state == "late"
    crashing = PoolWorkers(planned=1, started=0, ready=0, crash_loop=True)
    sick = HostSnapshot(host="a", at=NOW, cpu_cores=1, memory_bytes=1, pools={"reports": crashing})
    assert row(snapshot(), sick).state == "crash-loop"


def test_the_budget_and_how_it_burns() -> None:
    usual = {"sla_seconds": 5.0, "quantile": 0.95, "window_seconds": 86_400.0}
    for changes, shown in (
        ({"remaining_share": 0.83}, "83 % left"),
        ({"remaining_share": 0.4, "burn_rate_short": 8.0}, "40 % left, fast"),
        ({"remaining_share": -3.0}, "0 % left, spent"),
    ):
        assert budget(row(snapshot(budget=Budget(**usual, **changes)))) == shown
    assert budget(row(snapshot())) == UNKNOWN


def test_the_live_table_fits_a_small_terminal() -> None:
    board = Board()
    for event in (snapshot(arrival_per_second=2.5), host(), host("b", age=60), decision()):
        board.take(event)
    processes = [("metrics", 12, 1), ("decider", None, 3)]
    console = Console(record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    rows = board.pool_rows(POOLS, 6, NOW), board.host_rows(6, NOW)
    console.print(picture("Penstock", *rows, processes, ["12:00:00 [bold]worker ready"]))
    shown = console.export_text()
    for piece in (
        "5 s 95%",
        "at most 3 allowed",
        "2.5",
        "lost",
        "decider (restarted 2",
        "[bold]worker ready",
    ):
        assert piece in shown
