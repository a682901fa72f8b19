"""The overview: promises, what needs attention, the last decisions, capacity."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence

import msgspec

from penstock.console.core import promises, tables
from penstock.console.core.attention import (
    MOST_SHOWN,
    Attention,
    DeadGroup,
    Facts,
    UnservedQueue,
    attention,
)
from penstock.console.core.decision_rows import DecisionRow
from penstock.console.core.log_entry import micros
from penstock.console.core.promises import Promise
from penstock.console.parts import Console
from penstock.console.past.past import Past, View
from penstock.console.read_models.projection import Standing
from penstock.console.read_models.queues import QueueItem, queue_items
from penstock.console.read_models.store import Snapshot
from penstock.views.pool_board import HostRow

_HOUR_US = 3_600_000_000
_LAST_DECISIONS = 8
_LAST_SEQUENCE = 2**63 - 1


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of all queues, as the event log adds up."""

    waiting: int = 0
    running: int = 0
    scheduled: int = 0
    retrying: int = 0
    suspended: int = 0
    dead: int = 0
    completed: int = 0
    cancelled: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All that the first page shows."""

    promises: list[Promise]
    attention: list[Attention]
    decisions: list[DecisionRow]
    hosts: list[HostRow]
    totals: Totals


async def overview(console: Console, past: Past | None = None) -> Overview:
    """The overview as it is now, or was at a past moment."""
    shown, _ = await overview_standing(console, past)
    return shown


async def overview_standing(
    console: Console, past: Past | None = None
) -> tuple[Overview, Standing]:
    """The overview, and how current it is."""
    view = past or console.present
    until_us = micros(past.moment) if past else round(time.time() * 1e6)
    (decisions, queues, dead, totals), current = await console.read_standing(
        lambda rows: (
            newest_changes(rows, past.events.sequence if past else None),
            queue_items(rows, view.settings, past),
            _dead_lately(rows, console.alerts.book.muted, until_us),
            totals_of(past.jobs.counts) if past else job_totals(rows),
        )
    )
    standing = past.standing if past else current
    kept, hosts = promise_rows(view, queues), view.host_rows()
    facts = Facts(
        promises=kept,
        lost_hosts=[host.host for host in hosts if host.state == "lost"],
        dead=dead,
        unserved=[_unserved(queue) for queue in queues if _is_unserved(queue)],
        gap=_gap(standing),
        behind_seconds=standing.behind_seconds,
        held_back=standing.held_back,
        rebuilding=standing.rebuilding,
        alerts="" if past else console.alerts.key_problem,
    )
    shown = Overview(
        promises=kept,
        attention=attention(facts)[:MOST_SHOWN],
        decisions=decisions,
        hosts=hosts,
        totals=totals,
    )
    return shown, standing


def _gap(standing: Standing) -> str:
    if not standing.gap or standing.complete_since is None:
        return standing.gap
    return f"{standing.gap}; counts are complete since {standing.complete_since:%Y-%m-%d %H:%M} UTC"


def promise_rows(view: View, queues: Sequence[QueueItem]) -> list[Promise]:
    """A row for each pool, those that are in trouble first, then by name.

    Args:
        view: what was measured last, or by a past moment.
        queues: of which the paused ones stand at their pools.
    """
    board = view.board
    kept = []
    for row in view.pool_rows():
        snapshot, decision = board.pools.get(row.pool), board.decisions.get(row.pool)
        kept.append(
            Promise(
                pool=row.pool,
                kind=row.kind,
                sla_seconds=row.sla_seconds,
                quantile=row.quantile,
                state=row.state,
                kept_share=promises.kept_share(row.budget),
                window_seconds=row.budget.window_seconds if row.budget else None,
                budget_left_share=row.budget.remaining_share if row.budget else None,
                burn_rate=promises.burn_rate(row.budget),
                used_up_in_seconds=promises.used_up_in_seconds(row.budget),
                waiting=row.waiting,
                running=row.running,
                oldest_waiting_seconds=row.oldest_waiting_seconds,
                pickup_p99_seconds=(
                    snapshot.pickup.p99_seconds if snapshot and snapshot.pickup else None
                ),
                predicted_pickup_seconds=row.predicted_pickup_seconds,
                ready=row.ready,
                started=row.started,
                planned=row.planned,
                target=row.target,
                decision_id=promises.decision_id(decision),
                decided_at=row.decided_at,
                reason=row.reason,
                hold=row.hold,
                paused_queues=tuple(
                    one.queue for one in queues if one.paused_since and one.pool == row.pool
                ),
                source=row.source,
            )
        )
    in_trouble = {"late": 0, "crash-loop": 0, "spent": 1, "short": 2}
    return sorted(kept, key=lambda pool: (in_trouble.get(pool.state, 3), pool.pool))


def newest_changes(rows: Snapshot, until: int | None = None) -> list[DecisionRow]:
    """The last decisions that changed a number, newest first.

    Args:
        rows: the database.
        until: sequence of the last event that counts; None for all.
    """
    tail = "WHERE is_change = 1 AND sequence <= ? ORDER BY sequence DESC LIMIT ?"
    last = _LAST_SEQUENCE if until is None else until
    return rows.rows(tables.DECISIONS, tail, (last, _LAST_DECISIONS))


def job_totals(rows: Snapshot) -> Totals:
    """Jobs by state."""
    return totals_of(rows.counts(tables.JOBS))


def totals_of(counts: Mapping[tuple[str, str], int]) -> Totals:
    """Jobs by state, from those by (queue, state)."""
    states: dict[str, int] = {}
    for (_, state), number in counts.items():
        states[state] = states.get(state, 0) + number
    return Totals(
        waiting=states.get("waiting", 0),
        running=states.get("running", 0),
        scheduled=states.get("scheduled", 0),
        retrying=states.get("retrying", 0),
        suspended=states.get("suspended", 0),
        dead=states.get("dead", 0),
        completed=states.get("completed", 0),
        cancelled=states.get("cancelled", 0),
    )


def _dead_lately(rows: Snapshot, muted: Container[str], until_us: int) -> list[DeadGroup]:
    """Of functions that are not muted."""
    groups = rows.all(
        "SELECT function, error_kind, fingerprint, COUNT(*) FROM ("
        "SELECT function, error_kind, fingerprint, finished_us"
        " FROM jobs INDEXED BY jobs_dead_by_end WHERE state = 'dead' AND finished_us > ?"
        " AND finished_us <= ? ORDER BY finished_us DESC LIMIT 1000"
        ") GROUP BY 1, 2, 3 ORDER BY 4 DESC, MAX(finished_us) DESC",
        (until_us - _HOUR_US, until_us),
    )
    return [
        DeadGroup(
            function=str(function),
            error_kind=str(kind),
            jobs=int(jobs),
            fingerprint=str(fingerprint),
        )
        for function, kind, fingerprint, jobs in groups
        if function not in muted
    ]


def _is_unserved(queue: QueueItem) -> bool:
    return queue.paused_since is not None or bool(queue.waiting and not queue.pool)


def _unserved(queue: QueueItem) -> UnservedQueue:
    is_paused = queue.paused_since is not None
    return UnservedQueue(queue=queue.queue, waiting=queue.waiting, is_paused=is_paused)
