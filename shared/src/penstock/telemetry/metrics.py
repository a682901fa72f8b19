"""Every metric, declared once: `docs/telemetry.md`, exposition and OTLP are made of it.

Names and units are OpenTelemetry's; :attr:`Metric.prometheus` is what they become where they are
scraped (*Prometheus and OpenMetrics Compatibility*, OpenTelemetry specification 1.45). Labels come
from the configuration, from fixed lists or from a bounded number of job functions.
"""

from __future__ import annotations

from penstock.telemetry.metric import Metric
from penstock.telemetry.metric import counter as _counter
from penstock.telemetry.metric import gauge as _gauge
from penstock.telemetry.metric import histogram as _histogram

# --- every service -------------------------------------------------------------------------------
SERVICE_INFO = _gauge(
    "service.info",
    "",
    "Always 1; its labels name the service and its version.",
    "service",
    "version",
)
SERVICE_CHECK = _gauge(
    "service.check", "", "1 while this check of `/readyz` passes, else 0.", "service", "check"
)
LOOP_LAG = _gauge("service.loop_lag", "s", "Longest recent delay of the event loop in seconds.")
BROKEN_READINGS = _counter("service.broken_readings", "{reading}", "Metric callbacks that failed.")

# --- metrics: what is measured about pools -------------------------------------------------------
WAITING = _gauge("pool.jobs.waiting", "{job}", "Jobs that could start now.", "pool")
WAITING_LATE = _gauge(
    "pool.jobs.waiting_late", "{job}", "Waiting jobs that are past the SLA deadline.", "pool"
)
DELAYED = _gauge(
    "pool.jobs.delayed",
    "{job}",
    "Jobs that are scheduled or to be retried and not due yet.",
    "pool",
)
RUNNING = _gauge("pool.jobs.running", "{job}", "Jobs claimed by workers.", "pool")
OLDEST = _gauge("pool.oldest_waiting", "s", "Age of the oldest waiting job.", "pool")
ARRIVALS = _gauge(
    "pool.arrivals", "{job}/s", "Arrival rate, from the growth of the queue's sequence.", "pool"
)
FORECAST = _gauge(
    "pool.forecast",
    "{job}/s",
    "Arrival rate forecast while a worker starts (`mean`, `p95`).",
    "pool",
    "of",
)
THROUGHPUT = _gauge("pool.throughput", "{job}/s", "Rate of jobs that ended.", "pool")
QUANTILE = _gauge(
    "pool.duration_quantile",
    "s",
    "Recent durations: `pickup` (dispatched to started), `run` or `spawn` (start of a worker).",
    "pool",
    "of",
    "quantile",
)
PROMISED = _gauge("pool.promised", "s", "Promised pickup time.", "pool")
PROMISED_SHARE = _gauge(
    "pool.promised_quantile", "", "Share of jobs that the promise covers.", "pool"
)
BUDGET = _gauge(
    "pool.budget_remaining",
    "1",
    "Unused share of the error budget in the promise's window; below 0 the promise is broken.",
    "pool",
)
BURN_RATE = _gauge(
    "pool.burn_rate",
    "",
    "Use of the error budget as a multiple of the allowed rate, over the window's last 24th "
    "(`short`) or quarter (`long`); each is the lower rate of that stretch and of its twelfth.",
    "pool",
    "stretch",
)
READY = _gauge("pool.workers.ready", "{worker}", "Workers that run a job or can take one.", "pool")
IDLE = _gauge("pool.workers.idle", "{worker}", "Ready workers without a job.", "pool")
SLOTS = _gauge(
    "pool.slots.ready", "{slot}", "Slots of the ready workers, where each has several.", "pool"
)
SLOTS_IDLE = _gauge("pool.slots.idle", "{slot}", "Of these slots, those without a job.", "pool")
MEASURED_AGE = _gauge(
    "pool.snapshot_age", "s", "Age of the figures in the pool's last stored snapshot.", "pool"
)
STUCK = _gauge(
    "pool.messages.stuck",
    "{message}",
    "Messages of another system that wait and no worker gets on with; not among the waiting jobs.",
    "pool",
)
ESTIMATED = _gauge(
    "pool.estimated",
    "",
    "1 for each field of the pool's snapshot that was worked out, not read from its source.",
    "pool",
    "field",
)
SNAPSHOTS = _counter("snapshots", "{snapshot}", "Pool snapshots stored.", "pool")
STARTED = _counter("jobs.started", "{job}", "Attempts started.", "pool", "queue")
LATE = _counter("jobs.late", "{job}", "Attempts started after the SLA deadline.", "pool", "queue")
FINISHED = _counter("jobs.finished", "{job}", "Attempts that returned or raised.", "pool", "queue")
FAILED = _counter("jobs.failed", "{job}", "Attempts that raised an error.", "pool", "queue")
REDELIVERED = _counter("jobs.redelivered", "{job}", "Attempts after the first.", "pool", "queue")
DEAD = _counter(
    "jobs.dead", "{job}", "Jobs that became dead letters, lost workers included.", "pool", "queue"
)
QUEUE_WAITING = _gauge(
    "queue.jobs.waiting", "{job}", "Jobs of the queue that could start now.", "pool", "queue"
)
QUEUE_RUNNING = _gauge(
    "queue.jobs.running", "{job}", "Jobs of the queue claimed by workers.", "pool", "queue"
)
QUEUE_DELAYED = _gauge(
    "queue.jobs.delayed", "{job}", "Jobs of the queue that are not due yet.", "pool", "queue"
)
FAILED_SHARE = _gauge(
    "pool.failed_share",
    "1",
    "Share of the attempts that ended lately and failed; absent where none ended.",
    "pool",
)
FUNCTION_STARTED = _counter(
    "function.started", "{job}", "Attempts started, by job function.", "pool", "function"
)
FUNCTION_COMPLETED = _counter(
    "function.completed", "{job}", "Attempts that returned, by job function.", "pool", "function"
)
FUNCTION_FAILED = _counter(
    "function.failed",
    "{job}",
    "Attempts that raised, by job function.",
    "pool",
    "function",
)
FUNCTION_DEAD = _counter(
    "function.dead", "{job}", "Jobs that became dead letters, by job function.", "pool", "function"
)
FUNCTION_RUN = _histogram(
    "function.run", "Run time of attempts, by job function.", "pool", "function"
)
FUNCTION_PEAK = _gauge(
    "function.peak_memory",
    "By",
    "Largest peak of memory of the worker processes that ran it, of attempts in the last minutes.",
    "pool",
    "function",
)
SERIES = _gauge("jobs.metric_series", "{series}", "Series of metrics that jobs recorded.")
VALUES_DROPPED = _counter(
    "jobs.metric_values_dropped",
    "{value}",
    "Values of metrics of jobs that were beyond a bound, dropped by `worker` or `service`.",
    "where",
)
PICKUP = _histogram(
    "job.pickup", "Time from dispatch (or due time) to start; exemplars name the trace.", "pool"
)
RUN = _histogram("job.run", "Run time of attempts.", "pool")

