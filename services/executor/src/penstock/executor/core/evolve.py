"""First half of the cycle: mirror what happened. What to do about it is `reconcile`'s."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from penstock.events.worker import (
    WorkerCrashLooping,
    WorkerEvent,
    WorkerReady,
    WorkerReport,
    WorkerStarted,
    WorkerStopped,
)
from penstock.executor.core import facts
from penstock.executor.core.backoff import SETTLED_SECONDS, failed
from penstock.executor.core.cause import UNHEALTHY, stop_cause
from penstock.executor.core.fleet import Fleet, Plan
from penstock.executor.core.given_back import give_back, ran
from penstock.executor.core.instruction import (
    Announce,
    Forget,
    Instruction,
    Kill,
    Note,
    Resume,
    Terminate,
)
from penstock.executor.core.worker import Phase, Worker, move

AboutWorker = (
    facts.Reported
    | facts.Forked
    | facts.ForkFailed
    | facts.Exited
    | facts.Condemned
    | facts.DrainRequested
    | facts.LimitReached
    | facts.Computing
)
Step = tuple[Fleet, list[Instruction]]

BLANK: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands where the shell writes the time."""

MOST_WORKERS: Final = 10_000
"""More than this of one pool on one host is a broken command, not a plan."""


def evolve(fleet: Fleet, fact: facts.Fact, now: float) -> Step:
    """The fleet after a fact, and what that alone leads to.

    Args:
        now: monotonic seconds.
    """
    match fact:
        case facts.Commanded():
            return _commanded(fleet, fact, now)
        case facts.LimitsChanged():
            return _limits_changed(fleet, fact), []
        case facts.Adopted():
            return _adopted(fleet, fact, now)
        case facts.BusChecked():
            return _bus_checked(fleet, fact.up, now), []
        case facts.EndRequested():
            return replace(fleet, ending=True), []
        case facts.PauseRequested():
            return _pause_requested(fleet, fact.paused)
        case facts.CodeReloaded():
            return _code_reloaded(fleet, fact)
        case facts.SettingsOutdated():
            return _settings_outdated(fleet, fact.workers)
        case facts.Ticked():
            return fleet, []
        case _:
            return _of_worker(fleet, fact, now)


def _of_worker(fleet: Fleet, fact: AboutWorker, now: float) -> Step:
    """Facts about workers that have ended, or are not of this host, lead to nothing."""
    name = fact.report.worker if isinstance(fact, facts.Reported) else fact.worker
    worker = fleet.workers.get(name)
    if worker is None:
        return fleet, []
    match fact:
        case facts.Reported():
            return _reported(fleet, worker, fact.report, now)
        case facts.Forked():
            return _forked(fleet, worker, fact.pid)
        case facts.ForkFailed():
            return _fork_failed(fleet, worker, fact.error, now)
        case facts.Exited():
            return _exited(fleet, worker, fact, now)
        case facts.Condemned():
            return _condemned(fleet, worker, fact, now)
        case facts.DrainRequested():
            return _drain_requested(fleet, worker, now)
        case facts.LimitReached():
            return _limit_reached(fleet, worker, fact, now)
        case facts.Computing():
            return fleet.having(replace(worker, computed_at=now)), []


# --- commands ------------------------------------------------------------------------------------
def _commanded(fleet: Fleet, fact: facts.Commanded, now: float) -> Step:
    command = fact.command
    if reason := _refusal(fleet, fact):
        return fleet, [Note(text=f"command {command.order} is not obeyed: {reason}")]
    planned = {pool: n for pool, n in command.pools.items() if pool in fleet.limits.pools}
    plan = Plan(epoch=command.epoch, version=command.version, pools=planned, at=now)
    unknown = sorted(command.pools.keys() - planned.keys())
    notes: list[Instruction] = [
        Note(text=f"command {command.order} plans pool {pool!r}, which this host's settings lack")
        for pool in unknown
    ]
    return replace(fleet, plan=plan), notes


def _limits_changed(fleet: Fleet, fact: facts.LimitsChanged) -> Fleet:
    """The same command, as far as the new settings know its pools."""
    if fleet.plan is None:
        return replace(fleet, limits=fact.limits)
    planned = {pool: n for pool, n in fact.commanded.items() if pool in fact.limits.pools}
    return replace(fleet, limits=fact.limits, plan=replace(fleet.plan, pools=planned))


def _refusal(fleet: Fleet, fact: facts.Commanded) -> str:
    """Why a command is not obeyed; empty when it is.

    A plan of an epoch that no leader had (forged while no decider led, or the lease's stream was
    lost) does not count: any plan may follow it.
    """
    command, reached = fact.command, fact.reached
    if reached is not None and command.epoch > reached:
        return f"no decider can have led in that epoch: the lease has reached {reached}"
    if command.host != fleet.host:
        return f"it is for host {command.host!r}, this is {fleet.host!r}"
    stands = fleet.plan and (reached is None or fleet.plan.epoch <= reached)
    if fleet.plan and stands and command.order <= fleet.plan.order:
        return f"it is not newer than {fleet.plan.order}, the last one obeyed"
    wrong = {pool: n for pool, n in command.pools.items() if not 0 <= n <= MOST_WORKERS}
    if wrong:
        return f"found worker counts {wrong}, expected 0 to {MOST_WORKERS}"
    return ""


