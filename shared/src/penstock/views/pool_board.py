"""The present state of pools and hosts, folded from their snapshots and decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.config.profiles import Pool
from penstock.config.topology import pools
from penstock.events.envelope import Event, UnknownEvent, utc_now
from penstock.events.orders import Hold, HostOrder, Orders, PoolHeld, PoolReleased, in_force
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot, PoolWorkers, SourceUnread
from penstock.events.subjects import Subjects
from penstock.jobs.event_store.event_of_subject import event_of_subject
from penstock.measuring.budget import pace
from penstock.operations.orders import stored_orders
from penstock.operations.settings_in_force import decider_settings
from penstock.views import wording
from penstock.views.event_text import because
from penstock.views.source_state import SourceState, source_state

E = TypeVar("E", bound=Event)


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: its promise, its load, its workers, and the reason for their number.

    Attributes:
        state: ``unknown``, ``ok``, ``late`` (the oldest job is older than promised), ``short``
            (fewer started than planned), ``spent`` (nothing is late now, but more jobs of the
            window were than the promise allows) or ``crash-loop``.
        throughput_per_minute: attempts that ended lately.
        failed_share: share of these that failed; None where none ended, and for queues of other
            systems, whose failures are not known.
        budget: what is left of the jobs that may start late; None where it is not counted.
        target: workers that were decided.
        planned: workers in the plans of hosts.
        started: worker processes that exist.
        ready: workers that can take a job.
        busy: workers that have a job.
        slots: slots of the ready workers; None where a worker runs one job at a time.
        slots_used: of these, the ones with a job.
        snapshot_age_seconds: age of the figures. None before the first measurement.
        hold: an operator's hold and its end; empty for none.
        source: of queues in another system; None for queues of our own.
    """

    pool: str
    kind: str
    sla_seconds: float
    quantile: float
    state: str = "unknown"
    waiting: int | None = None
    delayed: int | None = None
    running: int | None = None
    oldest_waiting_seconds: float | None = None
    arrival_per_second: float | None = None
    throughput_per_minute: float | None = None
    failed_share: float | None = None
    budget: Budget | None = None
    target: int | None = None
    planned: int = 0
    started: int = 0
    ready: int = 0
    busy: int | None = None
    slots: int | None = None
    slots_used: int | None = None
    predicted_pickup_seconds: float | None = None
    reason: str = ""
    decided_at: datetime | None = None
    snapshot_age_seconds: float | None = None
    hold: str = ""
    source: SourceState | None = None


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its size, its load, its workers.

    Attributes:
        state: ``ok``, ``draining`` (workers end, as its executor ends or an operator drains it),
            ``lost``, or by an operator's order ``drained`` (no worker is left) or ``paused`` (keeps
            the number of its workers, gets no further ones).
        draining: workers that finish their jobs and end.
        reason: of the operator's order.
    """

    host: str
    state: str
    cpu_cores: float
    cpu_busy_cores: float
    memory_bytes: int
    memory_used_bytes: int
    planned: int
    started: int
    ready: int
    age_seconds: float
    draining: int = 0
    reason: str = ""


@dataclass
class Board:
    """The latest snapshot and decision of each pool, the latest snapshot of each host, orders."""

    pools: dict[str, PoolSnapshot] = field(default_factory=dict)
    unread: dict[str, SourceUnread] = field(default_factory=dict)
    hosts: dict[str, HostSnapshot] = field(default_factory=dict)
    decisions: dict[str, ScalingDecisionMade] = field(default_factory=dict)
    orders: dict[tuple[str, str], Event] = field(default_factory=dict)

    def take(self, event: Event | UnknownEvent) -> None:
        """Folds one event in; older ones and those of other kinds change nothing."""
        match event:
            case PoolSnapshot():
                _keep_newer(self.pools, event)
            case SourceUnread():
                _keep_newer(self.unread, event)
            case HostSnapshot():
                _keep_newer(self.hosts, event)
            case ScalingDecisionMade():
                _keep_newer(self.decisions, event)
            case PoolHeld() | PoolReleased() | HostOrder():
                self.orders[event.noun, event.key] = event

    def pool_rows(
        self, pools: Iterable[Pool], lease_seconds: float, now: datetime
    ) -> list[PoolRow]:
        """A row for each configured pool; hosts that are silent for too long do not count."""
        living = [host for host in self.hosts.values() if _age(host, now) <= lease_seconds]
        orders = in_force(self.orders.values(), now.timestamp())
        return [self._pool_row(pool, living, orders, now) for pool in pools]

    def host_rows(self, lease_seconds: float, now: datetime) -> list[HostRow]:
        hosts = sorted(self.hosts.values(), key=lambda host: host.host)
        orders = in_force(self.orders.values(), now.timestamp())
        return [_host_row(host, orders, lease_seconds, now) for host in hosts]

    def _of_source(self, pool: Pool) -> PoolSnapshot | SourceUnread | None:
        snapshot = self.pools.get(pool.name)
        is_measured = snapshot is not None and snapshot.source == pool.source
        return snapshot if is_measured else self.unread.get(pool.name)

    def _pool_row(
        self, pool: Pool, living: list[HostSnapshot], orders: Orders, now: datetime
    ) -> PoolRow:
        workers = [host.pools[pool.name] for host in living if pool.name in host.pools]
        snapshot, decision = self.pools.get(pool.name), self.decisions.get(pool.name)
        row = PoolRow(
            pool=pool.name,
            kind=pool.kind,
            sla_seconds=pool.profile.sla_seconds,
            quantile=pool.profile.quantile,
            planned=sum(host.planned for host in workers),
            started=sum(host.started for host in workers),
            ready=sum(host.ready for host in workers),
            hold=_hold(orders.hold(pool.name, now.timestamp())),
            source=source_state(pool.source, self._of_source(pool), now),
        )
        if snapshot:
            row = _measured(row, snapshot, now)
        if decision:
            row = _decided(row, decision)
        is_advised = decision is not None and decision.advice
        return msgspec.structs.replace(row, state=_state(row, workers, is_advised))


async def pool_rows(bus: Bus, settings: Settings) -> list[PoolRow]:
    """A row for each pool, from the last snapshots and decisions.

    Pools and promises are those that the decider works with; those of ``settings`` where no decider
    has published its own.
    """
    subjects = Subjects(settings.prefix)
    board, in_force = await read_board(bus, subjects), await decider_settings(bus, subjects)
    settings = in_force or settings
    return board.pool_rows(pools(settings).values(), settings.host.lease_seconds, utc_now())


async def host_rows(bus: Bus, settings: Settings) -> list[HostRow]:
    """A row for each host whose snapshot the stream still holds."""
    board = await read_board(bus, Subjects(settings.prefix))
    return board.host_rows(settings.host.lease_seconds, utc_now())


async def read_board(bus: Bus, subjects: Subjects) -> Board:
    """The last snapshots of pools and hosts, and the last decisions."""
    board = Board()
    decisions = subjects.events(noun="pool", name="ScalingDecisionMade")
    for stream, subject in (
        (subjects.snapshots_stream, subjects.pool_snapshot("*")),
        (subjects.snapshots_stream, subjects.host_snapshot("*")),
        (subjects.events_stream, decisions),
    ):
        for stored in await lookback.latest(bus, stream, subject):
            if (event := event_of_subject(stored, subjects)) is not None:
                board.take(event)
    async for _, order in stored_orders(bus, subjects):
        board.take(order)
    return board


def _measured(row: PoolRow, snapshot: PoolSnapshot, now: datetime) -> PoolRow:
    return msgspec.structs.replace(
        row,
        waiting=snapshot.waiting,
        delayed=snapshot.delayed,
        running=snapshot.running,
        oldest_waiting_seconds=snapshot.oldest_waiting_seconds,
        arrival_per_second=snapshot.arrival_per_second,
        throughput_per_minute=snapshot.ended.finished_per_minute if snapshot.ended else None,
        failed_share=snapshot.ended.failed_share if snapshot.ended and not row.source else None,
        budget=snapshot.budget,
        busy=max(0, snapshot.workers_ready - snapshot.workers_idle),
        slots=snapshot.slots_ready or None,
        slots_used=snapshot.slots_ready - snapshot.slots_idle if snapshot.slots_ready else None,
        snapshot_age_seconds=_age(snapshot, now) + snapshot.queue_age_seconds,
    )


def _decided(row: PoolRow, decision: ScalingDecisionMade) -> PoolRow:
    return msgspec.structs.replace(
        row,
        target=decision.target,
        predicted_pickup_seconds=decision.predicted_pickup_seconds,
        reason=because(decision),
        decided_at=decision.at,
    )


def _state(row: PoolRow, workers: list[PoolWorkers], is_advised: bool) -> str:
    if any(host.crash_loop for host in workers):
        return "crash-loop"
    if row.snapshot_age_seconds is None:
        return "unknown"
    if (row.oldest_waiting_seconds or 0) > row.sla_seconds:
        return "late"
    if row.started < (row.target or 0) and not is_advised:  # else they run elsewhere
        return "short"
    return "spent" if row.budget and pace(row.budget) == "spent" else "ok"


def _hold(hold: Hold | None) -> str:
    if hold is None:
        return ""
    until = wording.clock(datetime.fromtimestamp(hold.until, UTC))
    return f"{hold.bounds} until {until}{': ' if hold.reason else ''}{hold.reason}"


def _host_row(host: HostSnapshot, orders: Orders, lease_seconds: float, now: datetime) -> HostRow:
    age, order = _age(host, now), orders.hosts.get(host.host)
    state = "lost" if age > lease_seconds else "draining" if host.draining else "ok"
    if order is not None and state == "ok":
        state = order.state
    workers = host.pools.values()
    if state == "drained" and any(p.planned or p.started or p.draining for p in workers):
        state = "draining"
    return HostRow(
        host=host.host,
        state=state,
        cpu_cores=host.cpu_cores,
        cpu_busy_cores=host.cpu_busy_cores,
        memory_bytes=host.memory_bytes,
        memory_used_bytes=host.memory_used_bytes,
        planned=sum(pool.planned for pool in workers),
        started=sum(pool.started for pool in workers),
        ready=sum(pool.ready for pool in workers),
        draining=sum(pool.draining for pool in workers),
        age_seconds=age,
        reason=order.reason if order else "",
    )


def _keep_newer(latest: dict[str, E], event: E) -> None:
    before = latest.get(event.key)
    if before is None or before.at <= event.at:
        latest[event.key] = event


def _age(event: Event, now: datetime) -> float:
    return max(0.0, (now - event.at).total_seconds())