# --- decider -------------------------------------------------------------------------------------
LEADING = _gauge("decider.leading", "", "1 while this decider is the leader.")
EPOCH = _gauge(
    "decider.epoch", "", "Fencing token of the leadership; only the leader publishes it."
)
ROUNDS = _counter("decider.rounds", "{round}", "Rounds of decisions, `failed` or `done`.", "how")
ROUND = _histogram("decider.round", "Duration of a round: decisions, their events, commands.")
SEEN_AGE = _gauge(
    "decider.snapshot_age", "s", "Age of the newest snapshot that the decider has received.", "pool"
)
CURRENT = _gauge(
    "decision.current_workers", "{worker}", "Workers planned before the last decision.", "pool"
)
TARGET = _gauge(
    "decision.target_workers", "{worker}", "Workers planned by the last decision.", "pool"
)
WANTED = _gauge(
    "decision.wanted_workers", "{worker}", "Workers that the strategy asked for.", "pool"
)
SHORT = _gauge(
    "decision.short_workers",
    "{worker}",
    "Desired workers within the pool's bounds that the hosts have no capacity for.",
    "pool",
)
PREDICTED = _gauge(
    "decision.predicted_pickup", "s", "Predicted pickup time of a job that arrives now.", "pool"
)
DECISIONS = _counter(
    "decisions",
    "{decision}",
    "Decision events by direction: `up`, `down` or `same`.",
    "pool",
    "direction",
)
COMMANDS = _counter("commands", "{command}", "Commands sent to hosts.")

# --- executor ------------------------------------------------------------------------------------
HOST_CORES = _gauge("host.cpu", "{core}", "Cores that workers may use.", "host")
HOST_BUSY = _gauge("host.cpu_busy", "{core}", "Cores in use by all processes of the host.", "host")
HOST_OWN = _gauge("host.cpu_workers", "{core}", "Cores in use by this executor's workers.", "host")
HOST_MEMORY = _gauge("host.memory", "By", "Memory that workers may use.", "host")
HOST_MEMORY_USED = _gauge(
    "host.memory_used", "By", "Memory in use by all processes of the host.", "host"
)
HOST_MEMORY_OWN = _gauge(
    "host.memory_workers", "By", "Memory in use by this executor's workers.", "host"
)
HOST_WORKERS = _gauge(
    "host.workers",
    "{worker}",
    "Workers of a pool by state: `planned`, `started`, `ready`, `draining`.",
    "host",
    "pool",
    "state",
)
CRASH_LOOP = _gauge(
    "host.crash_loop", "", "1 while a pool's workers end right after their start.", "host", "pool"
)
WORKER_EVENTS = _counter(
    "workers.events",
    "{event}",
    "Events of workers, by event and cause.",
    "host",
    "pool",
    "event",
    "cause",
)
SPAWN = _histogram(
    "worker.spawn", "Time from the command to start a worker until it is ready.", "pool"
)

