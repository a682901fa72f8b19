"""Every setting, declared once: name, type, default, meaning. `docs/settings.md` is made of it.

Those of pools stand in :mod:`penstock.config.profiles`.
"""

from __future__ import annotations

import re
import socket
from datetime import date, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError
from msgspec import Meta

from penstock.config.hosts import Hosts
from penstock.config.profiles import PoolTable, ProfileOverride
from penstock.config.section import Count, Name, NonNegative, Period, Positive, Section


class Nats(Section, frozen=True, kw_only=True):
    """How to reach the broker.

    Attributes:
        url: server or comma-separated servers; empty lets `penstock up` start its own.
        nkey_file: seed of an NKey, as `penstock deploy keys` makes them.
        credentials_file: a NATS `.creds` file, where there is no NKey.
        user: name of the user, where neither an NKey nor a `.creds` file is used.
        password: of ``user``.
        worker_nkey_file: the seed that an executor's workers use instead of its own.
        ca_file: certificate authority, turns TLS on (so does ``tls://`` in ``url``): nothing is
            sent before the TLS handshake, and nothing without it. Credentials for a server that is
            not on loopback are refused without TLS.
        monitor_url: the server's monitoring address (``http://host:8222``): `penstock health` reads
            there how it stores; nothing else uses it.
        connect_timeout_seconds: how long a start waits for the broker before it gives up.
        request_timeout_seconds: how long one request may take.
    """

    url: str = ""
    nkey_file: str = ""
    worker_nkey_file: str = ""
    credentials_file: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    monitor_url: str = ""
    connect_timeout_seconds: Positive = 30.0
    request_timeout_seconds: Positive = 5.0


class Streams(Section, frozen=True, kw_only=True):
    """What the broker keeps.

    Attributes:
        replicas: copies of each stream (1, 3 or 5; more than 1 needs a cluster).
        events_max_age_days: how old history in the event log may become. The orchestrator shortens
            it, and carries what lives past its end.
        events_max_bytes: bytes of the event log, with the jobs that have not ended. The broker
            reserves more, so that ends of jobs can always be stored: ``reserve =
            max(events_max_bytes / 4, 4 MB)``. No job is accepted above ``events_max_bytes + reserve
            / 2``: the other half is for ends of jobs. The broker counts, and reserves, bytes as
            they were before they were compressed.
        compression: how the broker stores event log and snapshots; ``s2`` takes two fifths of the
            disk for events, at most three for snapshots. What is read is the same. The orchestrator
            sets it for streams that exist; the broker obeys from its next restart on, and leaves
            older blocks as they are.
        snapshots_max_age_hours: how far back decisions can be recomputed.
        dead_max_age_days: how long dead letters wait for an operator.
        others_max_bytes: bound of each other stream but that of the jobs; 0 for none but the
            broker's, which reserves it. A full one refuses what is new, snapshots lose their
            oldest. Jobs have no bound of their own: the broker would discard the oldest ones.
    """

    replicas: Literal[1, 3, 5] = 1
    events_max_age_days: Period = 14.0
    events_max_bytes: Annotated[int, Meta(ge=1_000_000)] = 4_000_000_000
    compression: Literal["s2", "none"] = "s2"
    snapshots_max_age_hours: Period = 48.0
    dead_max_age_days: Period = 90.0
    others_max_bytes: Annotated[int, Meta(ge=0)] = 0


class Jobs(Section, frozen=True, kw_only=True):
    """How jobs are found and run.

    Attributes:
        modules: importable modules whose `@job` functions workers may run. Nothing else is run.
        claim_seconds: a worker that is silent this long loses its job to another.
        max_payload_bytes: largest encoded job; larger ones are refused at dispatch.
        claim_ahead_seconds: expected work that a worker may claim ahead of the running job.
        cancel_grace_seconds: a cancelled job that goes on this long is ended with its worker.
        max_lost_workers: a job that loses its worker this often without a result is dead (poison).
        max_checkpoint_bytes: largest encoded checkpoint; larger ones are refused.
        poll_seconds: how long an idle worker's request for jobs stands before it is made anew; jobs
            that come meanwhile are delivered at once.
        exclusive_lease_seconds: a worker that holds an exclusive queue and cannot reach the broker
            this long has ended its job by then, and another may take over.
    """

    modules: tuple[str, ...] = ()
    claim_seconds: Annotated[float, Meta(ge=1, le=3600)] = 4.0
    max_payload_bytes: Annotated[int, Meta(ge=1024, le=8_000_000)] = 512_000
    claim_ahead_seconds: Annotated[float, Meta(ge=0, le=1)] = 0.05
    cancel_grace_seconds: NonNegative = 5.0
    max_lost_workers: Annotated[int, Meta(ge=1)] = 5
    max_checkpoint_bytes: Annotated[int, Meta(ge=64, le=900_000)] = 256_000
    poll_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    exclusive_lease_seconds: Annotated[float, Meta(ge=1, le=60)] = 10.0


