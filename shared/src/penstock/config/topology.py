"""From tables to pools: the start-up rules. A topology that breaks one is refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, get_args

import msgspec
from msgspec import UNSET

from penstock.config.foreign_pools import as_foreign, is_foreign, shared_queue, wrong_of_foreign
from penstock.config.load import ConfigError
from penstock.config.profiles import PROFILES, Pool, PoolTable, Profile
from penstock.config.settings import Settings
from penstock.config.stream_pools import as_stream, is_stream, wrong_of_stream
from penstock.events.subjects import BadName, check_name

Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)


def pools(settings: Settings) -> dict[str, Pool]:
    """The pools of an installation, by name.

    Raises:
        ConfigError: a queue in two pools, an exclusive group, bounds the wrong way round, an
            unknown profile, a name that cannot be a subject, a pool on an excluded queue, a Spark
            pool without a cluster or one that serves a pool that is not there, slots where jobs
            run one at a time, a default pool that is none or takes no further queues, workers of
            another system that cannot be run as it says, streaming queries without Spark Workers.
    """
    pools = {name: _pool(settings, name, table) for name, table in settings.pools.items()}
    owner: dict[str, str] = {}
    for pool in pools.values():
        for queue in pool.queues:
            # two pools would each count the other's jobs as their own load
            if queue in owner:
                raise ConfigError(
                    f"queue {queue!r} is in pools {owner[queue]!r} and {pool.name!r}; "
                    "a queue belongs to one pool: remove it from one of them"
                )
            owner[queue] = pool.name
            if is_excluded(settings, queue):
                raise ConfigError(
                    f"pools.{pool.name}: queue {queue!r} is also excluded; "
                    "remove it from 'excluded' or remove the pool"
                )
        _check_served(pool, pools)
    if wrong := shared_queue(pools):
        raise ConfigError(wrong)
    _check_default(settings, pools)
    return pools


def _check_default(settings: Settings, pools: Mapping[str, Pool]) -> None:
    name = settings.default_pool
    fits = {p.name for p in pools.values() if p.kind in ("queue", "group") and not p.is_foreign}
    if name and name not in fits:
        fitting = ", ".join(sorted(fits))
        raise ConfigError(
            f"default_pool names {name!r}, expected a pool of kind 'queue' or 'group' "
            f"with queues of our own: {fitting or 'there is none'}"
        )


def _check_served(pool: Pool, pools: Mapping[str, Pool]) -> None:
    if pool.serves and pool.kind != "spark":
        raise ConfigError(
            f"pools.{pool.name}: 'serves' is for pools of kind 'spark', found {pool.kind!r}; "
            "say it in the Spark pool that this pool's jobs work on"
        )
    for name in pool.serves:
        if name in pools and pools[name].job_slots > 1:
            raise ConfigError(
                f"pools.{name}: slots = {pools[name].slots}, but its jobs work on the cluster of "
                f"pools.{pool.name} (serves); a worker has one Spark session, in which one job at "
                "a time is tagged, cancelled and measured: set slots = 1"
            )
        with_jobs = {p.name for p in pools.values() if p.kind != "spark" and not p.is_foreign}
        if name not in with_jobs:
            pools_of_jobs = ", ".join(sorted(with_jobs))
            raise ConfigError(
                f"pools.{pool.name}: serves names {name!r}, expected a pool of jobs: "
                f"{pools_of_jobs or 'there is none'}"
            )


def in_lane(queue: str, priority: Priority) -> str:
    """The queue that holds the jobs of a priority; only where its pool has priorities."""
    return queue if priority == "normal" else f"{queue}--{priority}"


def of_lane(queue: str) -> tuple[str, Priority]:
    """The inverse of :func:`in_lane`: the queue and the priority."""
    head, _, last = queue.rpartition("--")
    for priority in PRIORITIES:
        if head and last == priority != "normal":
            return head, priority
    return queue, "normal"


def with_lanes(settings: Settings) -> frozenset[str]:
    """The queues that have priorities."""
    return frozenset(
        queue
        for name, table in settings.pools.items()
        if table.priorities
        for queue in table.queues or (name,)
    )


def lanes_of(settings: Settings, queue: str) -> tuple[str, ...]:
    """The queues in which jobs dispatched to this one wait: one for each priority it has."""
    if queue not in with_lanes(settings):
        return (queue,)
    return tuple(in_lane(queue, priority) for priority in PRIORITIES)


def is_excluded(settings: Settings, queue: str) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in settings.excluded)


def profile(settings: Settings, name: str) -> Profile:
    """A shipped profile with the file's overrides, or one the file defines over the defaults."""
    override = settings.profiles.get(name)
    if override is None and name not in PROFILES:
        names = ", ".join(sorted({*PROFILES, *settings.profiles}))
        raise ConfigError(f"unknown profile {name!r}; known profiles: {names}")
    start = PROFILES.get(name, Profile())
    return override.over(start) if override else start


