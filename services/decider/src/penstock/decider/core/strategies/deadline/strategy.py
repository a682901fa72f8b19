"""Strategy `deadline`: the fewest workers with which no more jobs start late than allowed.

    need = the fewest workers with which each waiting job starts before its deadline
    keep = those of the others that would be needed again before removing them pays

Each job in the queue has a deadline: its arrival plus the promise. As long as a worker that is
started at the next look is early enough, no forecast is needed: only jobs in the queue count, and
the queue may grow as far as the promise allows, which keeps workers busy. A job that still has such
a second chance is judged by how fast jobs end in the mean; at its last moment it gets a worker
unless one is free in time almost surely. Where starting a worker takes longer than the promise,
workers have to be ready before their jobs: as many as steady traffic needs by Erlang's formula, at
the expected rate, and as many as were needed lately. A worker is removed when it would idle for
longer than starting it again and a change of the plan are worth (`calm`) before it is needed again,
by the first passage of the jobs in the pool to where one worker less is too few. The more of the
error budget is used, the more careful the strategy is.

Choose it unless you know better: it keeps the promise at the lowest cost. With a higher `calm` it
changes the plan less often and costs more.

Weakness: it uses the time that the promise allows, so that jobs wait up to it: promise less if they
should start sooner. A burst that is due before a worker can start is late beyond the workers that
are ready: give such a pool a minimum.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from penstock.config.section import NonNegative, Section
from penstock.decider.core.strategies.deadline.keep import kept, price_seconds
from penstock.decider.core.strategies.deadline.memory import Past, recall, remember
from penstock.decider.core.strategies.deadline.need import Need, last_moment_seconds, need
from penstock.decider.core.strategies.deadline.pool_view import (
    PoolView,
    spawn_measured,
    spawn_of,
    view_pool,
)
from penstock.decider.core.strategy import Demand, StrategyInputs, ask
from penstock.events.snapshot import PoolSnapshot

_REMEMBERED_SPAWNS = 10.0


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        calm: share of the pool's work that may be spent on idle workers to avoid a change of the
            plan: 0 follows the load most closely and is cheapest, 1 is calmer and dearer, 20 still
            more so; see simulating.md.
        change_seconds: worker-seconds that a change of the plan must save besides, whatever the
            pool's size: what a start costs beyond its time.
    """

    calm: NonNegative = 0.2
    change_seconds: NonNegative = 0.0


class Deadline:
    """See the module."""

    name = "deadline"
    counts_slots = True
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        past = recall(inputs.memory).look(inputs.current, inputs.now, _remembered_seconds(inputs))
        view = view_pool(inputs, past)
        needed = need(view, _rate_to_expect(inputs.snapshot))
        past = _with_need(past, view, needed, inputs.now)
        if needed.workers > view.planned:
            return _grow(view, needed, past)
        options: Options = inputs.options
        change_seconds = options.change_seconds * inputs.slots
        return _shrink(view, needed, past, price_seconds(view, options.calm, change_seconds))


def _remembered_seconds(inputs: StrategyInputs) -> float:
    """How long a start is remembered: an assumed one as long as a job waits at the most."""
    seconds = _REMEMBERED_SPAWNS * spawn_of(inputs.snapshot).p95_seconds + 5.0
    if spawn_measured(inputs.snapshot):
        return seconds
    return max(seconds, inputs.pool.profile.sla_seconds)


def _rate_to_expect(snapshot: PoolSnapshot) -> float:
    """Jobs a second: what is measured, or what is forecast where that is more."""
    rate, forecast = snapshot.arrival_per_second or 0.0, snapshot.forecast
    if forecast is None or forecast.off:
        return rate
    return max(rate, forecast.mean_per_second)


def _with_need(past: Past, view: PoolView, needed: Need, now: float) -> Past:
    """Where a worker is ready only after the promise, what was needed lately is kept: a removal
    cannot be taken back in time, and a rate measured in a lull may be far below the one to come."""
    if view.blind_seconds <= 0:
        return msgspec.structs.replace(past, needed=())
    workers = max(view.busy, min(needed.workers, view.planned))
    return past.note_needed(workers, now, 2 * view.blind_seconds)