class Dispatch(Section, frozen=True, kw_only=True):
    """How jobs are handed over.

    Attributes:
        when_away: what a dispatch does while the broker is away: ``fail`` at once, ``wait`` up to
            wait_seconds, or go to the ``outbox``, a local file, to be sent later in order.
        wait_seconds: how long a dispatch that waits does so before it fails.
        outbox_file: the outbox: a path on this machine, for one user; its mode is 0600.
        outbox_max_jobs: a dispatch beyond so many jobs in the outbox is refused.
        outbox_close_seconds: how long a client that is closed goes on sending what is in the
            outbox; the rest stays there for the next one. 0 does not wait.
        automatic_tags: what each job is tagged with by itself: ``env:...``, ``queue:...``,
            ``host:...`` (where it was dispatched).
        environment: the text of the tag ``env:...``.
    """

    when_away: Literal["fail", "wait", "outbox"] = "fail"
    wait_seconds: NonNegative = 30.0
    outbox_file: str = ""
    outbox_max_jobs: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    outbox_close_seconds: NonNegative = 5.0
    automatic_tags: tuple[Literal["environment", "queue", "host"], ...] = ()
    environment: Annotated[str, Meta(min_length=1, max_length=90)] = "production"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.when_away == "outbox" and not self.outbox_file:
            raise ValueError("when_away = 'outbox' needs outbox_file, the path of a local file")


class Encryption(Section, frozen=True, kw_only=True):
    """Encryption of arguments and results, and masking of values in output.

    Attributes:
        key_file: a line ``id key`` each, the key being 32 bytes in base64; the first one encrypts,
            all of them decrypt. Mode 0600. Empty: no encryption.
        every_job: encrypt the arguments and results of all jobs, not only of those marked so.
        missing_key_seconds: a job whose key no worker of its pool has is offered again until then;
            after that it is a dead letter of kind ``missing-key``, which can be retried.
        masked: names of fields, at any depth, that are never shown, beside those that a job names
            and those whose words name a secret (``db_password``, ``apiKey``, ``access-token``).
    """

    key_file: str = ""
    every_job: bool = False
    missing_key_seconds: Positive = 86_400.0
    masked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every_job and not self.key_file:
            raise ValueError("every_job = true needs key_file, the path of a file with keys")


