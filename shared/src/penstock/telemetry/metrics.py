"""Every metric, declared once: `docs/telemetry.md`, exposition and OTLP are made of it.

Names and units are OpenTelemetry's; :attr:`Metric.prometheus` is what they become where they are
scraped (*Prometheus and OpenMetrics Compatibility*, OpenTelemetry specification 1.45). Labels come
from the configuration or from fixed lists, never from jobs: their number is bounded.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_PER = {"s": "second"}
_TOLD_BY = {
    "every service": ("service",),
    "metrics": ("pool", "snapshots", "jobs", "job"),
    "decider": ("decider", "decision", "decisions", "commands"),
    "executor": ("host", "workers", "worker"),
    "orchestrator": ("health", "broker", "stream", "dead_letters", "disk", "orchestrator"),
}


class Metric(msgspec.Struct, frozen=True):
    """What one number means.

    Attributes:
        unit: UCUM: ``s``, ``By``, ``1`` (a share), ``{job}``, ``{job}/s``.
        labels: their names, in the order in which values are given.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    about: str
    labels: tuple[str, ...] = ()

    @property
    def told_by(self) -> str:
        """The service that tells it."""
        noun = self.name.split(".")[1]
        return next(service for service, nouns in _TOLD_BY.items() if noun in nouns)

    @property
    def prometheus(self) -> str:
        """Its name in the exposition; a counter's samples have ``_total`` behind it."""
        counted, _, each = re.sub(r"\{.*?\}", "", self.unit).partition("/")
        words = [self.name.replace(".", "_"), _UNITS.get(counted, ""), each and f"per_{_PER[each]}"]
        return "_".join(word for word in words if word)


def _gauge(name: str, unit: str, about: str, *labels: str) -> Metric:
    return Metric(f"penstock.{name}", "gauge", unit, about, labels)


def _counter(name: str, unit: str, about: str, *labels: str) -> Metric:
    return Metric(f"penstock.{name}", "counter", unit, about, labels)


def _histogram(name: str, about: str, *labels: str) -> Metric:
    return Metric(f"penstock.{name}", "histogram", "s", about, labels)


# --- every service -------------------------------------------------------------------------------
SERVICE_INFO = _gauge("service.info", "", "Always 1; says who answers.", "service", "version")
SERVICE_CHECK = _gauge(
    "service.check", "", "1 while a check of `/readyz` is passed, else 0.", "service", "check"
)
LOOP_LAG = _gauge("service.loop_lag", "s", "How late the event loop turned lately, at most.")
BROKEN_READINGS = _counter("service.broken_readings", "{reading}", "Numbers that could not be had.")

# --- metrics: what is measured about pools -------------------------------------------------------
WAITING = _gauge("pool.jobs.waiting", "{job}", "Jobs that could start now.", "pool")
WAITING_LATE = _gauge("pool.jobs.waiting_late", "{job}", "Of these, later than promised.", "pool")
DELAYED = _gauge("pool.jobs.delayed", "{job}", "Scheduled or retrying, not yet due.", "pool")
RUNNING = _gauge("pool.jobs.running", "{job}", "Claimed by workers.", "pool")
OLDEST = _gauge("pool.oldest_waiting", "s", "Age of the oldest waiting job.", "pool")
ARRIVALS = _gauge("pool.arrivals", "{job}/s", "From the growth of the stored sequence.", "pool")
FORECAST = _gauge(
    "pool.forecast", "{job}/s", "Arrivals expected while a worker starts: mean, p95.", "pool", "of"
)
THROUGHPUT = _gauge("pool.throughput", "{job}/s", "Jobs finished.", "pool")
QUANTILE = _gauge(
    "pool.duration_quantile",
    "s",
    "Of what was seen lately: `pickup` (dispatched to started), `run`, `spawn` (a worker's start).",
    "pool",
    "of",
    "quantile",
)
PROMISED = _gauge("pool.promised", "s", "A job starts within so long.", "pool")
PROMISED_SHARE = _gauge("pool.promised_quantile", "", "So large a share of jobs does.", "pool")
BUDGET = _gauge(
    "pool.budget_remaining",
    "1",
    "Of the jobs that may start late within the promise's window: 1 none did, below 0 too many.",
    "pool",
)
BURN_RATE = _gauge(
    "pool.burn_rate",
    "",
    "How many times faster than allowed the budget is used up, over the window's last 24th "
    "(`short`) or quarter (`long`); each the lower of that stretch's and of its twelfth's.",
    "pool",
    "stretch",
)
READY = _gauge("pool.workers.ready", "{worker}", "Took or could take a job.", "pool")
IDLE = _gauge("pool.workers.idle", "{worker}", "Of these, without a job.", "pool")
MEASURED_AGE = _gauge(
    "pool.snapshot_age", "s", "Since the pool's last snapshot was stored.", "pool"
)
SNAPSHOTS = _counter("snapshots", "{snapshot}", "Stored.", "pool")
STARTED = _counter("jobs.started", "{job}", "Attempts begun.", "pool", "queue")
LATE = _counter("jobs.late", "{job}", "Of these, later than promised.", "pool", "queue")
FINISHED = _counter("jobs.finished", "{job}", "Attempts that ended by themselves.", "pool", "queue")
FAILED = _counter("jobs.failed", "{job}", "Of these, with an error.", "pool", "queue")
REDELIVERED = _counter("jobs.redelivered", "{job}", "Attempts after the first.", "pool", "queue")
PICKUP = _histogram(
    "job.pickup", "Dispatched (or due) to started; its exemplars name the trace.", "pool"
)
RUN = _histogram("job.run", "How long attempts took.", "pool")

