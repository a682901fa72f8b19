"""Makes telemetry.md of what is declared in ``penstock.telemetry``; used by generate.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import groupby

from docstrings import attribute_docstrings, module_source

from penstock.telemetry import names
from penstock.telemetry.metrics import ALL, Metric

Table = Callable[[list[str], list[list[str]]], str]

INTRODUCTION = """
# Traces, metrics and logs

Each service answers `/healthz`, `/readyz` and `/metrics` on the address of `[http]` (loopback
unless set), and sends traces, metrics and log lines by OTLP over HTTP to `telemetry.endpoint`, if
there is one. Job workers send traces and log lines; their numbers come through the metrics service,
so that nobody has to find and scrape processes that come and go.

`/healthz` is 200 while the service's event loop turns; a restart is worth it when it is not.
`/readyz` is 200 while every check is passed, else 503; both say why, in JSON. A service that lacks
its broker is not ready, and alive.

| service | is ready while |
| --- | --- |
| every service | the broker answers, the streams are there, its loop turns, it does not end |
| metrics | the queues were looked at within `decider.stale_seconds` (or three intervals) |
| decider | somebody leads, and a pool's snapshot came within `decider.stale_seconds` |
| orchestrator | it follows the event log and is not behind |
| executor | its host's last snapshot was stored within `host.lease_seconds` |

`/metrics` speaks Prometheus' text format, and OpenMetrics to those who ask for it: only that one
carries exemplars. The histogram of pickup times has one a bucket: a traced job that waited so long,
with its trace id. By OTLP they go along as well.

A worker traces at most `telemetry.jobs_per_second` jobs a second; those beyond run without spans,
so that being watched costs a known amount. `telemetry.sample_share` leaves out whole stories by
chance.

A log line that is said within a span carries its trace id: on the way to the collector, and as
`trace_id` in lines printed with `--log-json`.
"""

METRICS = """
## Metrics

By OTLP they have the name in the first column, scraped the one in the second (a counter's samples
have `_total` behind it, a histogram's `_bucket`, `_sum` and `_count`). Counters begin anew with the
process. `pool`, `queue` and `host` come from the settings: there are as many series as these make.
Scraped, each process has Python's usual `process_…` as well.
"""


def telemetry_page(table: Table) -> str:
    """The page; ``table``: makes one of a head and rows."""
    parts = [INTRODUCTION.strip(), METRICS.strip()]
    for service, told in groupby(ALL, key=lambda metric: metric.told_by):
        head = ["name", "scraped as", "kind", "unit", "labels", "meaning"]
        parts += [f"### {service}", table(head, [_row(metric) for metric in told])]
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
            said = " ".join(inspect.cleandoc(made.__doc__ or "").split()).replace("``", "`")
            yield made(argument.upper()), said


def _attributes() -> Iterator[tuple[str, str]]:
    for name, meaning in attribute_docstrings(module_source(names)):
        value = getattr(names, name)
        if "." in value:
            yield value, meaning.replace("``", "`")