def _host_name(raw_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", raw_name.split(".", maxsplit=1)[0])[:64] or "local"


class Host(Section, frozen=True, kw_only=True):
    """The executor's host.

    Attributes:
        name: unique among hosts.
        run_dir: sockets and records of living workers; empty means a folder of this host's name
            below the user's runtime folder.
        reserve_cpu_cores: cores that are never given to workers.
        reserve_memory_bytes: memory that is never given to workers.
        max_cpu_share: share of the cores that no plan exceeds, whatever uses them.
        max_memory_share: share of the memory that no plan exceeds, whatever uses it.
        max_workers: ceiling over all pools; 0 for none.
        drain_seconds: how long a busy worker may finish before it is killed.
        orphan_grace_seconds: workers end this long after their executor vanished.
        lease_seconds: a host silent this long is lost; its share moves to others.
        max_parallel_starts: how many workers may be starting at a time; 0 is twice the cores. Of
            Spark Workers, whose Java keeps a core busy, never more than there are cores.
    """

    name: Name = msgspec.field(default_factory=lambda: _host_name(socket.gethostname()))
    run_dir: str = ""
    reserve_cpu_cores: NonNegative = 0.5
    reserve_memory_bytes: Annotated[int, Meta(ge=0)] = 256 * 1024 * 1024
    max_cpu_share: Annotated[float, Meta(gt=0, le=1)] = 0.9
    max_memory_share: Annotated[float, Meta(gt=0, le=1)] = 0.85
    max_workers: Count = 0
    drain_seconds: NonNegative = 30.0
    orphan_grace_seconds: Positive = 10.0
    lease_seconds: Positive = 6.0
    max_parallel_starts: Count = 0


class Stuck(Section, frozen=True, kw_only=True):
    """Jobs that make no progress though their worker lives; see docs/jobs.md.

    Attributes:
        strategy: what becomes of one: ``graceful`` (asked to stop; goes on elsewhere from its last
            checkpoint), ``checkpoint`` (its worker is killed; likewise), ``restart`` (its worker is
            killed; it begins anew) or ``off`` (nothing; it is only reported).
        silent_seconds: without a sign of life for so long, the part of the score for it is full.
        expected_seconds: how long a job may run where too few like it were seen.
        longer: the part for the run time is full at so many times what is expected.
        memory_growth: the part for memory is full at so many times what it began with.
        threshold: a job is stuck whose score is above this.
        looks: how many samples above the threshold it takes.
        within_seconds: these samples lie within so many seconds.
    """

    strategy: Literal["graceful", "restart", "checkpoint", "off"] = "graceful"
    silent_seconds: Positive = 300.0
    expected_seconds: Positive = 300.0
    longer: Annotated[float, Meta(gt=1, le=1000)] = 3.0
    memory_growth: Annotated[float, Meta(gt=1.1, le=1000)] = 2.0
    threshold: Annotated[float, Meta(gt=0, le=1)] = 0.7
    looks: Annotated[int, Meta(ge=1, le=100)] = 3
    within_seconds: Positive = 10.0


class Metrics(Section, frozen=True, kw_only=True):
    """Measuring.

    Attributes:
        interval_seconds: time between snapshots of a quiet pool.
        max_per_second: snapshots of one pool when much happens.
        window_seconds: how far back distributions and rates look.
    """

    interval_seconds: Annotated[float, Meta(ge=0.05, le=60)] = 1.0
    max_per_second: Annotated[float, Meta(gt=0, le=10)] = 10.0
    window_seconds: Positive = 60.0


class Decider(Section, frozen=True, kw_only=True):
    """Deciding.

    Attributes:
        lease_seconds: a leader silent this long is replaced.
        stale_seconds: measurements older than this never lower a worker count.
        repeat_seconds: pools are decided each second; a decision equal to the last one becomes
            an event only this long after it. 0 makes every decision an event.
        placement: ``spread`` a pool over hosts, or ``pack`` it.
        rebalance_seconds: a pool that is spread and was left alone this long moves one worker to a
            host that has at least two fewer of them (a host came, or came back). 0: never. Workers
            that serve Spark clusters and exclusive pools stay where they are.
    """

    lease_seconds: Annotated[float, Meta(ge=0.5, le=60)] = 3.0
    stale_seconds: Positive = 5.0
    repeat_seconds: NonNegative = 5.0
    placement: Literal["spread", "pack"] = "spread"
    rebalance_seconds: NonNegative = 10.0


class Spark(Section, frozen=True, kw_only=True):
    """The host's shared Spark Connect server, or any other Spark.

    Attributes:
        remote: a Spark Connect address (``sc://…``) to use instead of the host's own server.
        token_file: holds the token that the server behind ``remote`` asks for.
        threads: local threads of the host's own server; 0 means one per usable core.
        memory: its Java heap.
        idle_seconds: it is stopped when unused this long.
        conf: Spark settings handed to the server.
        measure_cost: jobs record their CPU seconds, rows, shuffled bytes and peak memory on Spark.
            Turns on its web UI, on loopback, which every user of the host can read.
        ui_url: where that of a remote Spark is.
    """

    remote: str = ""
    token_file: str = ""
    threads: Count = 0
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    idle_seconds: Positive = 300.0
    conf: dict[str, str] = {}
    measure_cost: bool = False
    ui_url: str = ""


class Cluster(Section, frozen=True, kw_only=True):
    """The Spark standalone cluster whose Workers are scaled: pools with ``kind = "spark"``.

    Attributes:
        master: ``local`` (`penstock up` starts a Master on this machine) or the address of one,
            ``spark://host:7077``.
        ui_url: its web address; empty means port 8080 of the same host.
        port: where a local Master listens.
        ui_port: where a local Master serves its web UI.
        interface: address that Master and Workers of this host listen at.
        secret_file: what all who belong to the cluster share; mode 0600. Empty, with a local
            Master: `penstock up` makes one in .penstock/.
        worker_overhead_bytes: what a Worker needs beside the memory that it offers.
    """

    master: Annotated[str, Meta(pattern=r"^(|local|spark://[A-Za-z0-9._:,\[\]-]+)$")] = ""
    ui_url: Annotated[str, Meta(pattern=r"^(|https?://[^\s/]+(/[^\s]*)?)$")] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = 7077
    ui_port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    interface: str = "127.0.0.1"
    secret_file: str = ""
    worker_overhead_bytes: Annotated[int, Meta(ge=0)] = 160 * 1024 * 1024


class Pipeline(Section, frozen=True, kw_only=True):
    """The data pipeline as jobs of the platform it learns from, dispatched by the clock.

    Attributes:
        lake: a folder on any file system that Hadoop knows. Empty: there are no such jobs. Where no
            pool serves the queue ``pipeline``, there is an exclusive one of that name.
        master: the Spark that works: ``local[2]``, or a cluster's ``spark://host:7077``.
        memory_bytes: kept free for Spark on the host of that pool's worker, but no more than a
            quarter of the largest host's memory.
        land: when what is new is landed and summed up, as a cron expression; empty: never.
        forecast: when forecasts are made of what is new, too, and published, as a cron expression.
        weeks: how much of the past forecasts learn from.
        report: when a report of the last seven days is written, as a cron expression.
        report_file: the page that the report is written to; empty: no report.
        zone: time zone of the cron expressions, and of forecasts.
        nkey_file: the seed of the role ``pipeline``, on the hosts whose workers run these jobs;
            where the broker knows its users by NKeys.
        special_days: dates that are like a Sunday, such as ``2026-12-25``.
    """

    lake: str = ""
    master: Annotated[str, Meta(min_length=1)] = "local[2]"
    memory_bytes: Annotated[int, Meta(ge=0)] = 1_200_000_000
    land: str = "*/15 * * * *"
    forecast: str = "5 * * * *"
    weeks: Annotated[float, Meta(gt=0, le=104)] = 4.0
    report: str = "0 6 * * *"
    report_file: str = ""
    zone: str = "UTC"
    nkey_file: str = ""
    special_days: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("land", "forecast", "report"):
            if cron := getattr(self, name):
                _check_cron(name, cron, self.zone)
        for day in self.special_days:
            _check_day(day)


def _check_cron(name: str, cron: str, zone: str) -> None:
    try:
        CronSim(cron, datetime.now(ZoneInfo(zone)))
    except CronSimError as error:
        raise ValueError(
            f"{name} = {cron[:80]!r} is no cron expression ({error}); '*/15 * * * *' is each "
            "quarter of an hour"
        ) from error
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"zone = {zone[:80]!r} is not known; e.g. 'Europe/Berlin'") from error