def _pool(settings: Settings, name: str, table: PoolTable) -> Pool:
    queues = table.queues or (name,)
    try:
        check_name("pool", name)
        for queue in () if is_foreign(table) else queues:
            check_name("queue", queue)
    except BadName as error:
        raise ConfigError(f"pools.{name}: {error}") from error
    default = table.kind if table.kind in PROFILES else "balanced"
    pool = Pool(
        name=name,
        kind=table.kind,
        queues=queues,
        profile=table.over(profile(settings, table.profile or default)),
        slots=table.slots,
        slot_memory_bytes=table.slot_memory_bytes,
        serves=table.serves,
        slots_per_job=table.slots_per_job,
    )
    _check(pool)
    if wrong := wrong_of_stream(settings, table, pool.profile.strategy):
        raise ConfigError(f"pools.{name}: {wrong}")
    if wrong := wrong_of_foreign(settings, table):
        raise ConfigError(f"pools.{name}: {wrong}")
    if is_foreign(table):
        return as_foreign(settings, pool, table)
    if pool.kind == "spark":
        return _spark(settings, pool, table)
    if not table.priorities:
        return pool
    lanes = [in_lane(queue, priority) for queue in queues for priority in PRIORITIES]
    for lane in lanes:
        check_name("queue", lane)
    return msgspec.structs.replace(pool, queues=tuple(lanes))


def _spark(settings: Settings, pool: Pool, table: PoolTable) -> Pool:
    """It has no queue of jobs: its workers are there for the tasks of Spark applications."""
    here = f"pools.{pool.name}"
    if not settings.cluster.master:
        raise ConfigError(
            f"{here}: kind = 'spark' needs a Spark cluster; set cluster.master to 'local' or to "
            "the address of a Master (spark://host:7077)"
        )
    streams = is_stream(settings, table)
    if (table.queues and not streams) or table.priorities:
        raise ConfigError(f"{here}: a pool of kind 'spark' has no queues and no priorities")
    cores = float(pool.slots) if table.cpu_cores is UNSET else pool.profile.cpu_cores
    memory = pool.slots * pool.slot_memory_bytes + settings.cluster.worker_overhead_bytes
    if table.memory_bytes is not UNSET:
        memory = pool.profile.memory_bytes
    needs = msgspec.structs.replace(pool.profile, cpu_cores=cores, memory_bytes=memory)
    pool = msgspec.structs.replace(pool, profile=needs)
    if streams:
        pool = as_stream(pool, table)
    return msgspec.structs.replace(pool, queues=())


def _check(pool: Pool) -> None:
    here, profile = f"pools.{pool.name}", pool.profile
    if pool.kind not in ("group", "spark") and len(pool.queues) != 1:
        raise ConfigError(f"{here}: a pool of kind {pool.kind!r} has one queue; use kind = 'group'")
    if len(set(pool.queues)) != len(pool.queues):
        raise ConfigError(f"{here}: a queue is named twice")
    if pool.kind == "exclusive" and pool.slots > 1:
        raise ConfigError(
            f"{here}: slots = {pool.slots}, but jobs of an exclusive pool run one at a time: "
            "remove slots, or use kind = 'queue'"
        )
    if pool.kind == "group" and not profile.scalable:
        raise ConfigError(f"{here}: a group cannot be pinned; use kind = 'exclusive' per queue")
    check_bounds(pool)


def check_bounds(pool: Pool) -> None:
    """Raises ConfigError: the least number of a pool's workers does not fit the largest."""
    here, profile = f"pools.{pool.name}", pool.profile
    if profile.min_workers > profile.max_workers:
        raise ConfigError(
            f"{here}: min_workers {profile.min_workers} exceeds max_workers {profile.max_workers}"
        )
    pinned_at = {profile.min_workers, profile.max_workers}
    if not pool.scalable and (len(pinned_at) > 1 or 0 in pinned_at):
        raise ConfigError(
            f"{here}: a pinned pool needs min_workers = max_workers >= 1, "
            f"found {profile.min_workers}..{profile.max_workers}"
        )
