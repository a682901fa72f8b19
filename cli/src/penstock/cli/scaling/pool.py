"""`penstock pool`: each pool's load, workers and promise."""

from __future__ import annotations

import click

from penstock.cli.command import Group
from penstock.cli.output import Column, note, write_rows
from penstock.cli.scaling.holds import hold, release
from penstock.cli.session import Session
from penstock.measuring.budget import pace
from penstock.views import wording
from penstock.views.pool_board import PoolRow, pool_rows
from penstock.views.source_state import marked, remarks


def promise(row: PoolRow) -> str:
    """``95 % within 30 s``."""
    return f"{row.quantile * 100:g} % within {wording.seconds(row.sla_seconds)}"


def budget(row: PoolRow) -> str:
    """``83 % left``, and how it burns."""
    if row.budget is None:
        return wording.UNKNOWN
    left = f"{max(row.budget.remaining_share, 0.0):.0%} left".replace("%", " %")
    left = marked(left, row.source, "budget")
    burning = pace(row.budget)
    return f"{left}, {burning}" if burning else left


def waiting(row: PoolRow) -> str:
    return marked(wording.count(row.waiting), row.source, "waiting")


def oldest(row: PoolRow) -> str:
    age = wording.seconds(row.oldest_waiting_seconds)
    return marked(age, row.source, "oldest_waiting_seconds")


def running(row: PoolRow) -> str:
    return marked(wording.count(row.running), row.source, "running")


def ended(row: PoolRow) -> str:
    return marked(wording.rate(row.throughput_per_minute), row.source, "ended")


COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("kind", lambda row: row.kind, rank=4),
    Column("promise", promise),
    Column("budget", budget),
    Column("state", lambda row: row.state, rank=1),
    Column("waiting", waiting, number=True, rank=1),
    Column("oldest", oldest, number=True),
    Column("running", running, number=True, rank=1),
    Column("ended/min", ended, number=True, rank=3),
    Column("failed", lambda row: wording.share(row.failed_share), number=True, rank=3),
    Column("target", lambda row: wording.count(row.target), number=True),
    Column("planned", lambda row: wording.count(row.planned), number=True, rank=4),
    Column("started", lambda row: wording.count(row.started), number=True, rank=4),
    Column("ready", lambda row: wording.count(row.ready), number=True, rank=1),
    Column("slots", lambda row: wording.used(row.slots_used, row.slots), number=True, rank=4),
    Column("held", lambda row: row.hold or wording.UNKNOWN),
    Column("measured", lambda row: wording.ago(row.snapshot_age_seconds), rank=4),
    Column("last reason", lambda row: row.reason, rank=3, sentence=True),
)


@click.group(cls=Group, example="penstock pool ls --json")
def pool() -> None:
    """Pools: what they promise, what waits, and who works."""


pool.add_command(hold)
pool.add_command(release)


@pool.command(name="ls", example="penstock pool ls")
@click.pass_obj
def list_pools(session: Session) -> None:
    """List every configured pool with its last measurement and decision.

    Before a figure of another system's queues, ≈ says that it is estimated. Faults of such a system
    and messages that are stuck there are named below the table.
    """
    rows = session.run(pool_rows)
    nothing = "no pool is configured; add a table [pools.NAME] to penstock.toml"
    write_rows(session, rows, COLUMNS, nothing)
    if not session.as_json:
        for row in rows:
            for remark in remarks(row.source):
                note(f"{row.pool}: {remark}")