def _bus_checked(fleet: Fleet, up: bool, now: float) -> Fleet:
    """Failed starts do not count beyond an outage of the broker, which may have caused them."""
    if not up:
        return replace(fleet, bus_up_since=None)
    if fleet.bus_up_since is None:
        return replace(fleet, bus_up_since=now, troubles={})
    return fleet


def _pause_requested(fleet: Fleet, paused: bool) -> Step:
    """`reconcile` asks workers to pause until they report it; here they are resumed, once."""
    note = Note(text="paused: no worker starts, and none takes a job" if paused else "resumed")
    resumed = [] if paused else [Resume(worker=w.name) for w in fleet.job_workers()]
    return replace(fleet, paused=paused), [note, *resumed]


def _code_reloaded(fleet: Fleet, fact: facts.CodeReloaded) -> Step:
    """The new code may start where the old one did not."""
    outdated = [
        worker
        for worker in fleet.replaceable()
        if worker.active
        and worker.pool in fact.pools
        and (worker.cause == "adopted" or not fact.only_adopted)
    ]
    note = Note(text=f"reloaded the job code: {len(outdated)} workers are replaced")
    for pool in fact.pools:
        fleet = fleet.in_trouble(pool, None)
    return fleet.having(*(replace(worker, outdated=True) for worker in outdated)), [note]


def _settings_outdated(fleet: Fleet, names: frozenset[str]) -> Step:
    """The new settings may let workers start where the old ones did not."""
    workers = (worker for name, worker in fleet.workers.items() if name in names)
    outdated = [worker for worker in workers if worker.active and not worker.outdated]
    if not outdated:
        return fleet, []
    note = Note(text=f"settings changed: {len(outdated)} workers are replaced")
    for pool in {worker.pool for worker in outdated}:
        fleet = fleet.in_trouble(pool, None)
    return fleet.having(*(replace(worker, outdated=True) for worker in outdated)), [note]


# --- workers come --------------------------------------------------------------------------------
def _adopted(fleet: Fleet, fact: facts.Adopted, now: float) -> Step:
    worker = Worker(
        name=fact.worker,
        pool=fact.pool,
        cause="adopted",
        requested_at=now - fact.age_seconds,
        pid=fact.pid,
        reported_at=now,
        drain_seconds=fact.drain_seconds,
    )
    # its last executor may have paused it
    resumed = [] if fleet.paused else [Resume(worker=w.name) for w in fleet.job_workers(worker)]
    return fleet.having(worker), [_started(fleet, worker), *resumed]


def _forked(fleet: Fleet, worker: Worker, pid: int) -> Step:
    if worker.pid is not None:  # its first report came before that of its warm parent
        return fleet, []
    worker = replace(worker, pid=pid)
    instructions: list[Instruction] = [_started(fleet, worker)]
    if worker.phase is Phase.DRAINING:  # given up between the decision and the fork
        instructions.append(Terminate(worker=worker.name, pid=pid))
    return fleet.having(worker), instructions


def _reported(fleet: Fleet, worker: Worker, report: WorkerReport, now: float) -> Step:
    fleet, started = _forked(fleet, worker, report.pid)
    fleet, followed = _apply_report(fleet, fleet.workers[worker.name], report, now)
    return fleet, [*started, *followed]


def _apply_report(fleet: Fleet, worker: Worker, report: WorkerReport, now: float) -> Step:
    stopping = report.stopping_because
    worker = replace(
        worker,
        reported_at=now,
        claims=report.claims,
        slots=report.slots,
        slots_used=report.slots_used or 0,
        jobs_done=worker.jobs_done + sum(queue.finished for queue in report.queues.values()),
        build=report.build[:_MAX_BUILD_LENGTH],
        stopping_because=stopping,
        paused=report.state == "draining" and not stopping,
    )
    phase = Phase.DRAINING if stopping else _PHASES.get(report.state)
    if phase is None or phase is worker.phase or worker.phase is Phase.DRAINING:
        return fleet.having(worker), []
    if phase is Phase.DRAINING:
        return fleet.having(move(worker, phase, now)).owing(worker.pool, +1), []
    if worker.phase is not Phase.STARTING:
        return fleet.having(move(worker, phase, now)), []
    worker = replace(move(worker, phase, now), ready_at=now)
    return fleet.having(worker), [_ready(fleet, worker, now)]


_MAX_BUILD_LENGTH: Final = 64
_PHASES: Final = {"idle": Phase.IDLE, "busy": Phase.BUSY}


# --- workers go ----------------------------------------------------------------------------------
def _fork_failed(fleet: Fleet, worker: Worker, error: str, now: float) -> Step:
    note = Note(text=f"worker {worker.name} of pool {worker.pool} was not forked: {error}")
    fleet, crash_loop = _with_failure(fleet.without(worker.name), worker, None, now)
    if worker.active:
        fleet = fleet.owing(worker.pool, +1)
    return fleet, [note, *crash_loop]


