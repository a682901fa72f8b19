"""Second half of the cycle: compare what is with what is planned, and instruct.

In this order:

1. kill workers beyond their drain deadline;
2. give up workers that have been silent for too long, or never became ready;
3. forget troubles that are over;
4. end workers that are not planned any more, and outdated ones that have been replaced: starting
   ones first, then idle, then young busy ones;
5. start missing workers: the emptiest pool first, as many as may be starting at the same time;
   beside outdated ones, their replacements;
6. while this executor is paused, start none, and ask those to pause that do not yet.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.executor.core.backoff import SETTLED_SECONDS
from penstock.executor.core.evolve import Step, ended, evolve
from penstock.executor.core.facts import Fact
from penstock.executor.core.fleet import Fleet
from penstock.executor.core.instruction import Instruction, Kill, Note, Pause, Start, Terminate
from penstock.executor.core.worker import Phase, Worker


def handle(fleet: Fleet, fact: Fact, now: float) -> Step:
    """A whole cycle: the fact, then what it makes necessary.

    Args:
        now: monotonic seconds.
    """
    fleet, first = evolve(fleet, fact, now)
    fleet, then = reconcile(fleet, now)
    return fleet, first + then


def reconcile(fleet: Fleet, now: float) -> Step:
    """What is to be done now; a second call at once finds nothing left to do."""
    instructions: list[Instruction] = []
    for step in (_kill_late, _give_up, _calm, _end_surplus, _start_missing, _hold):
        fleet, further = step(fleet, now)
        instructions += further
    return fleet, instructions


def _kill_late(fleet: Fleet, now: float) -> Step:
    late = [
        worker
        for worker in fleet.workers.values()
        if worker.drain_deadline is not None
        and worker.drain_deadline <= now
        and worker.pid is not None
        and not worker.killed
    ]
    kills = [Kill(worker=worker.name, pid=worker.pid) for worker in late if worker.pid]
    return fleet.having(*(replace(worker, killed=True) for worker in late)), list(kills)


def _give_up(fleet: Fleet, now: float) -> Step:
    if fleet.bus_up_since is None:  # no report can arrive
        return fleet, []
    lost = [worker for worker in fleet.workers.values() if _is_lost(fleet, worker, now)]
    for worker in lost:
        fleet = fleet.owing(worker.pool, +1)
    notes = [note for worker in lost if (note := _not_ready(fleet, worker))]
    fleet, requests = _end(fleet, lost, "lost", now)
    return fleet, [*notes, *requests]


def _not_ready(fleet: Fleet, worker: Worker) -> Note | None:
    """Why a process of another system is replaced: its end, often with code 0, does not show it."""
    foreign = fleet.limits.foreign.get(worker.pool)
    if foreign is None or worker.phase is not Phase.STARTING:
        return None
    return Note(
        text=f"worker {worker.name} of pool {worker.pool} is replaced: no sign of 'ready' within "
        f"ready_seconds = {foreign.ready_seconds:g}; its output is in "
        f"logs/{worker.pool}/{worker.name}.log of the host's run folder"
    )


def _is_lost(fleet: Fleet, worker: Worker, now: float) -> bool:
    if not worker.active or fleet.bus_up_since is None:
        return False
    foreign = fleet.limits.foreign.get(worker.pool)
    if foreign and worker.phase is Phase.STARTING:
        # its executor reports it from the start: that says nothing about its being ready
        return now - max(worker.requested_at, fleet.bus_up_since) > foreign.ready_seconds
    is_new = worker.reported_at is None
    patience = fleet.limits.start_seconds if is_new else fleet.limits.silent_seconds
    since = worker.requested_at if worker.reported_at is None else worker.reported_at
    since = max(since, worker.computed_at)
    return now - max(since, fleet.bus_up_since) > patience


def _calm(fleet: Fleet, now: float) -> Step:
    for pool, trouble in fleet.troubles.items():
        if any(
            worker.ready and trouble.failed_at <= worker.requested_at <= now - SETTLED_SECONDS
            for worker in fleet.of(pool)
        ):
            fleet = fleet.in_trouble(pool, None)
    return fleet, []


def _end_surplus(fleet: Fleet, now: float) -> Step:
    if fleet.plan is None and not fleet.ending:
        return fleet, []
    fleet, replaced = _end_outdated(fleet, now)
    surplus = [
        worker
        for pool in fleet.pools()
        if fleet.ending or not fleet.outdated(pool)
        for worker in _dispensable(fleet.of(pool), fleet.planned(pool))
    ]
    if fleet.ending:  # a worker that drains of its own accord has no deadline yet
        by_itself = [w for w in fleet.workers.values() if w.phase is Phase.DRAINING]
        surplus += [w for w in by_itself if w.drain_deadline is None]
    fleet, ended = _end(fleet, surplus, "shutdown" if fleet.ending else "scaled-down", now)
    return fleet, replaced + ended


def _end_outdated(fleet: Fleet, now: float) -> Step:
    """As many as ready replacements, and the plan, leave to spare.

    Where this host may not have one worker more, one ends before its replacement starts.
    """
    spare: list[Worker] = []
    for pool in () if fleet.ending else fleet.pools():
        outdated, planned = fleet.outdated(pool), fleet.planned(pool)
        replacements = [worker for worker in fleet.of(pool) if not worker.outdated]
        ready = sum(worker.ready for worker in replacements)
        needed = max(0, planned - ready)
        is_waiting = ready < len(replacements) or fleet.paused or fleet.troubles.get(pool)
        if needed and needed >= len(outdated) and not is_waiting and not _below_ceiling(fleet):
            needed = len(outdated) - 1
        spare += _dispensable(outdated, needed)
    return _end(fleet, spare, "reloaded", now)


def _below_ceiling(fleet: Fleet) -> bool:
    """Whether this host may have one worker more."""
    most = fleet.limits.max_workers
    return not most or sum(worker.active for worker in fleet.workers.values()) < most


_LEAST_LOSS: Final = {Phase.STARTING: 0, Phase.IDLE: 1, Phase.BUSY: 2}


def _dispensable(workers: list[Worker], planned: int) -> list[Worker]:
    """Workers to end: first where least is lost; among equals the youngest."""
    ranked = sorted(
        workers,
        key=lambda w: (_LEAST_LOSS[w.phase], _used_beyond_one(w), -w.requested_at, w.name),
    )
    return ranked[: max(0, len(workers) - planned)]


def _used_beyond_one(worker: Worker) -> int:
    """Of workers with several slots those with fewer jobs end first."""
    return worker.slots_used if worker.slots > 1 else 0


def _end(fleet: Fleet, workers: list[Worker], because: str, now: float) -> Step:
    ending = [ended(fleet, worker, because, now) for worker in workers]
    requests = [Terminate(worker=w.name, pid=w.pid) for w in ending if w.pid is not None]
    return fleet.having(*ending), list(requests)


def _start_missing(fleet: Fleet, now: float) -> Step:
    if fleet.plan is None or fleet.ending or fleet.paused:
        return fleet, []
    before = len(fleet.starting(now))
    chosen: list[str] = []
    active = {pool: len(fleet.of(pool)) for pool in fleet.plan.pools}
    missing = {pool: fleet.missing(pool) for pool in fleet.plan.pools}
    waking = {pool: _starts_allowed(fleet, pool, now) for pool in fleet.plan.pools}
    costly = _costly_capacity(fleet, now)
    for _ in range(_capacity(fleet, now)):
        short = [
            p
            for p in fleet.plan.pools
            if missing[p] > 0 and waking[p] > 0 and (costly > 0 or p not in fleet.limits.costly)
        ]
        if not short:
            break
        pool = min(short, key=lambda p: (active[p] / fleet.planned(p), p))
        active[pool] += 1
        missing[pool] -= 1
        waking[pool] -= 1
        costly -= pool in fleet.limits.costly
        chosen.append(pool)
    return _start(_settle(fleet, active, chosen), chosen, before + len(chosen), now)


def _hold(fleet: Fleet, now: float) -> Step:
    """A worker that was not ready for the signal is asked again once it reports."""
    if not fleet.paused:
        return fleet, []
    late = [w for w in fleet.job_workers() if _could_pause(w) and now - w.pause_requested_at >= 1.0]
    requests: list[Instruction] = [Pause(worker=worker.name) for worker in late]
    return fleet.having(*(replace(worker, pause_requested_at=now) for worker in late)), requests


def _could_pause(worker: Worker) -> bool:
    return worker.ready and not worker.paused and worker.pid is not None


def _capacity(fleet: Fleet, now: float) -> int:
    """How many more may start on this host now."""
    capacity = fleet.limits.parallel_starts - len(fleet.starting(now))
    if fleet.limits.max_workers:
        capacity = min(
            capacity, fleet.limits.max_workers - sum(w.active for w in fleet.workers.values())
        )
    return max(0, capacity)


def _costly_capacity(fleet: Fleet, now: float) -> int:
    """How many more of the costly ones may start now: on more than its cores, all would be late."""
    limits = fleet.limits
    return limits.costly_starts - sum(w.pool in limits.costly for w in fleet.starting(now))


def _starts_allowed(fleet: Fleet, pool: str, now: float) -> int:
    """None while it backs off; one at a time in a crash loop; else as many as wanted."""
    trouble = fleet.troubles.get(pool)
    if trouble is None:
        return fleet.planned(pool)
    if now < trouble.until:
        return 0
    if not trouble.is_loop:
        return fleet.planned(pool)
    return 0 if any(worker.ready_at is None for worker in fleet.of(pool)) else 1


def _settle(fleet: Fleet, active: dict[str, int], chosen: list[str]) -> Fleet:
    """No replacement is owed to a pool that is full without one."""
    for pool, owed in fleet.owed.items():
        if owed and pool not in chosen and active.get(pool, 0) >= fleet.planned(pool):
            fleet = fleet.owing(pool, -owed)
    return fleet


def _start(fleet: Fleet, pools: list[str], together: int, now: float) -> Step:
    starts: list[Instruction] = []
    for pool in pools:
        replaces = fleet.owed.get(pool, 0) > 0
        is_reload = not replaces and bool(fleet.outdated(pool))
        foreign = fleet.limits.foreign.get(pool)
        worker = Worker(
            name=f"{fleet.instance}-{fleet.numbered + 1}",
            pool=pool,
            cause="respawn" if replaces else "reloaded" if is_reload else "planned",
            requested_at=now,
            commanded_at=now if replaces or is_reload or not fleet.plan else fleet.plan.at,
            together=together,
            drain_seconds=foreign.drain_seconds if foreign else None,
        )
        fleet = replace(fleet.having(worker), numbered=fleet.numbered + 1)
        fleet = fleet.owing(pool, -1) if replaces else fleet
        starts.append(
            Start(
                worker=worker.name,
                pool=pool,
                cause=worker.cause,
                commanded_at=worker.commanded_at or now,
                together=together,
            )
        )
    return fleet, starts
