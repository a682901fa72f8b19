"""Facts about an installation at one instant. None stands for an unknown fact."""

from __future__ import annotations

import msgspec

from penstock.events.snapshot import PoolWorkers

BROKER_FILES = "the broker's files"
"""The use of the disk with the broker's files."""


class _Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class BrokerFacts(_Facts, frozen=True, kw_only=True):
    """The broker as this client sees it.

    Attributes:
        error: why it could not be asked; empty when it answered.
        answer_seconds: one request.
        stored_bytes: in use by JetStream's files.
        storage_bytes: limit of those.
        sync_seconds: how long a stored message may wait until it is forced onto the disk; 0 means
            at once.
        servers: how many form the cluster, None for unknown.
        write_error: why a small message was not stored; empty when it was, None for not tried.
    """

    error: str = ""
    version: str = ""
    answer_seconds: float | None = None
    stored_bytes: int | None = None
    storage_bytes: int | None = None
    store_dir: str = ""
    sync_seconds: float | None = None
    servers: int | None = None
    write_error: str | None = None


class StreamFacts(_Facts, frozen=True, kw_only=True):
    """A stream; ``max_bytes`` None is no bound of its own.

    Attributes:
        full_refuses: what comes when it is full is refused, not paid for by what is oldest.
        lagging: replicas that are offline or behind.
        accepts_bytes: of the event log: the size above which no job is accepted.
    """

    name: str
    bytes: int
    messages: int
    max_bytes: int | None = None
    full_refuses: bool = False
    accepts_bytes: int | None = None
    storage: str = "file"
    replicas: int = 1
    lagging: int = 0


class LogFacts(_Facts, frozen=True, kw_only=True):
    """The event log, as the orchestrator that shortens it reported last.

    Attributes:
        limit_bytes: bound of the history.
        held_bytes: all that the log holds.
        growth_per_hour: bytes stored, whether or not others left.
        living_bytes: about what jobs take that have not ended; as of the last shortening.
        living_growth_per_hour: how that grew since the one before.
        tail_seconds: age of the first message.
        oldest_living_seconds: of the oldest of these jobs.
        uncarried: jobs, batches and graphs that are too large to be carried past the log's old end.
        uncarried_bytes: what they take there.
        uncarried_name: noun and id of one of them.
    """

    limit_bytes: int
    held_bytes: int
    tail_seconds: float
    growth_per_hour: float | None = None
    living_bytes: int | None = None
    living_growth_per_hour: float | None = None
    oldest_living_seconds: float | None = None
    uncarried: int = 0
    uncarried_bytes: int = 0
    uncarried_name: str = ""


class DiskFacts(_Facts, frozen=True, kw_only=True):
    """A file system of the machine that asks, and what lies on it.

    ``growth_per_hour``: bytes by which its use grew lately; None where only one look was taken.
    """

    path: str
    use: str
    used_bytes: int
    total_bytes: int
    growth_per_hour: float | None = None


class HostFacts(_Facts, frozen=True, kw_only=True):
    """A host by its last snapshot.

    Attributes:
        silent_seconds: since that was stored.
        skew_seconds: its clock before (+) the broker's.
        spark: ``unused``, ``running``, ``remote``, ``down``; empty if not reported.
        order: an operator's: ``paused`` or ``drained``, by whom and why; empty for none.
        reload_error: why its last reload of the job code failed; empty where it did not.
    """

    name: str
    silent_seconds: float
    skew_seconds: float = 0.0
    draining: bool = False
    memory_share: float | None = None
    spark: str = ""
    order: str = ""
    reload_error: str = ""
    pools: dict[str, PoolWorkers] = {}


class ServiceFacts(_Facts, frozen=True, kw_only=True):
    """A service by the last thing it wrote.

    Attributes:
        silent_seconds: since that; None where it never wrote anything.
        runs: a process of it has published its settings lately.
    """

    name: str
    silent_seconds: float | None
    allowed_seconds: float
    runs: bool = False


class UnservedQueue(_Facts, frozen=True, kw_only=True):
    """A queue whose jobs no pool takes.

    Attributes:
        oldest_seconds: age of its oldest waiting job; None where it was not looked up.
        why: what is configured, and what to do.
        excluded: so on purpose.
    """

    name: str
    jobs: int
    excluded: bool = False
    oldest_seconds: float | None = None
    why: str = ""


class SourceFacts(_Facts, frozen=True, kw_only=True):
    """The queues of a pool in another system, as they were measured last.

    Attributes:
        fault: why one of them cannot be looked at.
        age_seconds: of the figures; None before the first look at all of them.
        stuck: messages that no worker takes though some are idle.
    """

    pool: str
    source: str
    fault: str = ""
    age_seconds: float | None = None
    stuck: int = 0


class HookFacts(_Facts, frozen=True, kw_only=True):
    """A hook whose notices are not delivered.

    Attributes:
        waiting: notices that failed and are tried again.
        failing_since: when the first of these was first tried, in seconds since 1970.
        dropped_at: when a notice was dropped, in seconds since 1970; None for none, and once a
            later one was delivered.
        error: of the last one that failed.
    """

    name: str
    waiting: int = 0
    failing_since: float | None = None
    dropped_at: float | None = None
    error: str = ""


class BlockedFacts(_Facts, frozen=True, kw_only=True):
    """Workflows of one function that no code at hand can go on with.

    Attributes:
        workflows: how many.
        since: when the first of them was blocked, in seconds since 1970.
    """

    function: str
    workflows: int
    since: float


class Facts(_Facts, frozen=True, kw_only=True):
    """All of it. ``skew_seconds``: this machine's clock before (+) the broker's.

    ``remote_spark`` is the error of reaching the configured Spark; empty when it was reached, None
    when none is configured. ``overdue_ticks``: of schedules, not dispatched though their time came;
    None where no orchestrator is missing. ``schedule_drift``: what differs between the schedules
    that the settings declare and those that are stored. ``holds``: pools that an operator holds,
    with bounds and end. ``settings_drift``: how services differ from the settings of who asks.
    ``hooks``: those that fail. ``blocked``: functions with workflows that are blocked.
    """

    broker: BrokerFacts
    streams: tuple[StreamFacts, ...] = ()
    missing_streams: tuple[str, ...] = ()
    log: LogFacts | None = None
    disks: tuple[DiskFacts, ...] = ()
    hosts: tuple[HostFacts, ...] = ()
    services: tuple[ServiceFacts, ...] = ()
    unserved: tuple[UnservedQueue, ...] = ()
    sources: tuple[SourceFacts, ...] = ()
    hooks: tuple[HookFacts, ...] = ()
    blocked: tuple[BlockedFacts, ...] = ()
    skew_seconds: float | None = None
    remote_spark: str | None = None
    pools: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    settings_drift: tuple[str, ...] = ()
    disk_warning_share: float = 0.8
    disk_critical_share: float = 0.95
    lease_seconds: float = 6.0
    overdue_ticks: int | None = None
    schedule_drift: tuple[str, ...] = ()
