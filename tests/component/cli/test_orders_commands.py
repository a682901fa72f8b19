"""`penstock pool hold` and `penstock host`: what is refused before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.component.cli.conftest import Penstock

from penstock.events.orders import HostDrained, PoolHeld
from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.views.pool_board import Board

REPORTS = "[pools.reports]\n[pools.ledger]\nkind = 'exclusive'\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--for", "1h"], "expected --at N, --at-least N or --at-most N"),
        (["--at", "3", "--at-most", "5", "--for", "1h"], "--at is one number"),
        (["--at-least", "5", "--at-most", "3", "--for", "1h"], "--at-least 5 exceeds --at-most 3"),
        (["--at", "3"], "expected how long"),
        (["--at", "3", "--for", "1h", "--until", "2030-01-01"], "expected how long"),
        (["--at", "3", "--until", "tomorrow"], "found 'tomorrow', expected a time"),
        (["--at", "3", "--until", "2020-01-01T00:00Z"], "is over"),
        (["--at", "3", "--for", "40d"], "ends within 31 days"),
        (["--at", "-1", "--for", "1h"], "-1"),
    ],
)
def test_a_hold_without_sense_is_refused(penstock: Penstock, arguments, words):
    Path("penstock.toml").write_text(REPORTS)
    result = penstock("pool", "hold", "reports", *arguments, "--nats-url", "nats://127.0.0.1:1")
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--queue", "reports"], "queue 'reports' is served by pool 'reports'; use --pool reports"),
        (["--queue", "old", "--pool", "reports"], "give --pool NAME or --queue NAME"),
        (["--burst"], "give --pool NAME or --queue NAME"),
    ],
)
def test_a_worker_by_hand_is_for_queues_without_a_pool(penstock: Penstock, arguments, words):
    Path("penstock.toml").write_text("excluded = ['old*']\n" + REPORTS)
    result = penstock("worker", *arguments, "--nats-url", "nats://127.0.0.1:1")
    assert result.exit_code == 2
    assert words in result.stderr


def test_rows_show_what_operators_ordered():
    now = datetime.now(UTC)
    board = Board()
    board.take(HostSnapshot(host="a", cpu_cores=4, memory_bytes=2**30))
    board.take(HostDrained(host="a", reason="new kernel"))
    board.take(PoolHeld(pool="reports", until=now.replace(year=now.year + 1), at_least=3))
    (row,) = board.host_rows(6.0, datetime.now(UTC))
    assert (row.state, row.reason) == ("drained", "new kernel")


@pytest.mark.parametrize(
    ("workers", "state"),
    [
        (PoolWorkers(planned=2, started=2, ready=2), "draining"),  # the plan has not come yet
        (PoolWorkers(planned=0, started=2, ready=2), "draining"),
        (PoolWorkers(planned=0, started=0, ready=0, draining=1), "draining"),
        (PoolWorkers(planned=0, started=0, ready=0), "drained"),
    ],
)
def test_a_host_is_drained_once_its_last_worker_has_ended(workers: PoolWorkers, state: str):
    board = Board()
    pools = {"reports": workers, "mails": PoolWorkers(planned=0, started=0, ready=0)}
    board.take(HostSnapshot(host="a", cpu_cores=4, memory_bytes=2**30, pools=pools))
    board.take(HostDrained(host="a"))
    (row,) = board.host_rows(6.0, datetime.now(UTC))
    assert (row.state, row.draining) == (state, workers.draining)