def _check_day(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"special_days: found {text[:40]!r}, expected e.g. '2026-12-25'"
        ) from error


class Telemetry(Section, frozen=True, kw_only=True):
    """Traces, metrics and logs by OTLP over HTTP. No endpoint: no exporter, no thread, no warning.

    Attributes:
        endpoint: base address of a collector; the standard ``OTEL_EXPORTER_OTLP_ENDPOINT`` is read
            where this is empty.
        signals: which of ``traces``, ``metrics`` and ``logs`` are sent.
        sample_share: share of stories that are traced.
        jobs_per_second: so many jobs a worker traces a second at most, that being watched slows
            nothing down; a span takes it 0.02 ms, 0.1 if the job writes to it. 0 traces all.
        metrics_seconds: time between two posts of the metrics.
    """

    endpoint: str = ""
    signals: tuple[Literal["traces", "metrics", "logs"], ...] = ("traces", "metrics", "logs")
    sample_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    jobs_per_second: Count = 200
    metrics_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0


Port = Annotated[int, Meta(ge=0, le=65535)]


class Http(Section, frozen=True, kw_only=True):
    """Where services answer `/healthz`, `/readyz` and `/metrics`. There is no password.

    If a port is taken, the service logs it and runs without its pages.

    Attributes:
        address: of this machine; empty turns the pages off.
        metrics_port: of the metrics service; 0 takes a free port and logs it.
        decider_port: of the decider; 0 takes a free port and logs it.
        orchestrator_port: of the orchestrator; 0 takes a free port and logs it.
        executor_port: of the executor; 0 takes a free port and logs it.
    """

    address: str = "127.0.0.1"
    metrics_port: Port = 9461
    decider_port: Port = 9462
    orchestrator_port: Port = 9463
    executor_port: Port = 9464


class Settings(Section, frozen=True, kw_only=True):
    """The whole file.

    Attributes:
        prefix: first token of every subject, so that installations can share a broker.
        excluded: glob patterns of queues that are left alone.
        default_pool: the pool, of kind ``queue`` or ``group``, that also takes every queue which no
            pool names and which is not excluded; its workers and its measurements find them within
            seconds. Empty: jobs on such a queue wait, and `penstock health` reports them.
    """

    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}$")] = "penstock"
    excluded: tuple[str, ...] = ()
    default_pool: str = ""
    nats: Nats = Nats()
    streams: Streams = Streams()
    jobs: Jobs = Jobs()
    dispatch: Dispatch = Dispatch()
    encryption: Encryption = Encryption()
    host: Host = msgspec.field(default_factory=Host)
    hosts: Hosts = Hosts()
    metrics: Metrics = Metrics()
    decider: Decider = Decider()
    spark: Spark = Spark()
    cluster: Cluster = Cluster()
    stuck: Stuck = Stuck()
    pipeline: Pipeline = Pipeline()
    telemetry: Telemetry = Telemetry()
    http: Http = Http()
    profiles: dict[str, ProfileOverride] = {}
    pools: dict[str, PoolTable] = {}
