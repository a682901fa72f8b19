"""Pools and the profiles that they start from."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.config.foreign import Drain
from penstock.config.foreign_presets import PresetName
from penstock.config.section import BudgetWindow, Count, NonNegative, Positive, Section, Share

Forecasting = Literal["on", "off"]
Options = dict[str, dict[str, Any]]
"""Options by strategy or policy; each checks its own when the decider starts."""

USUAL_POLICIES = (
    "cooldown",
    "conservative",
    "keep-busy",
    "effectiveness",
    "breach-notification",
)
PACES = frozenset({"cooldown", "conservative"})
"""Policies that slow down a strategy which would follow every measurement at once."""
BY_BATCHES = frozenset({"batch_within"})
"""Strategies for streaming queries. A batch keeps all Workers busy, however many there are, so that
policies that go by busy workers or by the run time of jobs would mistake it."""
_FOR_BATCHES = frozenset({"breach-notification"})
OWN_PACE = frozenset({"deadline"})
"""Strategies that weigh each change themselves; only a pool's own setting slows them down."""


_MOST_FOR_JOBS = 4
"""A quarter, so that a small host has memory for the worker and for others."""


class Profile(Section, frozen=True, kw_only=True):
    """A named bundle of settings for a pool.

    Attributes:
        sla_seconds: the promise: a job starts within this time; a batch of a streaming query is
            done.
        quantile: the share of jobs for which the promise holds.
        budget_window_seconds: the promise is counted over this time; jobs beyond ``quantile`` may
            be late in it.
        min_workers: lower bound of the pool over all hosts.
        max_workers: upper bound of the pool over all hosts.
        forecast: arrivals are forecast, and workers started for those to come where a forecast does
            better than the rate of now.
        strategy: the strategy that computes how many workers are needed.
        options: settings of strategies, one table each: ``[pools.NAME.options.STRATEGY]``; those
            of each are listed in strategies.md.
        policies: policies that may hold or limit the strategy's demand, in this order; empty for
            those usual for the strategy; see policies.md.
        policy_options: settings of policies, one table each:
            ``[pools.NAME.policy_options.POLICY]``.
        advisor: decide and publish the decisions, but command nothing: the plan stays as it is.
        breach_threshold: share of the SLA at which `hybrid` starts to drain the backlog.
        scale_up_cooldown_seconds: least time between two steps up; scaling up through a breach is
            never held back.
        scale_down_cooldown_seconds: least time between two steps down.
        scale_down_share: at most this share of a pool is removed in one step (at least 1 worker).
        tries: attempts of jobs that do not set their own.
        timeout_seconds: of an attempt, for jobs that do not set their own; 0 means none.
        breach_cost: weight of this pool where capacity is scarce.
        cpu_cores: cores that one worker needs, before that is measured.
        memory_bytes: memory that one worker needs, before that is measured.
        jobs_memory_bytes: what a job takes in processes of its own, such as Spark below a worker:
            kept free for it beside that, but no more than a quarter of the largest host's memory.
        scalable: ``false`` pins the pool at its minimum.
        limit_memory_bytes: a worker that uses more memory ends after its job and is replaced; 0 is
            no limit.
        limit_job_memory_bytes: a running job whose worker's process uses more memory is ended: the
            attempt fails with the error ``memory-limit``, and the worker is replaced; 0 is no
            limit. A worker itself takes 100 MB and more.
        limit_job_cpu_seconds: an attempt that uses more CPU time in its own thread fails with the
            error ``cpu-limit``; 0 is no limit. What other threads and Spark use does not count.
        nice: by how much the workers' processes yield the processor to others, 0 to 19.
        limit_jobs: a worker ends after this many jobs and is replaced; 0 is no limit.
        limit_seconds: a worker that is older ends after its job and is replaced; 0 is no limit.
        middleware: put around each of its jobs, outermost first; each ``module:attribute``.
    """

    sla_seconds: Positive = 30.0
    quantile: Share = 0.95
    budget_window_seconds: BudgetWindow = 86_400.0
    min_workers: Count = 1
    max_workers: Count = 10
    forecast: Forecasting = "on"
    strategy: str = "deadline"
    options: Options = {}
    policies: tuple[str, ...] | None = None
    policy_options: Options = {}
    advisor: bool = False
    breach_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.8
    scale_up_cooldown_seconds: NonNegative = 0.0
    scale_down_cooldown_seconds: NonNegative = 30.0
    scale_down_share: Annotated[float, Meta(gt=0, le=1)] = 0.25
    tries: Annotated[int, Meta(ge=1, le=1000)] = 3
    timeout_seconds: NonNegative = 0.0
    breach_cost: Positive = 1.0
    cpu_cores: Positive = 0.2
    memory_bytes: Annotated[int, Meta(ge=1_000_000)] = 128 * 1024 * 1024
    jobs_memory_bytes: Annotated[int, Meta(ge=0)] = 0
    scalable: bool = True
    limit_memory_bytes: Annotated[int, Meta(ge=0)] = 0
    limit_job_memory_bytes: Annotated[int, Meta(ge=0)] = 0
    limit_job_cpu_seconds: NonNegative = 0.0
    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    limit_jobs: Annotated[int, Meta(ge=0)] = 0
    limit_seconds: NonNegative = 0.0
    middleware: tuple[str, ...] = ()

    def kept_for_jobs(self, host_bytes: int) -> int:
        """Bytes beside a worker that its jobs may take, where the largest host has so many."""
        return min(self.jobs_memory_bytes, host_bytes // _MOST_FOR_JOBS)

    @property
    def policies_in_force(self) -> tuple[str, ...]:
        """Those named, else those usual for the strategy."""
        return _usual_policies(self.strategy) if self.policies is None else self.policies


@lru_cache(maxsize=256)
def _usual_policies(strategy: str) -> tuple[str, ...]:
    if strategy in BY_BATCHES:
        return tuple(name for name in USUAL_POLICIES if name in _FOR_BATCHES)
    own_pace = strategy in OWN_PACE
    return tuple(name for name in USUAL_POLICIES if not (own_pace and name in PACES))


PROFILES: dict[str, Profile] = {
    "critical": Profile(sla_seconds=10, quantile=0.99, min_workers=5, max_workers=50),
    "high-volume": Profile(sla_seconds=20, min_workers=3, max_workers=40),
    "balanced": Profile(),
    "bursty": Profile(sla_seconds=60, quantile=0.90, min_workers=0, max_workers=100),
    "background": Profile(sla_seconds=300, min_workers=0, max_workers=5),
    "exclusive": Profile(
        sla_seconds=60,
        min_workers=1,
        max_workers=1,
        forecast="off",
        scalable=False,
        strategy="fixed",
    ),
    "spark": Profile(min_workers=0),
}
"""The profiles that ship; `[profiles.NAME]` adds others or overrides parts of these."""


class ProfileOverride(Section, frozen=True, kw_only=True, omit_defaults=True):
    """Any part of a profile; what is left out comes from the profile it is laid over."""

    sla_seconds: Positive | UnsetType = UNSET
    quantile: Share | UnsetType = UNSET
    budget_window_seconds: BudgetWindow | UnsetType = UNSET
    min_workers: Count | UnsetType = UNSET
    max_workers: Count | UnsetType = UNSET
    forecast: Forecasting | UnsetType = UNSET
    strategy: str | UnsetType = UNSET
    options: Options | UnsetType = UNSET
    policies: tuple[str, ...] | UnsetType = UNSET
    policy_options: Options | UnsetType = UNSET
    advisor: bool | UnsetType = UNSET
    breach_threshold: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    scale_up_cooldown_seconds: NonNegative | UnsetType = UNSET
    scale_down_cooldown_seconds: NonNegative | UnsetType = UNSET
    scale_down_share: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    tries: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    timeout_seconds: NonNegative | UnsetType = UNSET
    breach_cost: Positive | UnsetType = UNSET
    cpu_cores: Positive | UnsetType = UNSET
    memory_bytes: Annotated[int, Meta(ge=1_000_000)] | UnsetType = UNSET
    jobs_memory_bytes: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    scalable: bool | UnsetType = UNSET
    limit_memory_bytes: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    limit_job_memory_bytes: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    limit_job_cpu_seconds: NonNegative | UnsetType = UNSET
    nice: Annotated[int, Meta(ge=0, le=19)] | UnsetType = UNSET
    limit_jobs: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    limit_seconds: NonNegative | UnsetType = UNSET
    middleware: tuple[str, ...] | UnsetType = UNSET

    def over(self, profile: Profile) -> Profile:
        """``profile`` with what is set here in its place; options one by one."""
        set_here = {
            name: value
            for name in ProfileOverride.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }
        for name in ("options", "policy_options"):
            if name in set_here:
                set_here[name] = _laid_over(getattr(profile, name), set_here[name])
        return msgspec.structs.replace(profile, **set_here)


def _laid_over(below: Options, above: Options) -> Options:
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in {**below, **above}}


