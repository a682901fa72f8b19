"""Makes telemetry.md of the declarations in ``penstock.telemetry``; used by generate.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import groupby

from docstrings import attribute_docstrings, module_source

from penstock.telemetry import names
from penstock.telemetry.metric import Metric
from penstock.telemetry.metrics import ALL

Table = Callable[[list[str], list[list[str]]], str]

INTRODUCTION = """
# Traces, metrics and logs

Each service answers `/healthz`, `/readyz` and `/metrics` on the address of `[http]` (loopback
unless set), and sends traces, metrics and log lines by OTLP over HTTP to `telemetry.endpoint`, if
there is one. Job workers send traces and log lines; their numbers come through the metrics service,
so that no scraper has to discover processes that come and go.

`/healthz` is 200 while the service's event loop turns, else 503: restart it then.
`/readyz` is 200 while every check passes, else 503; both give the reason in JSON. A service
without its broker is not ready, but alive.

| service | ready while |
| --- | --- |
| every service | the broker responds, the streams exist, its loop turns, it is not ending |
| metrics | the queues were measured within `decider.stale_seconds` (or three intervals) |
| decider | a decider leads, and a pool's snapshot came within `decider.stale_seconds` |
| orchestrator | it follows the event log and is not behind |
| console | its rows are at most 5 s behind the event log |
| scaler | it has an answer for a pool in advisor mode |
| executor | its host's last snapshot was stored within `host.lease_seconds` |

`/metrics` serves Prometheus' text format, or OpenMetrics where the `Accept` header asks for it.
Only OpenMetrics carries exemplars: the histogram of pickup times has one for each bucket, the trace
id of a traced job that waited so long. OTLP carries them as well.

A worker traces at most `telemetry.jobs_per_second` jobs a second; those beyond run without spans,
and their start and success are stored without trace context, so that the cost of tracing is
bounded. `telemetry.sample_share` drops whole traces at random, of those that begin here: as
W3C Trace Context has it, a dispatch whose `traceparent` has the flag `01` is traced whatever the
share is, up to `telemetry.jobs_per_second`.

Messages carry the trace context in W3C's `traceparent`, and what `telemetry.propagators` names
beside it (`b3`, `b3multi`, `jaeger`); the calls that a job makes with instrumented libraries carry
the formats that are named there. Names of services at the collector begin with
`telemetry.service_name`; `http.metrics_path` moves `/metrics`.

A log line that is written within a span carries its trace id, both at the collector and as
`trace_id` in lines printed with `--log-json`. A line of a job also carries `penstock.job.id`,
`penstock.job.attempt`, `penstock.job.function` and `penstock.worker` (in JSON `job_id`, `attempt`,
`function`, `worker`), whichever logger wrote it, and what a job prints is a line, too
(`log.iostream`). The line about a failed attempt has `error.type` and `exception.stacktrace` (in
JSON `error_type`, `traceback`) besides, and the trace id of the job's dispatch.
"""

METRICS = """
## Metrics

OTLP uses the name in the first column, `/metrics` the one in the second (counters with the suffix
`_total`, histograms with `_bucket`, `_sum` and `_count`). Counters start at 0 with the process. The
labels `pool`, `queue` and `host` come from the settings, which bounds the number of series; of the
label `function` there are `metrics.functions` values at most, all further functions are `other`,
and so is a name that no job can have (beyond 200 characters, or not printable). Where all places
are taken, a function that workers report takes the place of one that only events name, and any
takes that of one that was not used for an hour.
Jobs may record [metrics of their own](own-metrics.md) as well.
`/metrics` also serves the usual `process_…` metrics of Python's client.
"""


def telemetry_page(table: Table) -> str:
    """The page.

    Args:
        table: makes a Markdown table of a head and rows.
    """
    parts = [INTRODUCTION.strip(), METRICS.strip()]
    for service, declared in groupby(ALL, key=lambda metric: metric.published_by):
        head = ["name", "scraped as", "kind", "unit", "labels", "meaning"]
        parts += [f"### {service}", table(head, [_row(metric) for metric in declared])]
    spans = [[f"`{call}`", about] for call, about in _spans()]
    parts += ["## Spans", *_story(), table(["name", "meaning"], spans)]
    attributes = [[f"`{value}`", about] for value, about in _attributes()]
    parts += ["## Attributes of spans", table(["name", "meaning"], attributes)]
    return "\n\n".join(parts)


def _row(metric: Metric) -> list[str]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    unit = f"`{metric.unit}`" if metric.unit else ""
    return [
        f"`{metric.name}`",
        f"`{metric.prometheus}`",
        metric.kind,
        unit,
        labels,
        metric.about,
    ]


def _story() -> Iterator[str]:
    """The last paragraph of the module's docstring."""
    text = inspect.cleandoc(names.__doc__ or "").rpartition("\n\n")[2]
    yield " ".join(text.replace("``", "`").split())


def _spans() -> Iterator[tuple[str, str]]:
    for made in vars(names).values():
        if inspect.isfunction(made):
            (argument,) = inspect.signature(made).parameters
            meaning = " ".join(inspect.cleandoc(made.__doc__ or "").split()).replace("``", "`")
            yield made(argument.upper()), meaning


def _attributes() -> Iterator[tuple[str, str]]:
    for name, meaning in attribute_docstrings(module_source(names)):
        value = getattr(names, name)
        if "." in value:
            yield value, meaning.replace("``", "`")
