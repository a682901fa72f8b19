"""What each kind of rule sees in the facts. Pure.

A new kind is a condition in :mod:`rules`, a function here, and an entry in ``_KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from penstock.console.core.alerts import rules
from penstock.console.core.alerts.failures import dead_letters
from penstock.console.core.alerts.rules import Rule
from penstock.console.core.alerts.series import read_expression
from penstock.console.core.alerts.states import Observation, Reading
from penstock.console.core.alerts.world import HostFacts, PoolFacts, World, burn_lasts_seconds
from penstock.console.core.promises import used_up_in_seconds
from penstock.events.health import HealthChanged
from penstock.events.snapshot import Budget
from penstock.health.report import State
from penstock.measuring.budget import PACES, pace
from penstock.views import wording

_CRASH_SECONDS = 300.0
_LONGEST_PROBLEM = 200
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_WEEK_SECONDS = 7 * 86_400.0
"""A day of the week does not say when something is that is further away."""
Answer = tuple[bool, str] | None
"""Whether a condition holds, and the sentence about it; None where that is not known."""
T = TypeVar("T")


def read(rule: Rule, world: World, now: float) -> Reading:
    """What a rule sees at ``now``."""
    if not world.is_connected:
        return Reading(is_known=False)
    return _KINDS[type(rule.condition)](rule.condition, world, now)


def read_all(
    config: rules.Configuration, world: World, now: float
) -> tuple[dict[str, Reading], dict[str, str]]:
    """What all rules see, by their ids, and why some of them see nothing.

    A rule that meets facts that it cannot evaluate is one without data: the others go on.
    """
    readings: dict[str, Reading] = {}
    problems: dict[str, str] = {}
    for name, rule in config.rules.items():
        if not rule.is_enabled:
            continue
        try:
            readings[name] = read(rule, world, now)
        except Exception as error:
            readings[name] = Reading(is_known=False)
            problems[name] = f"{type(error).__name__}: {error}"[:_LONGEST_PROBLEM]
    return readings, problems


def _of_each(
    label: str,
    things: Mapping[str, T],
    glob: str,
    link: str,
    advice: str,
    met: Callable[[str, T], Answer],
) -> Reading:
    """One observation for each thing whose name fits.

    Args:
        label: what it is, such as ``pool``.
        things: by name.
        glob: of names.
        link: page about it; ``{}`` stands for its name.
        advice: what to do.
        met: looks at one of them.
    """
    observations = []
    for name, thing in sorted(things.items()):
        if fnmatchcase(name, glob):
            is_met, text = met(name, thing) or (None, "")
            observations.append(
                Observation(
                    labels=((label, name),),
                    is_met=is_met,
                    text=text,
                    advice=advice,
                    link=link.format(name),
                )
            )
    return Reading(observations=tuple(observations))


def _of_pools(
    glob: str, world: World, now: float, advice: str, met: Callable[[str, PoolFacts], Answer]
) -> Reading:
    """One observation for each pool; what is older than ``stale_seconds`` is not known."""

    def fresh(name: str, pool: PoolFacts) -> Answer:
        return met(name, pool) if now - pool.measured_at <= world.stale_seconds else None

    return _of_each("pool", world.pools, glob, "/pools/{}", advice, fresh)


# --- promises -------------------------------------------------------------------------------------
def _burn(condition: rules.Burn, world: World, now: float) -> Reading:
    least = PACES.index(condition.pace)

    def met(name: str, pool: PoolFacts) -> Answer:
        burning = _burning(pool, now)
        if burning is None:
            return None
        worst, budget, at = burning
        return bool(worst) and PACES.index(worst) >= least, _burn_text(name, worst, budget, at)

    return _of_pools(
        condition.pool,
        world,
        now,
        "Look at why the pool has not more workers; raise max_workers or add a host, or stop what "
        "floods its queues.",
        met,
    )


def _burning(pool: PoolFacts, now: float) -> tuple[str, Budget, float] | None:
    """Pace and budget by what was measured or reported last."""
    if pool.budget is not None and (pool.burning is None or pool.budget_at >= pool.burning[2]):
        return pace(pool.budget), pool.budget, pool.budget_at
    if pool.burning is None:
        return ("", Budget(sla_seconds=0, quantile=0, window_seconds=0), now)
    reported, budget, at = pool.burning
    is_over = now - at > burn_lasts_seconds(reported, budget)
    return ("" if is_over else reported), budget, at


def _burn_text(name: str, worst: str, budget: Budget, at: float) -> str:
    if worst == "spent":
        promised = wording.seconds(budget.sla_seconds)
        waiting = budget.waiting_late
        return (
            f"The budget of late jobs of {name} is used up: {budget.late:,} of {budget.jobs:,} "
            f"jobs started later than the promised {promised}"
            + (f", and {waiting:,} wait{'' if waiting > 1 else 's'} longer." if waiting else ".")
        )
    left = used_up_in_seconds(budget)
    rate = max(budget.burn_rate_short, budget.burn_rate_long)
    if left is None:
        return f"The budget of late jobs of {name} burns {rate:.1f} times as fast as allowed."
    when = ""
    if 0 <= left < _WEEK_SECONDS and at + left < _LATEST:
        when = f" ({datetime.fromtimestamp(at + left, UTC):%A %H:%M} UTC)"
    return (
        f"At this pace the budget of {name} is used up in {wording.seconds(left)}{when}: jobs "
        f"are late {rate:.1f} times as often as the promise allows."
    )


def _predicted(condition: rules.PredictedBreach, world: World, now: float) -> Reading:
    def met(name: str, pool: PoolFacts) -> Answer:
        if pool.decision is None and pool.predicted is None:
            return None
        if pool.predicted is None:
            return False, ""
        breach = pool.predicted
        return True, (
            f"A job of {name} that is dispatched now starts after "
            f"{wording.seconds(breach.predicted_pickup_seconds)}; "
            f"{wording.seconds(breach.sla_seconds)} are promised. {breach.waiting:,} jobs wait."
        )

    return _of_pools(
        condition.pool,
        world,
        now,
        "The decision says what holds the pool back: its maximum, a policy, or room on the hosts.",
        met,
    )


def _held(condition: rules.HeldByCapacity, world: World, now: float) -> Reading:
    def met(name: str, pool: PoolFacts) -> Answer:
        if pool.decision is None:
            return None
        if not pool.held_text:
            return False, ""
        return True, f"{name} gets fewer workers than it needs: {pool.held_text}".rstrip(".") + "."

    return _of_pools(
        condition.pool,
        world,
        now,
        "Add a host, or lower what other pools may take.",
        met,
    )


def _cap(condition: rules.BudgetCap, world: World, now: float) -> Reading:
    def met(name: str, pool: PoolFacts) -> Answer:
        cap = pool.cap
        if cap is None or cap.at.date() != datetime.fromtimestamp(now, UTC).date():
            return False, ""
        return True, (
            f"{name} has used {cap.spent_worker_hours:.1f} of its "
            f"{cap.worker_hours_per_day:g} worker-hours of today: it wants {cap.wanted} workers "
            f"and has {cap.workers} until midnight UTC."
        )

    return _of_pools(
        condition.pool,
        world,
        now,
        "Raise worker_hours_per_day of the policy budget-cap, or let its jobs wait.",
        met,
    )


def _queue_age(condition: rules.QueueAge, world: World, now: float) -> Reading:
    def met(name: str, pool: PoolFacts) -> Answer:
        promise = (pool.budget and pool.budget.sla_seconds) or (
            pool.decision and pool.decision.sla_seconds
        )
        if pool.snapshot is None or pool.snapshot.oldest_waiting_seconds is None or not promise:
            return None
        oldest = pool.snapshot.oldest_waiting_seconds
        if oldest <= condition.promises * promise:
            return False, ""
        return True, (
            f"The oldest job of {name} has waited {wording.seconds(oldest)}, "
            f"{oldest / promise:.1f} times the promised {wording.seconds(promise)}; "
            f"{pool.snapshot.waiting:,} jobs wait."
        )

    return _of_pools(
        condition.pool,
        world,
        now,
        "See on the pool's page whether its workers are ready, and what its last decision says.",
        met,
    )


# --- processes ------------------------------------------------------------------------------------
def _host_lost(condition: rules.HostLost, world: World, now: float) -> Reading:
    def met(name: str, host: HostFacts) -> Answer:
        if host.lost_at is None:
            return False, ""
        return True, (
            f"Host {name} is silent since {_clock(host.lost_at)}: its share of the workers moves "
            "to other hosts, and its jobs are given back."
        )

    advice = "Look whether the machine is up, and start its executor again (penstock executor)."
    return _of_each("host", world.hosts, condition.host, "/capacity", advice, met)


def _crash_loop(condition: rules.CrashLoop, world: World, now: float) -> Reading:
    def met(name: str, pool: PoolFacts) -> Answer:
        if pool.crash is None:
            return False, ""
        event, at = pool.crash
        return now - at <= _CRASH_SECONDS + event.backoff_seconds, (
            f"Workers of {name} on host {event.host} end, or are not ready in time, whenever they "
            f"start ({event.failures} times): no job of the pool runs there."
        )

    advice = "The executor's log has the last lines of the worker and its exit code."
    return _of_each("pool", world.pools, condition.pool, "/pools/{}", advice, met)


def _stuck(condition: rules.Stuck, world: World, now: float) -> Reading:
    observations = [
        Observation(
            labels=(("pool", event.pool), ("worker", worker)),
            is_met=True,
            text=(
                f"Job {event.job_id} on {worker} makes no progress since {_clock(at)} "
                f"(score {event.score:.2f}); what is done about it: {event.strategy}."
            ),
            advice="Recover it: penstock recover, or cancel the job.",
            link=f"/jobs/{event.job_id}",
        )
        for worker, (event, at) in sorted(world.stuck.items())
        if fnmatchcase(event.pool, condition.pool)
    ]
    return Reading(observations=tuple(observations))


def _health(condition: rules.Health, world: World, now: float) -> Reading:
    least = State(condition.at_least).rank

    def met(name: str, event: HealthChanged) -> Answer:
        if event.state not in tuple(State):
            return None
        because = "; ".join(event.reasons[:3]) or "no reason was given"
        return State(event.state).rank >= least, f"{name} is {event.state}: {because}."

    parts = {name: event for name, event in world.components.items() if name != "installation"}
    advice = "penstock health lists all reasons, and what to do about each."
    return _of_each("component", parts, condition.component, "/system", advice, met)


def _no_leader(condition: rules.NoLeader, world: World, now: float) -> Reading:
    if world.leader_at is None:
        return Reading(is_known=False)
    silent = now - world.leader_at
    text = (
        f"No decider has decided for {wording.seconds(round(silent))}: no pool is scaled, the last "
        "plan stands."
    )
    observation = Observation(
        labels=(),
        is_met=silent > condition.seconds,
        text=text,
        advice="Start a decider (penstock decider), and read its log.",
        link="/system",
    )
    return Reading(observations=(observation,))


def _absence(condition: rules.Absence, world: World, now: float) -> Reading:
    what, _, glob = condition.source.partition(":")
    last_times: dict[str, float] = {
        "pool": {name: pool.measured_at for name, pool in world.pools.items()},
        "host": {name: host.heard_at for name, host in world.hosts.items() if not host.has_left},
    }[what]
    verb = {"pool": "was measured", "host": "sent a snapshot"}[what]

    def met(name: str, at: float) -> Answer:
        silent = now - at
        return silent > condition.seconds, (
            f"The {what} {name} {verb} last {wording.seconds(round(silent))} ago "
            f"({_clock(at)}); expected at least every {wording.seconds(condition.seconds)}."
        )

    sources = {name: at for name, at in last_times.items() if at}
    advice = "Look whether what should do it runs: services, hosts, and schedules."
    return _of_each(what, sources, glob, "", advice, met)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")


_KINDS: dict[type[rules.Condition], Callable[[Any, World, float], Reading]] = {
    rules.Burn: _burn,
    rules.PredictedBreach: _predicted,
    rules.HeldByCapacity: _held,
    rules.BudgetCap: _cap,
    rules.DeadLetters: dead_letters,
    rules.QueueAge: _queue_age,
    rules.HostLost: _host_lost,
    rules.CrashLoop: _crash_loop,
    rules.Stuck: _stuck,
    rules.Health: _health,
    rules.NoLeader: _no_leader,
    rules.Absence: _absence,
    rules.Expression: read_expression,
}