PoolKind = Literal["queue", "group", "exclusive", "spark"]


class PoolTable(ProfileOverride, frozen=True, kw_only=True):
    """`[pools.NAME]`: its kind, its queues, its profile, and any part of the profile.

    Attributes:
        kind: ``queue`` (one queue, own workers), ``group`` (several, in priority order),
            ``exclusive`` (pinned workers, never scaled) or ``spark`` (Workers of the Spark cluster
            under ``[cluster]``, scaled by its tasks; see spark.md).
        queues: in priority order; empty means one queue of the pool's name. Of a ``source`` also
            patterns, such as ``tenant-*``: see sources.md.
        slots: how many jobs each worker runs at a time: for jobs that wait for others most of the
            time; see jobs.md. Of a Spark Worker: how many tasks; its need of cores, where
            ``cpu_cores`` is not set.
        slot_memory_bytes: of a Spark Worker: memory for each task. Its need of memory, where
            ``memory_bytes`` is not set.
        serves: of a Spark pool: pools whose jobs work on this cluster.
        slots_per_job: of a Spark pool: tasks that a job of a served pool counts here, from its
            dispatch until its own tasks do.
        source: the table ``[sources.NAME]`` of another system, in which the pool's queues are;
            needs ``command``, or ``advisor = true``. Of a Spark pool: of streaming queries, which
            ``queues`` names.
        command: a program and its arguments, which is run in place of each worker, without a shell:
            a consumer of another system. ``{queues}`` stands for the names of the pool's queues
            with commas between them, ``{worker}``, ``{host}`` and ``{pool}`` for names; an argument
            with ``{queue}`` is repeated for each queue. Without ``source`` the pool needs the
            strategy ``fixed``.
        preset: the library of the command: ``ready`` and ``drain`` are taken from it where they are
            not set, and `penstock config check` reads the command's flags; see foreign-workers.md.
        ready: what shows that such a process takes messages: ``log:REGEX`` (a line of its output),
            ``port:N`` (it listens there), ``http:URL`` (of this machine; answers with 2xx),
            ``file:PATH`` (exists; ``{worker}`` may stand in it) or ``seconds:N``.
        ready_seconds: such a process that is not ready after so long is drained and replaced.
        drain: how such a process is ended: ``{ signal = "TERM", seconds = 30, then = "KILL" }``.
            It gets ``signal``, ``then`` after ``seconds``, and is killed five seconds later.
        runtime_seconds: how long such a process handles one message, until that is measured; 0: not
            known. For queues of a ``source``.
        environment: names of variables of the executor that such a process gets, ``PREFIX_*`` for
            all that begin so, beside the usual ones (``PATH``, ``HOME``, ``LANG`` and the like).
        priorities: each queue has three lanes, ``high``, ``normal`` and ``low``; a worker takes
            from a lower one only what it finds when the higher ones are empty.
        profile: what the pool starts from; an exclusive pool's is ``exclusive``.
    """

    kind: PoolKind = "queue"
    queues: tuple[str, ...] = ()
    priorities: bool = False
    profile: str = ""
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    slot_memory_bytes: Annotated[int, Meta(ge=450 * 1024 * 1024)] = 1024 * 1024 * 1024
    serves: tuple[str, ...] = ()
    slots_per_job: Annotated[int, Meta(ge=1, le=100_000)] = 1
    source: str = ""
    command: tuple[str, ...] = ()
    preset: PresetName = ""
    ready: str = "seconds:1"
    ready_seconds: Positive = 60.0
    drain: Drain = Drain()
    runtime_seconds: NonNegative = 0.0
    environment: tuple[str, ...] = ()


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as it is used: profile and overrides worked out.

    Attributes:
        queues: queues of jobs; empty where the pool's work is elsewhere.
        slots: jobs that one worker runs at a time; tasks, of a Spark Worker.
        source: the other system that has the pool's queues; empty for none.
        source_queues: names of the queues there, in priority order; of streaming queries.
        look_seconds: time between two looks at these; 0 for queues of our own.
        command: what is run as each worker; empty for workers of our own.
        preset: the library of that; worked into ``ready`` and ``drain``.
        runtime_seconds: of one message, until it is measured; 0 where that is not known.
    """

    name: str
    kind: PoolKind
    queues: tuple[str, ...]
    profile: Profile
    slots: int = 1
    slot_memory_bytes: int = 0
    serves: tuple[str, ...] = ()
    slots_per_job: int = 1
    source: str = ""
    source_queues: tuple[str, ...] = ()
    look_seconds: float = 0.0
    command: tuple[str, ...] = ()
    preset: PresetName = ""
    ready: str = "seconds:1"
    ready_seconds: float = 60.0
    drain: Drain = Drain()
    runtime_seconds: float = 0.0
    environment: tuple[str, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Its workers are processes of another system, which run none of our jobs."""
        return bool(self.command or (self.source and self.kind != "spark"))

    @property
    def scalable(self) -> bool:
        return self.kind != "exclusive" and self.profile.scalable

    @property
    def job_slots(self) -> int:
        """Jobs that one worker runs at a time. What a pool measures of a Spark Worker with several
        slots is in whole Workers."""
        return 1 if self.kind == "spark" else self.slots