# --- decider -------------------------------------------------------------------------------------
LEADING = _gauge("decider.leading", "", "1 while this decider leads.")
EPOCH = _gauge("decider.epoch", "", "The leadership's fencing token, from the leader.")
ROUNDS = _counter("decider.rounds", "{round}", "Rounds of decisions, `failed` or `done`.", "how")
ROUND = _histogram("decider.round", "One round: decide, tell, command.")
SEEN_AGE = _gauge("decider.snapshot_age", "s", "Of the newest snapshot it has seen.", "pool")
CURRENT = _gauge("decision.current_workers", "{worker}", "Planned before.", "pool")
TARGET = _gauge("decision.target_workers", "{worker}", "Planned after.", "pool")
WANTED = _gauge("decision.wanted_workers", "{worker}", "As the strategy would have it.", "pool")
SHORT = _gauge(
    "decision.short_workers",
    "{worker}",
    "Wanted and within the pool's bounds, but no room.",
    "pool",
)
PREDICTED = _gauge("decision.predicted_pickup", "s", "For a job that arrives now.", "pool")
DECISIONS = _counter(
    "decisions", "{decision}", "Told, `up`, `down` or `same`.", "pool", "direction"
)
COMMANDS = _counter("commands", "{command}", "Sent to hosts.")

# --- executor ------------------------------------------------------------------------------------
HOST_CORES = _gauge("host.cpu", "{core}", "Usable cores.", "host")
HOST_BUSY = _gauge("host.cpu_busy", "{core}", "Used by everything on the host.", "host")
HOST_OWN = _gauge("host.cpu_workers", "{core}", "Used by this executor's workers.", "host")
HOST_MEMORY = _gauge("host.memory", "By", "Usable.", "host")
HOST_MEMORY_USED = _gauge("host.memory_used", "By", "Used by everything on the host.", "host")
HOST_MEMORY_OWN = _gauge("host.memory_workers", "By", "Used by this executor's workers.", "host")
HOST_WORKERS = _gauge(
    "host.workers",
    "{worker}",
    "Of a pool, by state: `planned`, `started`, `ready`, `draining`.",
    "host",
    "pool",
    "state",
)
CRASH_LOOP = _gauge(
    "host.crash_loop", "", "1 while a pool's workers end as soon as they start.", "host", "pool"
)
WORKER_EVENTS = _counter(
    "workers.events",
    "{event}",
    "What became of workers: the event and its cause.",
    "host",
    "pool",
    "event",
    "cause",
)
SPAWN = _histogram("worker.spawn", "A worker's start, from command to ready.", "pool")

# --- orchestrator: the installation --------------------------------------------------------------
COMPONENT = _gauge(
    "health.component", "", "0 healthy, 1 warning, 2 degraded, 3 unhealthy.", "component"
)
SILENT = _gauge("health.silent", "s", "Since a service last wrote what it writes.", "role")
HOST_SILENT = _gauge("health.host_silent", "s", "Since a host's last snapshot.", "host")
BROKER_ANSWER = _gauge("broker.answer", "s", "One request; missing while it does not answer.")
BROKER_STORED = _gauge("broker.stored", "By", "JetStream's files.")
BROKER_STORAGE = _gauge("broker.storage", "By", "What these may take.")
STREAM_SIZE = _gauge("stream.size", "By", "Of what is stored.", "stream")
STREAM_LIMIT = _gauge(
    "stream.limit",
    "By",
    "Its bound; `when_full`: what comes then is `refused`, or the oldest is `dropped`.",
    "stream",
    "when_full",
)
STREAM_MESSAGES = _gauge("stream.messages", "{message}", "That are stored.", "stream")
STREAM_LAGGING = _gauge("stream.lagging", "{replica}", "Replicas offline or behind.", "stream")
DEAD_LETTERS = _gauge("dead_letters", "{job}", "Dead jobs that wait for somebody.")
UNSERVED = _gauge("health.unserved_jobs", "{job}", "Jobs that wait in queues which no pool takes.")
DISK_USED = _gauge("disk.used", "By", "Of the disk with the broker's or the run files.", "use")
DISK_SIZE = _gauge("disk.size", "By", "Of the same disk.", "use")
UNRESOLVED = _gauge("orchestrator.unresolved", "{step}", "Transitions whose second half is due.")
FOREIGN_SCHEDULES = _counter(
    "orchestrator.foreign_schedules",
    "{message}",
    "Schedules removed from the broker that belonged to no delayed job.",
)
UNREADABLE = _counter(
    "orchestrator.unreadable",
    "{message}",
    "Messages read among the events of jobs, batches and graphs that are no such event; ignored.",
)

ALL: tuple[Metric, ...] = tuple(each for each in globals().values() if isinstance(each, Metric))
