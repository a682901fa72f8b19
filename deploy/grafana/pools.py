"""The dashboard of pools: the promise, the queue, the decisions."""

from __future__ import annotations

from panel import BUDGET_STEPS, POOL, Panel, Row

PICKUP_RATE = f"sum by (pool, le) (rate(penstock_job_pickup_seconds_bucket{{{POOL}}}[5m]))"
"""Exemplars belong to what is scraped; series that rules record have none."""

PROMISE = Row(
    "The promise",
    (
        Panel(
            "Budget of late jobs left",
            ((f"penstock_pool_budget_remaining_ratio{{{POOL}}}", "{{pool}}"),),
            "percentunit",
            "gauge",
            8,
            steps=BUDGET_STEPS,
            about="Unused share of the error budget; below 0 the promise is broken.",
        ),
        Panel(
            "Pickup time, p95, and the promise",
            (
                (f"pool:penstock_job_pickup_seconds:p95_5m{{{POOL}}}", "{{pool}}"),
                (f"penstock_pool_promised_seconds{{{POOL}}}", "{{pool}} promised"),
            ),
            "s",
            width=16,
        ),
        Panel(
            "Burn rate",
            ((f"penstock_pool_burn_rate{{{POOL}}}", "{{pool}} {{stretch}}"),),
            about="At 1 the budget is just used up at the window's end; 6 (short) raises an alert.",
        ),
        Panel(
            "Late jobs",
            (
                (f"pool:penstock_jobs_late:ratio_rate5m{{{POOL}}}", "{{pool}}"),
                (f"1 - penstock_pool_promised_quantile{{{POOL}}}", "{{pool}} allowed"),
            ),
            "percentunit",
        ),
    ),
)
LINE = Row(
    "Jobs",
    (
        Panel("Waiting", ((f"penstock_pool_jobs_waiting{{{POOL}}}", "{{pool}}"),), width=8),
        Panel(
            "Oldest waiting",
            ((f"penstock_pool_oldest_waiting_seconds{{{POOL}}}", "{{pool}}"),),
            "s",
            width=8,
        ),
        Panel(
            "Arrivals and throughput",
            (
                (f"penstock_pool_arrivals_per_second{{{POOL}}}", "{{pool}} come"),
                (f"penstock_pool_throughput_per_second{{{POOL}}}", "{{pool}} done"),
            ),
            "ops",
            width=8,
        ),
    ),
)
POOL_TIMES = Row(
    "How long things take",
    (
        Panel(
            "Pickup time",
            tuple(
                (f"histogram_quantile({share}, {PICKUP_RATE})", f"{{{{pool}}}} {share:.0%}")
                for share in (0.5, 0.95, 0.99)
            ),
            "s",
            exemplars=True,
            about="The dots are traced jobs: click one to open its trace.",
        ),
        Panel(
            "Pickup times",
            (
                (
                    "sum by (le) (increase("
                    f"penstock_job_pickup_seconds_bucket{{{POOL}}}[$__interval]))",
                    "{{le}}",
                ),
            ),
            "s",
            "heatmap",
        ),
        Panel(
            "Run time",
            (
                (
                    f'penstock_pool_duration_quantile_seconds{{{POOL},of="run"}}',
                    "{{pool}} {{quantile}}",
                ),
            ),
            "s",
        ),
        Panel(
            "A worker's start",
            (
                (
                    f'penstock_pool_duration_quantile_seconds{{{POOL},of="spawn"}}',
                    "{{pool}} {{quantile}}",
                ),
            ),
            "s",
        ),
    ),
)
POOL_DECISIONS = Row(
    "Decisions",
    (
        Panel(
            "Workers: wanted, target, ready",
            (
                (f"penstock_decision_wanted_workers{{{POOL}}}", "{{pool}} wanted"),
                (f"penstock_decision_target_workers{{{POOL}}}", "{{pool}} target"),
                (f"penstock_pool_workers_ready{{{POOL}}}", "{{pool}} ready"),
                (f"penstock_pool_workers_idle{{{POOL}}}", "{{pool}} idle"),
            ),
            about="`penstock decision explain POOL` shows the reasons.",
        ),
        Panel(
            "Predicted pickup time",
            ((f"penstock_decision_predicted_pickup_seconds{{{POOL}}}", "{{pool}}"),),
            "s",
        ),
        Panel(
            "Arrivals and their forecast",
            (
                (f"penstock_pool_arrivals_per_second{{{POOL}}}", "{{pool}}"),
                (f"penstock_pool_forecast_per_second{{{POOL}}}", "{{pool}} forecast, {{of}}"),
            ),
            "ops",
        ),
        Panel(
            "Decisions published",
            (
                (
                    f"sum by (direction) (increase(penstock_decisions_total{{{POOL}}}[5m]))",
                    "{{direction}}",
                ),
            ),
        ),
    ),
)
POOL_JOBS = Row(
    "What became of jobs",
    (
        Panel(
            "Failed attempts",
            ((f"pool:penstock_jobs_failed:ratio_rate5m{{{POOL}}}", "{{pool}}"),),
            "percentunit",
            width=8,
        ),
        Panel(
            "Delayed and running",
            (
                (f"penstock_pool_jobs_delayed{{{POOL}}}", "{{pool}} delayed"),
                (f"penstock_pool_jobs_running{{{POOL}}}", "{{pool}} running"),
            ),
            width=8,
        ),
        Panel(
            "By queue",
            ((f"sum by (queue) (rate(penstock_jobs_started_total{{{POOL}}}[1m]))", "{{queue}}"),),
            "ops",
            width=8,
            stacked=True,
        ),
    ),
)
_BY_FUNCTION = "sum by (function) (rate(penstock_function_{}_total{{" + POOL + "}}[5m]))"
_ENDED = f"({_BY_FUNCTION.format('completed')} + {_BY_FUNCTION.format('failed')})"
POOL_FUNCTIONS = Row(
    "By job function and queue",
    (
        Panel(
            "Ended a minute, by function",
            ((f"60 * {_ENDED}", "{{function}}"),),
            width=8,
            stacked=True,
            about="Functions beyond `metrics.functions` count as `other`.",
        ),
        Panel(
            "Share that failed, by function",
            ((f"{_BY_FUNCTION.format('failed')} / {_ENDED} >= 0", "{{function}}"),),
            "percentunit",
            width=8,
        ),
        Panel(
            "Run time, 95 % quantile, by function",
            (
                (
                    "histogram_quantile(0.95, sum by (function, le) "
                    f"(rate(penstock_function_run_seconds_bucket{{{POOL}}}[5m])))",
                    "{{function}}",
                ),
            ),
            "s",
            width=8,
        ),
        Panel(
            "Jobs that died, by function",
            (
                (
                    f"sum by (function) (increase(penstock_function_dead_total{{{POOL}}}[5m]))",
                    "{{function}}",
                ),
            ),
            width=8,
        ),
        Panel(
            "Waiting, by queue",
            ((f"penstock_queue_jobs_waiting{{{POOL}}}", "{{queue}}"),),
            width=8,
            stacked=True,
        ),
        Panel(
            "Peak memory, by function",
            (
                (
                    f"max by (function) (penstock_function_peak_memory_bytes{{{POOL}}})",
                    "{{function}}",
                ),
            ),
            "bytes",
            width=8,
            about="Of the worker's process while an attempt ran, from 10 ms on.",
        ),
        Panel(
            "Failed lately",
            ((f"penstock_pool_failed_share_ratio{{{POOL}}}", "{{pool}}"),),
            "percentunit",
            width=8,
            about="Of the attempts that ended within `metrics.window_seconds`; as in `pool ls`.",
        ),
    ),
)
