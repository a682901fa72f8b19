"""About hosts, workers, services and the broker."""

from __future__ import annotations

from panel import BAD, FILL_STEPS, GOOD, HOST, NONE_STEPS, POOL, POOR, Panel, Row

OVERVIEW_WORKERS = Row(
    "Workers and services",
    (
        Panel(
            "Workers planned and ready",
            (
                (
                    f'pool_state:penstock_host_workers:sum{{{POOL},state="planned"}}',
                    "{{pool}} planned",
                ),
                (f'pool_state:penstock_host_workers:sum{{{POOL},state="ready"}}', "{{pool}} ready"),
            ),
        ),
        Panel(
            "Desired workers beyond host capacity",
            ((f"sum by (pool) (penstock_decision_short_workers{{{POOL}}})", "{{pool}}"),),
            kind="stat",
            width=4,
            steps=NONE_STEPS,
        ),
        Panel(
            "Leaders",
            (("sum(penstock_decider_leading)", "deciders that lead"),),
            kind="stat",
            width=4,
            steps=((None, BAD), (1, GOOD), (2, BAD)),
        ),
        Panel("Dead letters", (("max(penstock_dead_letters)", "jobs"),), kind="stat", width=4),
        Panel(
            "Checks that are not passed",
            (("penstock_service_check == 0", "{{service}} {{instance}}: {{check}}"),),
            kind="table",
            about="Empty while all is well; `/readyz` of the service says why.",
        ),
        Panel(
            "Health",
            (("max by (component) (penstock_health_component)", "{{component}}"),),
            kind="bargauge",
            steps=((None, GOOD), (1, "yellow"), (2, POOR), (3, BAD)),
            about="0 healthy, 1 warning, 2 degraded, 3 unhealthy.",
        ),
    ),
)
WORKFLOWS = Row(
    "Coded workflows",
    (
        Panel(
            "Unfinished, by state",
            (
                (
                    "sum by (state) (max by (function, state) (penstock_workflow_unfinished))",
                    "{{state}}",
                ),
            ),
            width=8,
            stacked=True,
            about="Those of `blocked` wait for code that fits: `penstock workflow ls`.",
        ),
        Panel(
            "Advances a second, by function",
            (
                (
                    "max by (function) (rate(penstock_workflow_advances_total[5m]))",
                    "{{function}}",
                ),
            ),
            "ops",
            width=8,
        ),
        Panel(
            "From what they waited for to their next run, 95 % quantile",
            (
                (
                    "histogram_quantile(0.95, sum by (function, le) "
                    "(rate(penstock_workflow_resume_seconds_bucket[5m])))",
                    "{{function}}",
                ),
            ),
            "s",
            width=8,
        ),
        Panel(
            "Steps, 95 % quantile of their time",
            (
                (
                    "histogram_quantile(0.95, sum by (workflow, step, le) "
                    "(rate(penstock_workflow_step_seconds_bucket[15m])))",
                    "{{workflow}} {{step}}",
                ),
            ),
            "s",
            width=24,
            about="From the dispatch of its job until that has ended, with waits and tries.",
        ),
    ),
)
HOSTS = Row(
    "Hosts",
    (
        Panel(
            "Cores in use",
            (
                (f"penstock_host_cpu_busy{{{HOST}}}", "{{host}}"),
                (f"penstock_host_cpu_workers{{{HOST}}}", "{{host}} by workers"),
                (f"penstock_host_cpu{{{HOST}}}", "{{host}} usable"),
            ),
        ),
        Panel(
            "Memory in use",
            (
                (f"penstock_host_memory_used_bytes{{{HOST}}}", "{{host}}"),
                (f"penstock_host_memory_workers_bytes{{{HOST}}}", "{{host}} by workers"),
                (f"penstock_host_memory_bytes{{{HOST}}}", "{{host}} usable"),
            ),
            "bytes",
        ),
        Panel(
            "Silent for",
            (("max by (host) (penstock_health_host_silent_seconds)", "{{host}}"),),
            "s",
            "bargauge",
            8,
            steps=((None, GOOD), (6, POOR), (30, BAD)),
        ),
        Panel(
            "Crash loops",
            ((f"penstock_host_crash_loop{{{HOST},{POOL}}} == 1", "{{host}} {{pool}}"),),
            kind="table",
            width=16,
            about="Empty while all is well.",
        ),
    ),
)
WORKERS = Row(
    "Workers",
    (
        Panel(
            "By state",
            ((f"sum by (state) (penstock_host_workers{{{HOST},{POOL}}})", "{{state}}"),),
        ),
        Panel(
            "Ready, by host",
            (
                (
                    f'sum by (host) (penstock_host_workers{{{HOST},{POOL},state="ready"}})',
                    "{{host}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Started and stopped",
            (
                (
                    "sum by (event, cause) (increase("
                    f"penstock_workers_events_total{{{HOST},{POOL}}}[5m]))",
                    "{{event}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "A worker's start, p95",
            (
                (
                    "histogram_quantile(0.95, sum by (pool, le) "
                    f"(rate(penstock_worker_spawn_seconds_bucket{{{POOL}}}[15m])))",
                    "{{pool}}",
                ),
            ),
            "s",
        ),
    ),
)
BROKER = Row(
    "NATS",
    (
        Panel(
            "Answers after",
            (("penstock_broker_answer_seconds", "one request"),),
            "s",
            width=8,
        ),
        Panel(
            "Storage used",
            (("max(instance:penstock_broker_stored:ratio)", "of what may be"),),
            "percentunit",
            "gauge",
            4,
            steps=FILL_STEPS,
        ),
        Panel(
            "Streams with a bound",
            (
                (
                    "max by (stream, when_full) (stream:penstock_stream_size:ratio)",
                    "{{stream}}, then {{when_full}}",
                ),
            ),
            "percentunit",
            "bargauge",
            12,
            steps=FILL_STEPS,
        ),
        Panel(
            "Size of streams",
            (("max by (stream) (penstock_stream_size_bytes)", "{{stream}}"),),
            "bytes",
            stacked=True,
        ),
        Panel(
            "Messages",
            (("max by (stream) (penstock_stream_messages)", "{{stream}}"),),
        ),
        Panel(
            "Replicas offline or behind",
            (("max by (stream) (penstock_stream_lagging) > 0", "{{stream}}"),),
            kind="table",
            about="Empty while all is well.",
        ),
        Panel(
            "Snapshots stored",
            (("sum(rate(penstock_snapshots_total[1m]))", "a second"),),
            "ops",
            width=6,
        ),
        Panel(
            "A round of decisions, p99",
            (
                (
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(penstock_decider_round_seconds_bucket[5m])))",
                    "all",
                ),
            ),
            "s",
            width=6,
        ),
    ),
)
