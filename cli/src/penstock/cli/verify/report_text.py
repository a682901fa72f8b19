"""The verdict on a log as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.verifying.checker import Extent, Report
from penstock.verifying.rules import Rule
from penstock.views import wording

_SHOWN = 20


def sentences(report: Report, extent: Extent) -> Iterator[str]:
    """The verdict: what was judged, what could not be, and each violation."""
    yield (
        f"Judged {report.events:,} events: {report.jobs:,} jobs ({report.living:,} have not ended "
        f"yet), {report.batches:,} batches, {report.graphs:,} graphs, {report.schedules:,} "
        f"schedules, commands of {report.hosts:,} hosts, {report.decisions:,} decisions."
    )
    yield from (f"Not judged: {sentence}." for sentence in _unjudged(report, extent))
    if report.is_kept:
        yield "Every promise is kept."
        return
    total = sum(report.broken.values())
    yield f"{total:,} violations:"
    for rule, number in sorted(report.broken.items()):
        yield f"  {number:,} of rule {rule}: {Rule(rule).text}"
    yield from (f"  {violation}" for violation in report.violations[:_SHOWN])
    if total > _SHOWN:
        yield f"  and {total - _SHOWN:,} more; --json has the first {len(report.violations)}"


def _unjudged(report: Report, extent: Extent) -> Iterator[str]:
    if extent.trimmed:
        since = f" ({wording.clock(extent.whole_since)})" if extent.whole_since else ""
        how = "left the log" if extent.carried else "left the log or were not read"
        yield f"what happened before sequence {extent.whole_from:,}{since}: those events {how}"
    if report.partial_jobs:
        yield f"the beginnings of {report.partial_jobs:,} jobs, which lie before that"
    if report.partial_batches:
        yield f"the counts of {report.partial_batches:,} batches that began before that"
    if report.partial_graphs:
        yield f"the order of {report.partial_graphs:,} graphs that began before that"
    if report.partial_schedules:
        yield (
            f"the number of ticks of {report.partial_schedules:,} schedules, which were made "
            "before that or declared with an earlier version of Penstock"
        )
    if report.partial_hosts:
        yield f"whether a leader gave {report.partial_hosts:,} hosts commands older than that"
    if report.later_events:
        yield f"{report.later_events:,} events of a later version of Penstock"
    yield from report.unjudged