# --- orchestrator: the installation --------------------------------------------------------------
COMPONENT = _gauge(
    "health.component",
    "",
    "State of a component: 0 healthy, 1 warning, 2 degraded, 3 unhealthy.",
    "component",
)
SILENT = _gauge("health.silent", "s", "Time since a service last published.", "role")
HOST_SILENT = _gauge("health.host_silent", "s", "Time since a host's last snapshot.", "host")
BROKER_ANSWER = _gauge(
    "broker.answer", "s", "Response time of the broker; absent while it does not respond."
)
BROKER_STORED = _gauge("broker.stored", "By", "Bytes stored in the broker's streams.")
BROKER_STORAGE = _gauge("broker.storage", "By", "Storage limit of the broker's streams in bytes.")
STREAM_SIZE = _gauge("stream.size", "By", "Bytes stored in the stream.", "stream")
STREAM_LIMIT = _gauge(
    "stream.limit",
    "By",
    "Size limit of the stream; `when_full`: new messages are `refused`, or old ones `dropped`.",
    "stream",
    "when_full",
)
STREAM_MESSAGES = _gauge("stream.messages", "{message}", "Messages stored in the stream.", "stream")
STREAM_LAGGING = _gauge(
    "stream.lagging", "{replica}", "Replicas of the stream that are offline or behind.", "stream"
)
DEAD_LETTERS = _gauge("dead_letters", "{job}", "Dead letters that wait for an operator.")
UNSERVED = _gauge("health.unserved_jobs", "{job}", "Jobs waiting in queues that no pool serves.")
EXCLUDED = _gauge(
    "queue.excluded_jobs", "{job}", "Jobs waiting in a queue that the settings exclude.", "queue"
)
EXCLUDED_OLDEST = _gauge(
    "queue.excluded_oldest", "s", "Age of the oldest job of an excluded queue.", "queue"
)
DISK_USED = _gauge(
    "disk.used", "By", "Bytes in use on the disk with the broker's or the run files.", "use"
)
DISK_SIZE = _gauge("disk.size", "By", "Size of that disk.", "use")
UNRESOLVED = _gauge(
    "orchestrator.unresolved", "{step}", "Transitions of jobs that are left to be finished."
)
FOREIGN_SCHEDULES = _counter(
    "orchestrator.foreign_schedules",
    "{message}",
    "Schedules removed from the broker that belonged to no delayed job.",
)
WORKFLOWS = _gauge(
    "workflow.unfinished",
    "{workflow}",
    "Coded workflows that were suspended and have not ended: `suspended` ones wait, `going-on` "
    "ones were woken, the code of `blocked` ones does not fit what they recorded, `paused` ones "
    "wait to be resumed.",
    "function",
    "state",
)
WORKFLOW_ADVANCES = _counter(
    "workflow.advances", "{advance}", "Runs of coded workflows that ended suspended.", "function"
)
WORKFLOW_RESUME = _histogram(
    "workflow.resume",
    "Time from what a coded workflow waited for to the start of its next run.",
    "function",
)
WORKFLOW_STEP = _histogram(
    "workflow.step",
    "Time from the dispatch of the job of a workflow's step until its end, with waits and tries. "
    "Graphs without a definition are not counted.",
    "workflow",
    "step",
)
GRAPHS = _gauge(
    "graph.unfinished",
    "{graph}",
    "Chains, graphs and declared workflows that have not ended: running, paused or stopping. The "
    "workflow is the definition; empty where there is none.",
    "workflow",
    "state",
)
GRAPHS_ENDED = _counter(
    "graph.ended",
    "{graph}",
    "Chains, graphs and declared workflows that ended: completed, failed or cancelled.",
    "workflow",
    "state",
)
GRAPH_DURATION = _histogram(
    "graph.duration",
    "Time from the start of a chain, graph or declared workflow to its end.",
    "workflow",
)
HOOK_NOTICES = _counter(
    "orchestrator.hook_notices",
    "{notice}",
    "Notices of hooks; outcome: delivered, or dropped (refused for good, or given up).",
    "hook",
    "outcome",
)
UNREADABLE = _counter(
    "orchestrator.unreadable",
    "{message}",
    "Messages on subjects of jobs, batches and graphs that hold no such event; ignored.",
)

# --- console -------------------------------------------------------------------------------------
CONSOLE_POSITION = _gauge(
    "console.position", "{event}", "Sequence of the last event that the console's rows contain."
)
CONSOLE_BEHIND = _gauge(
    "console.behind", "s", "How much older the console's rows are than the end of the event log."
)
CONSOLE_FOLDED = _counter(
    "console.folded", "{event}", "Events that were folded into the console's rows."
)
CONSOLE_REBUILDING = _gauge(
    "console.rebuilding", "", "1 while the console's rows are made anew beside those that serve."
)
CONSOLE_PAGES = _gauge("console.open_pages", "{page}", "Pages that are sent changes as they come.")
CONSOLE_DATABASE = _gauge("console.database", "By", "Bytes of the console's database files.")

ALL: tuple[Metric, ...] = tuple(
    metric for metric in globals().values() if isinstance(metric, Metric)
)
