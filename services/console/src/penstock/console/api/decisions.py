"""Scaling decisions, with all their reasons."""

from __future__ import annotations

from datetime import datetime

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    AsOfText,
    Cursor,
    Limit,
    Listing,
    Routes,
    read,
)
from penstock.console.core import cursors, decision_rows, tables
from penstock.console.core.decision_rows import DecisionRow
from penstock.console.core.log_entry import LogEntry, micros
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.past.moments import AsOf
from penstock.console.past.past import Past
from penstock.console.read_models.columns import SqlValue
from penstock.console.read_models.projection import Standing
from penstock.console.read_models.store import Snapshot
from penstock.console.web.access import ChangesWith
from penstock.events.catalogue import LOGGED
from penstock.events.scaling import ScalingDecisionMade
from penstock.jobs.event_store import event_log

_LAST_US = 2**63 - 1


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision in a list; ``reason`` is the one that settled the number."""

    id: str
    pool: str
    at: datetime
    current: int
    target: int
    strategy: str
    rule: str
    reason: str
    sla_seconds: float
    predicted_pickup_seconds: float | None
    epoch: int
    round: int
    is_advice: bool
    sequence: int


class DecisionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with all its reasons.

    Attributes:
        event: as it was stored; None where it has left the event log.
        earlier: id of the decision of this pool before; empty for none.
        later: id of the following one; empty for none.
        standing: how current this is.
    """

    decision: Decision
    event: ScalingDecisionMade | None
    earlier: str
    later: str
    standing: Standing


def decision(row: DecisionRow) -> Decision:
    """A row as it is sent."""
    fields = {name: getattr(row, name) for name in Decision.__struct_fields__ if name != "at"}
    return Decision(at=instant(row.at_us), **fields)


async def decision_page(
    console: Console,
    pool: str,
    every: bool,
    limit: int,
    cursor: str,
    moment: datetime | None = None,
) -> Listing[Decision]:
    """Decisions, newest first; those that were made by a past moment.

    Raises:
        NotKept: decisions of that moment are not kept.
    """
    listing = f"decisions {pool} {every} {moment}"
    key = console.store.cursor_key
    before = int(cursors.decode(cursor, listing, key)[0]) if cursor else None
    conditions, values = ["1"], list[SqlValue]()
    if not every:
        conditions.append("is_change = 1")
    if pool:
        conditions.append("pool = ?")
        values.append(pool)
    if before is not None:
        conditions.append("sequence < ?")
        values.append(before)
    standing = console.standing
    if moment is not None:
        console.history.check_decisions(moment, every)
        until = await console.read(lambda rows: last_decision_by(rows, moment))
        conditions.append("sequence <= ?")
        values.append(until)
        standing = console.history.standing(AsOf(moment=moment), until)
    tail = f"WHERE {' AND '.join(conditions)} ORDER BY sequence DESC LIMIT ?"
    rows = await console.read(
        lambda snapshot: snapshot.rows(tables.DECISIONS, tail, (*values, limit + 1))
    )
    shown = rows[:limit]
    has_next = len(rows) > limit
    return Listing(
        items=[decision(row) for row in shown],
        standing=standing,
        next=cursors.encode((shown[-1].sequence,), listing, key) if has_next else "",
    )


def last_decision_by(rows: Snapshot, moment: datetime) -> int:
    """Sequence of the last decision that was made by then; 0 for none."""
    newest = "WHERE at_us <= ? ORDER BY at_us DESC, sequence DESC LIMIT 1"
    made = rows.rows(tables.DECISIONS, newest, (micros(moment),))
    return made[0].sequence if made else 0


async def decision_answer(
    console: Console, decision_id: str, moment: datetime | None = None
) -> DecisionAnswer | None:
    """One decision; None where it is not known, not any more, or was not made by that moment.

    Raises:
        NotKept: decisions of that moment are not kept.
        BusError: its event cannot be read.
    """
    if moment is not None:
        console.history.check_decisions(moment)
    until = _LAST_US if moment is None else micros(moment)

    def query(snapshot: Snapshot) -> tuple[DecisionRow, str, str] | None:
        row = snapshot.row(tables.DECISIONS, decision_id)
        if row is None or row.at_us > until:
            return None
        return row, *_neighbours(snapshot, row, until)

    row_and_neighbours = await console.read(query)
    if row_and_neighbours is None:
        return None
    row, earlier, later = row_and_neighbours
    return DecisionAnswer(
        decision=decision(row),
        event=await _event_of(console, row),
        earlier=earlier,
        later=later,
        standing=_standing(console, moment, row.sequence),
    )


async def decision_in_force(console: Console, pool: str, past: Past) -> DecisionAnswer | None:
    """The last decision about a pool at a past moment, whether it changed a number or not."""
    made = past.board.decisions.get(pool)
    if made is None:
        return None
    row = decision_rows.advance(None, LogEntry(past.events.sequence, made.noun, pool, made))
    if row is None:
        return None
    stored = await console.read(lambda rows: rows.row(tables.DECISIONS, made.id)) or row
    earlier, _ = await console.read(lambda rows: _neighbours(rows, stored, micros(past.moment)))
    return DecisionAnswer(
        decision=decision(stored), event=made, earlier=earlier, later="", standing=past.standing
    )


def _neighbours(rows: Snapshot, row: DecisionRow, until_us: int) -> tuple[str, str]:
    """Ids of the decisions that changed the pool's number before and after."""
    near, place = "WHERE pool = ? AND is_change = 1 AND sequence", (row.pool, row.sequence)
    earlier = rows.rows(tables.DECISIONS, f"{near} < ? ORDER BY sequence DESC LIMIT 1", place)
    later = rows.rows(tables.DECISIONS, f"{near} > ? ORDER BY sequence LIMIT 1", place)
    return _first_id(earlier), _first_id([one for one in later if one.at_us <= until_us])


async def _event_of(console: Console, row: DecisionRow) -> ScalingDecisionMade | None:
    """The decision's event; None where it has left the log."""
    subjects = console.subjects
    subject = subjects.events("pool", row.pool, ScalingDecisionMade.__name__)
    stored = await console.bus.next(subjects.events_stream, subject, row.sequence)
    event = event_log.read_event(stored, LOGGED) if stored else None
    return event if isinstance(event, ScalingDecisionMade) and event.id == row.id else None


def _standing(console: Console, moment: datetime | None, sequence: int) -> Standing:
    if moment is None:
        return console.standing
    return console.history.standing(AsOf(moment=moment), sequence)


def _first_id(rows: list[DecisionRow]) -> str:
    return rows[0].id if rows else ""


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/decisions", source=ChangesWith.LOG, answers_as_of=True)
    async def decisions(
        pool: FromQuery[str] = "",
        every: FromQuery[bool] = False,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = "",
        as_of: AsOfText = "",
    ) -> Listing[Decision]:
        """Decisions that changed a number, newest first; with `every` the others, too."""
        moment = console.history.moment(as_of)
        return await decision_page(console, pool, every, limit, cursor, moment)

    @read("/decisions/{decision_id:str}", source=ChangesWith.LOG, answers_as_of=True)
    async def one_decision(decision_id: FromPath[str], as_of: AsOfText = "") -> DecisionAnswer:
        """One decision with all its reasons."""
        answer = await decision_answer(console, decision_id, console.history.moment(as_of))
        if answer is None:
            raise NotFoundException(f"there is no decision {decision_id!r}, or not any more")
        return answer

    return decisions, one_decision
