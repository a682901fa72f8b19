"""What is shown of the system that a pool's queues are in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from click.testing import CliRunner
from rich.console import Console

from penstock.cli.scaling import pool as pool_command
from penstock.cli.session import Session
from penstock.cli.up.screen import _summary
from penstock.cli.up.table import picture
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import Budget, EndedRate, PoolSnapshot, SourceUnread
from penstock.views.pool_board import Board, PoolRow
from penstock.views.source_state import SourceState, fault, marked, remarks

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOLS = pools(
    check(
        {
            "sources": {"shop": {"kind": "celery", "url": "redis://cache:6379/0"}},
            "pools": {"mail": {"source": "shop", "command": ["true"], "runtime_seconds": 2}},
        }
    )
)
ESTIMATED = (
    "arrival_per_second", "budget", "ended", "oldest_waiting_seconds", "running", "waiting"
)  # fmt: skip
FAULT = "mail: source shop: connection refused; the figures are 2 min 5 s old"


def row(**measured: object) -> PoolRow:
    board = Board()
    if measured:
        usual = {"pool": "mail", "queues": (), "waiting": 12, "source": "shop"}
        board.take(PoolSnapshot(at=NOW - timedelta(seconds=5), **{**usual, **measured}))
    [mail] = board.pool_rows(POOLS.values(), lease_seconds=6, now=NOW)
    return mail


def faulty() -> PoolRow:
    return row(
        source_fault="connection refused",
        queue_age_seconds=120,
        estimated=ESTIMATED,
        oldest_waiting_seconds=4.0,
        arrival_per_second=7.0,
        budget=Budget(sla_seconds=30, quantile=0.95, window_seconds=9, remaining_share=0.83),
        stuck=3,
        running=5,
        ended=EndedRate(finished_per_minute=40.0),
    )


def test_figures_age_while_the_source_has_a_fault() -> None:
    source = faulty().source
    assert source is not None
    assert source.age_seconds == 125
    assert [f"mail: {remark}" for remark in remarks(source)] == [
        FAULT,
        "mail: source shop: 3 messages are stuck and not counted as waiting: nothing moved for a "
        "minute though workers were idle; check that the pool's command takes this queue",
    ]


def test_a_source_without_faults_has_no_remarks() -> None:
    assert remarks(row(waiting=3).source) == ()
    assert remarks(None) == ()


def test_a_source_that_was_never_looked_at_is_a_fault() -> None:
    assert "source shop: not measured yet" in fault(row().source)
    before = row(source="")
    assert "source shop: not measured yet" in fault(before.source), "measured as a queue of our own"


def test_why_a_source_was_never_looked_at_is_named() -> None:
    board = Board()
    board.take(PoolSnapshot(at=NOW, pool="mail", queues=(), waiting=1, source="former"))
    board.take(SourceUnread(at=NOW, pool="mail", of_source="shop", source_fault="wrong password."))
    [mail] = board.pool_rows(POOLS.values(), lease_seconds=6, now=NOW)
    assert remarks(mail.source) == ("source shop: wrong password; it was never measured",)
    board.take(PoolSnapshot(at=NOW, pool="mail", queues=(), waiting=1, source="shop"))
    [mail] = board.pool_rows(POOLS.values(), lease_seconds=6, now=NOW)
    assert remarks(mail.source) == ()


def test_only_known_estimated_figures_are_marked() -> None:
    source = SourceState(name="shop", estimated=("waiting",))
    assert marked("12", source, "waiting") == "≈12"
    assert marked("<1 ms", source, "waiting") == "≈<1 ms"
    assert marked("12", source, "budget") == "12"
    assert [marked(dash, source, "waiting") for dash in ("-", "\N{EN DASH}")] == [
        "-",
        "\N{EN DASH}",
    ]
    assert marked("12", None, "waiting") == "12"


def listed(monkeypatch, *, as_json: bool) -> tuple[str, str]:
    session = Session(as_json=as_json)
    monkeypatch.setattr(Session, "run", lambda *_: [faulty()])
    result = CliRunner().invoke(pool_command.list_pools, obj=session)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_the_list_of_pools_marks_figures_and_names_faults_below(monkeypatch) -> None:
    table, notes = listed(monkeypatch, as_json=False)
    for figure in ("≈12", "≈4 s", "≈83 % left", "≈5", "≈40"):
        assert figure in table
    assert notes.splitlines()[0] == FAULT
    assert "3 messages are stuck" in notes.splitlines()[1]


def test_failures_of_another_system_are_not_known() -> None:
    assert faulty().failed_share is None
    board = Board()
    ended = EndedRate(finished_per_minute=40.0)
    own = PoolSnapshot(at=NOW, pool="own", queues=(), waiting=1, source="metrics/a.7", ended=ended)
    board.take(own)
    [shown] = board.pool_rows(pools(check({"pools": {"own": {}}})).values(), 6, NOW)
    assert shown.failed_share == 0.0


def test_a_pool_in_advisor_mode_is_not_short_of_workers_that_run_elsewhere() -> None:
    for advice, state in ((True, "ok"), (False, "short")):
        board = Board()
        board.take(PoolSnapshot(at=NOW, pool="mail", queues=(), waiting=1, source="shop"))
        board.take(
            ScalingDecisionMade(
                at=NOW, pool="mail", current=0, target=3, strategy="deadline", reasons=(),
                advice=advice, sla_seconds=30,
            )
        )  # fmt: skip
        [mail] = board.pool_rows(POOLS.values(), lease_seconds=6, now=NOW)
        assert mail.state == state


def test_the_lines_of_up_mark_figures() -> None:
    assert _summary(faulty()).startswith("mail: ≈12 waiting, oldest ≈4 s, workers 0 planned")


def test_programs_get_the_values(monkeypatch) -> None:
    document, notes = listed(monkeypatch, as_json=True)
    assert notes == ""
    [mail] = msgspec.json.decode(document)
    assert mail["waiting"] == 12
    assert mail["source"] == {
        "name": "shop",
        "fault": "connection refused",
        "age_seconds": 125.0,
        "estimated": list(ESTIMATED),
        "stuck": 3,
    }


def test_the_live_table_marks_figures_and_names_faults() -> None:
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(picture("Penstock", [faulty()], [], [], []))
    shown = console.export_text()
    for piece in ("≈12", "≈4 s", "≈7", "source shop: connection refused", "3 messages are stuck"):
        assert piece in shown
