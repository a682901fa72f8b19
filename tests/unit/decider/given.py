"""Builders for the decider's tests: a pool, what was seen of it, hosts, a round."""

from __future__ import annotations

from typing import Any

from penstock.config import Pool, Profile
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.state import PoolState, State
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, PoolWorkers, Quantiles

NOW = 1_000_000.0
GIB = 1024**3


def pool(name: str = "emails", kind: Any = "queue", **profile: Any) -> Pool:
    settings = {"min_workers": 0, "max_workers": 1000, "scale_down_cooldown_seconds": 0, **profile}
    settings.setdefault("strategy", "hybrid")
    if kind == "exclusive":
        settings = {"min_workers": 1, "max_workers": 1, "scalable": False, **profile}
    return Pool(name=name, kind=kind, queues=(name,), profile=Profile(**settings))


def took(seconds: float, count: int = 100) -> Quantiles:
    """Jobs (or spawns) that took so long, each."""
    return Quantiles(
        count=count,
        mean_seconds=seconds,
        p50_seconds=seconds,
        p95_seconds=seconds,
        p99_seconds=seconds,
        cv2=0.0,
    )


def snapshot(name: str = "emails", **fields: Any) -> PoolSnapshot:
    seconds = fields.pop("job_seconds", 2.0)
    if seconds is not None:
        fields.setdefault("service", took(seconds))
    fields = {"waiting": 0, "arrival_per_second": 0.0, "worker_age_seconds": 0.1, **fields}
    return PoolSnapshot(pool=name, queues=(name,), **fields)


def host(name: str = "a", cores: float = 64, memory: int = 64 * GIB, **fields: Any) -> HostSnapshot:
    return HostSnapshot(host=name, cpu_cores=cores, memory_bytes=memory, **fields)


def living(started: int) -> PoolWorkers:
    return PoolWorkers(planned=started, started=started, ready=started)


def state(watching_since: float = NOW - 1000, **pools: PoolState | dict[str, int]) -> State:
    """Pools by name: a state, or just a placement."""
    return State(
        pools={
            name: each if isinstance(each, PoolState) else PoolState(placement=each)
            for name, each in pools.items()
        },
        joined=frozenset({"a", "b", "c"}),
        watching_since=watching_since,
    )


def inputs(
    pools: list[Pool],
    snapshots: list[PoolSnapshot],
    hosts: list[HostSnapshot] | None = None,
    *,
    age: float = 0.5,
    host_age: float | dict[str, float] = 0.5,
    rules: Rules | None = None,
    due: set[str] | None = None,
    strategies: Any = BUILTIN,
) -> Inputs:
    ages = host_age if isinstance(host_age, dict) else {}
    usual = 0.5 if ages else host_age
    return Inputs(
        pools={each.name: each for each in pools},
        measured_pools={each.pool: MeasuredPool(each, NOW - age) for each in snapshots},
        measured_hosts={
            each.host: MeasuredHost(each, NOW - ages.get(each.host, usual))
            for each in ([host()] if hosts is None else hosts)
        },
        strategies=strategies,
        rules=rules or Rules(),
        due=None if due is None else frozenset(due),
    )


def one_round(one: Pool, seen: PoolSnapshot, before: State | None = None, **more: Any) -> Outcome:
    """A round for one pool."""
    return decide(before or state(), inputs([one], [seen], **more), NOW)


def story(outcome: Outcome, name: str = "emails") -> list[tuple[str, int]]:
    """A pool's chain of reasons: step and number after it."""
    decision = next(each for each in outcome.decisions if each.pool == name)
    return [(reason.step, reason.workers) for reason in decision.reasons]