def _grow(view: PoolView, needed: Need, past: Past) -> Demand:
    workers = needed.requested
    values = {**_figures(view, needed), **_binding(view, needed)}
    return ask("deadline.need", workers, _why_needed(view, needed, values), values, remember(past))


def _shrink(view: PoolView, needed: Need, past: Past, price: float) -> Demand:
    """Removes surplus workers that would idle for long enough; none while jobs are late and end far
    slower than they run, as then the run time does not give the need."""
    planned, values = view.planned, _figures(view, needed)
    # not ``workers``: a step up is not taken back at once; and only idle workers go
    least = min(max(needed.requested, view.in_use, past.most_needed), planned)
    workers = planned if view.held_up is not None else kept(view, least, price)
    if workers == planned:
        return ask("deadline.keep", planned, _why_stays(view), values, remember(past))
    idle = planned - workers
    subject = "1 other is" if idle == 1 else f"{idle} others are"
    worth = price + view.spawn.p95_seconds
    why = f"{subject} not expected to be needed for {worth:.2g} s of idling, which pays a change"
    return ask("deadline.keep", workers, why, values, remember(past))


def _figures(view: PoolView, needed: Need) -> dict[str, Any]:
    figures = {
        "needed_workers": needed.workers,
        "load_erlang": round(view.load, 3),
        "job_seconds": round(view.service.seconds, 3),
        "spawn_seconds": round(view.spawn.p95_seconds, 3),
    }
    if (held := view.held_up) is not None:
        figures["oldest_waiting_seconds"] = round(held.oldest_seconds, 1)
        figures["throughput_per_second"] = round(held.per_second, 3)
    return figures


def _binding(view: PoolView, needed: Need) -> dict[str, Any]:
    """The job that needs them: its place in the queue, its id or that of one near it, and how
    late it would be with fewer."""
    job = needed.binding
    if job is None or not job.is_waiting:
        return {}
    groups = view.worker_groups(safety_share=job.safety_share)
    starts = groups.start_seconds(job.place, needed.workers - 1)
    late = None if math.isinf(starts) else round(starts - job.seconds, 2)
    waited = view.promise_seconds - job.seconds
    name, exact = view.name_of(waited)
    named = {"binding_job" if exact else "near_job": name} if name else {}
    return {
        "binding_place": round(job.place),
        **named,
        "binding_waited_seconds": round(waited, 2),
        "late_seconds_with_one_less": late,
    }


def _why_needed(view: PoolView, needed: Need, values: dict[str, Any]) -> str:
    fewer = needed.workers - 1
    if "binding_place" not in values:
        return (
            f"{view.load:.3g} jobs at a time are expected, and starting a worker takes "
            f"{view.spawn.p95_seconds:.3g} s of the promised {view.promise_seconds:g} s"
        )
    job = f"job {values['binding_place']} of {view.waiting} in the queue"
    if name := values.get("binding_job"):
        job += f" ({name})"
    elif near := values.get("near_job"):
        job += f" (near {near})"
    job += f", waiting for {values['binding_waited_seconds']:g} s,"
    late = values["late_seconds_with_one_less"]
    if late is None:
        return f"{job} would not start at all with {fewer}"
    if late > 0:
        return f"{job} would start {late:g} s late with {fewer}"
    return f"{job} would start too near to its deadline with {fewer}"


def _when_needed(view: PoolView) -> str:
    """A pool without workers whose jobs wait on purpose: when the first of them will start."""
    if not view.positions:
        return "no worker is needed yet"
    left = max(view.positions[0].seconds - last_moment_seconds(view), 0.0)
    return (
        f"no worker is needed yet: one is started in {left:.0f} s at the latest, so that the first "
        f"job starts within the promised {view.promise_seconds:g} s"
    )


def _why_stays(view: PoolView) -> str:
    if not view.planned:
        return _when_needed(view) if view.waiting else "no job waits"
    if (held := view.held_up) is not None:
        return (
            f"the promise is broken now: the oldest job has waited {held.oldest_seconds:.3g} s of "
            f"{view.promise_seconds:g} s. {held.per_second:.3g} jobs a second end, "
            f"{held.seconds:.2g} s of a worker's time for each that runs "
            f"{view.service.seconds:.2g} s: the broker, the event log or the host binds"
        )
    return "all are kept: each would be needed again before stopping it saves anything"