def _exited(fleet: Fleet, worker: Worker, fact: facts.Exited, now: float) -> Step:
    code = fact.code
    instructions: list[Instruction] = give_back(fleet, worker, fact)
    instructions.append(_stopped(fleet, move(worker, Phase.STOPPED, now), fact, now))
    instructions.append(Forget(worker=worker.name))
    fleet = fleet.without(worker.name)
    if worker.active:
        fleet = fleet.owing(worker.pool, +1)
    if _is_failure(worker, fact, now):
        fleet, crash_loop = _with_failure(fleet, worker, code, now)
        instructions += crash_loop
    return fleet, instructions


def _condemned(fleet: Fleet, worker: Worker, fact: facts.Condemned, now: float) -> Step:
    """Killed at once: it would not handle any other signal."""
    if worker.pid is None or worker.killed:
        return fleet, []
    ended = move(worker, Phase.DRAINING, now) if worker.active else worker
    ended = replace(ended, ending_because=fact.because, ending_detail=fact.detail, killed=True)
    fleet = fleet.having(ended)
    if worker.active:
        fleet = fleet.owing(worker.pool, +1)
    return fleet, [Kill(worker=worker.name, pid=worker.pid)]


def _drain_requested(fleet: Fleet, worker: Worker, now: float) -> Step:
    """It is replaced as soon as another may start; one that is ending goes on as it is."""
    if not worker.active:
        return fleet, []
    fleet = fleet.having(ended(fleet, worker, "drained", now)).owing(worker.pool, +1)
    if worker.pid is None:  # it is asked once it is forked
        return fleet, []
    return fleet, [Terminate(worker=worker.name, pid=worker.pid)]


def _limit_reached(fleet: Fleet, worker: Worker, fact: facts.LimitReached, now: float) -> Step:
    """It drains; another one starts at once in its place."""
    if not worker.active or worker.pid is None:
        return fleet, []
    note = Note(text=f"worker {worker.name} of pool {worker.pool} is replaced: it {fact.detail}")
    ending = ended(fleet, worker, "limit", now)
    fleet = fleet.having(replace(ending, ending_detail=fact.detail)).owing(worker.pool, +1)
    return fleet, [note, Terminate(worker=worker.name, pid=worker.pid)]


def ended(fleet: Fleet, worker: Worker, because: str, now: float) -> Worker:
    """The worker as one that is asked to end, and has its time for that.

    Args:
        because: as in ``Worker.ending_because``.
    """
    own = worker.drain_seconds
    return replace(
        move(worker, Phase.DRAINING, now) if worker.active else worker,
        ending_because=because,
        drain_deadline=now + (fleet.limits.drain_seconds if own is None else own),
    )


def _is_failure(worker: Worker, fact: facts.Exited, now: float) -> bool:
    """A start that did not last, and that was not asked to end.

    One that took a job started well: what a job does to its process is charged to the job, which
    backs off by itself, and not to the pool.
    """
    if stop_cause(worker, fact.code) not in UNHEALTHY or fact.claim:
        return False
    if worker.ready_at is None:
        return True
    return not worker.claims and now - worker.requested_at < SETTLED_SECONDS


def _with_failure(fleet: Fleet, worker: Worker, code: int | None, now: float) -> Step:
    before = fleet.troubles.get(worker.pool)
    trouble = failed(before, worker.requested_at, now, code)
    fleet = fleet.in_trouble(worker.pool, trouble)
    if trouble is None or trouble is before or not trouble.is_loop:
        return fleet, []
    event = _event(
        WorkerCrashLooping,
        fleet,
        worker,
        failures=trouble.failures,
        backoff_seconds=trouble.backoff_seconds,
        last_exit_code=code,
    )
    return fleet, [event]


# --- events --------------------------------------------------------------------------------------
def _started(fleet: Fleet, worker: Worker) -> Announce:
    return _event(WorkerStarted, fleet, worker, pid=worker.pid, cause=worker.cause)


def _ready(fleet: Fleet, worker: Worker, now: float) -> Announce:
    since = worker.commanded_at
    return _event(
        WorkerReady,
        fleet,
        worker,
        pid=worker.pid,
        spawn_seconds=None if since is None else now - since,
        together=worker.together,
    )


def _stopped(fleet: Fleet, worker: Worker, fact: facts.Exited, now: float) -> Announce:
    code = fact.code
    return _event(
        WorkerStopped,
        fleet,
        worker,
        pid=worker.pid or 0,
        cause=stop_cause(worker, code),
        exit_code=code,
        job_id=next(iter(ran(worker, fact)), None) if code != 0 else None,
        lived_seconds=now - worker.requested_at,
        jobs_done=worker.jobs_done,
    )


def _event(kind: type[WorkerEvent], fleet: Fleet, worker: Worker, **fields: Any) -> Announce:
    event = kind(id="", at=BLANK, worker=worker.name, host=fleet.host, pool=worker.pool, **fields)
    return Announce(event=event)
