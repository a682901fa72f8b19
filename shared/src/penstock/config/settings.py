"""Every setting, declared once: name, type, default, meaning. `docs/settings.md` is made of it.

Those of pools are in :mod:`penstock.config.profiles`, those about hosts and Spark in `hosts` and
`spark`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.config.console import Console
from penstock.config.hooks import HookTable
from penstock.config.hosts import Health, Host, Hosts, Stuck
from penstock.config.profiles import PoolTable, ProfileOverride
from penstock.config.scaler import Scaler
from penstock.config.schedules import ScheduleTable
from penstock.config.secret_names import is_secret, spelled
from penstock.config.section import ALL, Count, Name, NonNegative, Period, Port, Positive, Section
from penstock.config.sources import SourceTable
from penstock.config.spark import Cluster, Pipeline, Spark


class Nats(Section, frozen=True, kw_only=True):
    """The address and credentials of the broker.

    Attributes:
        url: server or comma-separated servers; empty lets `penstock up` start its own, and so does
            a port of this machine at which no server listens (``nats://127.0.0.1:4777``).
        nkey_file: seed of an NKey, as `penstock deploy keys` makes them.
        credentials_file: a NATS `.creds` file, where there is no NKey.
        user: name of the user, where neither an NKey nor a `.creds` file is used.
        password: of ``user``.
        worker_nkey_file: the seed that an executor's workers use instead of its own.
        ca_file: certificate authority, turns TLS on (so does ``tls://`` in ``url``): nothing is
            sent before the TLS handshake, and nothing without it. Credentials for a server that is
            not on loopback are refused without TLS.
        broker_user: without TLS, a broker on loopback is used only if it runs as this user or as
            root; names one more user (a name or a number), for example that of a system service.
        monitor_url: the server's monitoring address (``http://host:8222``): `penstock health` reads
            there how it stores; nothing else uses it.
        connect_timeout_seconds: how long a start waits for the broker before it gives up.
        request_timeout_seconds: how long one request may take.
    """

    of_process = ALL
    of_machine = ALL

    url: str = ""
    nkey_file: str = ""
    worker_nkey_file: str = ""
    credentials_file: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    broker_user: str = ""
    monitor_url: str = ""
    connect_timeout_seconds: Positive = 30.0
    request_timeout_seconds: Positive = 5.0


class Streams(Section, frozen=True, kw_only=True):
    """The limits of the broker's streams.

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


class Logs(Section, frozen=True, kw_only=True):
    """What jobs write, kept for `penstock job logs`: lines of their loggers, and what they print.

    Attributes:
        enabled: workers publish the lines; where it is off, they are in the output of the executor
            (or of `penstock worker`) alone.
        max_age_hours: how long lines are kept.
        max_bytes: bound of the stream of all jobs' lines, which the broker reserves; the oldest
            lines go first.
        max_attempt_bytes: what one attempt of a job may write; further lines are dropped, and
            counted. The line about its failure is stored beyond that.
    """

    enabled: bool = True
    max_age_hours: Period = 72.0
    max_bytes: Annotated[int, Meta(ge=1_000_000)] = 100_000_000
    max_attempt_bytes: Annotated[int, Meta(ge=0, le=100_000_000)] = 1_000_000


class Jobs(Section, frozen=True, kw_only=True):
    """Finding and running jobs.

    Attributes:
        modules: importable modules whose `@job` functions workers may run. Nothing else is run.
        claim_seconds: a worker that is silent this long loses its job to another.
        max_payload_bytes: largest encoded job; larger ones are refused at dispatch. Events
            hold it in base64, in messages of at most 8 MB.
        claim_ahead_seconds: expected work that a worker may claim ahead of the running job.
        cancel_grace_seconds: a cancelled job that goes on this long is ended with its worker.
        max_lost_workers: a job that loses its worker this often without a result is dead (poison).
        max_checkpoint_bytes: largest encoded checkpoint; larger ones are refused.
        poll_seconds: how long an idle worker's request for jobs stands before it is made anew; jobs
            that come meanwhile are delivered at once.
        exclusive_lease_seconds: a worker that holds an exclusive queue and cannot reach the broker
            this long has ended its job by then, and another may take over.
        build: name of the version of the job code, such as a release or a commit; what workers and
            dead letters show. A digest of all functions' signatures is added to it.
        unknown_after_seconds: a job whose function or argument a worker does not know is offered to
            others for so long, and for as long as a live worker of its pool has a version of the
            code that was not asked, a day at most; then it is dead, a workflow blocked instead. 0:
            only the latter.
    """

    of_process = ("claim_seconds", "max_lost_workers")

    modules: tuple[str, ...] = ()
    claim_seconds: Annotated[float, Meta(ge=1, le=3600)] = 4.0
    max_payload_bytes: Annotated[int, Meta(ge=1024, le=6_000_000)] = 512_000
    claim_ahead_seconds: Annotated[float, Meta(ge=0, le=1)] = 0.05
    cancel_grace_seconds: NonNegative = 5.0
    max_lost_workers: Annotated[int, Meta(ge=1)] = 5
    max_checkpoint_bytes: Annotated[int, Meta(ge=64, le=900_000)] = 256_000
    poll_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    exclusive_lease_seconds: Annotated[float, Meta(ge=1, le=60)] = 10.0
    build: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,40}$")] = ""
    unknown_after_seconds: NonNegative = 300.0


class Workflows(Section, frozen=True, kw_only=True):
    """Coded workflows.

    Attributes:
        cleanup_seconds: how long the code of one that is cancelled may clean up, steps included; it
            is cancelled then in any case. 0 cancels at once.
    """

    cleanup_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300.0


class Dispatch(Section, frozen=True, kw_only=True):
    """Dispatching jobs.

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

    of_machine = ALL

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

    of_machine = ("key_file",)

    key_file: str = ""
    every_job: bool = False
    missing_key_seconds: Positive = 86_400.0
    masked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every_job and not self.key_file:
            raise ValueError("every_job = true needs key_file, the path of a file with keys")


class Metrics(Section, frozen=True, kw_only=True):
    """Measuring.

    Attributes:
        interval_seconds: time between snapshots of a quiet pool.
        max_per_second: snapshots of one pool when much happens.
        window_seconds: how far back distributions and rates look.
        functions: job functions of all pools that metrics count by name; further ones count as the
            function ``other``.
        job_series: series that are kept of the metrics which jobs record themselves
            (``context.metrics``); values of further ones are dropped and counted.
    """

    interval_seconds: Annotated[float, Meta(ge=0.05, le=60)] = 1.0
    max_per_second: Annotated[float, Meta(gt=0, le=10)] = 10.0
    window_seconds: Positive = 60.0
    functions: Count = 100
    job_series: Count = 2_000


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


class Telemetry(Section, frozen=True, kw_only=True):
    """Traces, metrics and logs by OTLP over HTTP. No endpoint: no exporter, no thread, no warning.

    Attributes:
        endpoint: base address of a collector; the standard ``OTEL_EXPORTER_OTLP_ENDPOINT`` is read
            where this is empty.
        signals: which of ``traces``, ``metrics`` and ``logs`` are sent.
        sample_share: share of traces that are sampled.
        jobs_per_second: so many jobs a worker traces a second at most, that being watched slows
            nothing down; a span takes it 0.02 ms, 0.1 if the job writes to it. 0 traces all.
        metrics_seconds: time between two posts of the metrics.
        service_name: what the services' names begin with at the collector: ``<this>-worker``.
        propagators: formats of the trace context beside W3C's ``traceparent``, which messages
            always carry: in messages, and in the calls that jobs make with instrumented libraries.
            Where none is named, the standard ``OTEL_PROPAGATORS`` is read.
    """

    of_process = ALL
    of_machine = ("endpoint",)

    endpoint: str = ""
    signals: tuple[Literal["traces", "metrics", "logs"], ...] = ("traces", "metrics", "logs")
    sample_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    jobs_per_second: Count = 200
    metrics_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    service_name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "penstock"
    propagators: tuple[Literal["tracecontext", "baggage", "b3", "b3multi", "jaeger"], ...] = ()


class Http(Section, frozen=True, kw_only=True):
    """The addresses of `/healthz`, `/readyz` and `/metrics`. There is no password.

    If a port is taken, the service logs it and runs without its pages.

    Attributes:
        address: of this machine; empty turns the pages off.
        metrics_path: what Prometheus reads, instead of `/metrics`.
        metrics_port: of the metrics service; 0 takes a free port and logs it.
        decider_port: of the decider; 0 takes a free port and logs it.
        orchestrator_port: of the orchestrator; 0 takes a free port and logs it.
        executor_port: of the executor; 0 takes a free port and logs it.
        console_port: of the console's health and metrics, not of its pages; 0 takes a free port and
            logs it.
        scaler_port: of the scaler's health and metrics, not of its gRPC; 0 takes a free port and
            logs it.
    """

    of_process = ALL
    of_machine = ALL

    address: str = "127.0.0.1"
    metrics_path: Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._~/-]{1,100}$")] = "/metrics"
    metrics_port: Port = 9461
    decider_port: Port = 9462
    orchestrator_port: Port = 9463
    executor_port: Port = 9464
    console_port: Port = 9465
    scaler_port: Port = 9466

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metrics_path in ("/healthz", "/readyz"):
            raise ValueError(f"metrics_path cannot be {self.metrics_path!r}, which is another page")


class Settings(Section, frozen=True, kw_only=True):
    """The whole file.

    Attributes:
        prefix: first token of every subject, so that installations can share a broker.
        excluded: glob patterns of queues that are left alone.
        default_pool: the pool, of kind ``queue`` or ``group``, that also takes every queue which no
            pool names and which is not excluded; its workers and its measurements find them within
            seconds. Empty: jobs on such a queue wait, and `penstock health` reports them.
    """

    of_process = ("prefix",)

    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}$")] = "penstock"
    excluded: tuple[str, ...] = ()
    default_pool: str = ""
    nats: Nats = Nats()
    streams: Streams = Streams()
    jobs: Jobs = Jobs()
    workflows: Workflows = Workflows()
    logs: Logs = Logs()
    dispatch: Dispatch = Dispatch()
    encryption: Encryption = Encryption()
    host: Host = msgspec.field(default_factory=Host)
    hosts: Hosts = Hosts()
    metrics: Metrics = Metrics()
    decider: Decider = Decider()
    spark: Spark = Spark()
    cluster: Cluster = Cluster()
    stuck: Stuck = Stuck()
    health: Health = Health()
    pipeline: Pipeline = Pipeline()
    telemetry: Telemetry = Telemetry()
    http: Http = Http()
    console: Console = Console()
    scaler: Scaler = Scaler()
    profiles: dict[str, ProfileOverride] = {}
    pools: dict[str, PoolTable] = {}
    sources: dict[Name, SourceTable] = {}
    schedules: dict[Name, ScheduleTable] = {}
    hooks: dict[Name, HookTable] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        hidden = spelled(self.encryption.masked)
        for argument in self.console.searchable_arguments:
            if is_secret(argument.rpartition(":")[2], hidden):
                raise ValueError(
                    f"console.searchable_arguments: {argument!r} is in encryption.masked; masked "
                    "arguments are never searched"
                )
