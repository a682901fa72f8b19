"""What the orchestrator knows of the whole installation, as the numbers that are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.events.subjects import Subjects
from penstock.health.facts import BrokerFacts, Facts
from penstock.health.report import Report
from penstock.jobs.event_store import event_log
from penstock.orchestrator.health_watch import HealthWatch
from penstock.runtime.poison_messages import poison_count
from penstock.telemetry import metrics
from penstock.telemetry.meters import Reading

_MOST_EXCLUDED = 100
"""Excluded queues with series of their own, those with the most jobs."""


class Readings:
    """As it was at the last look at the installation's health."""

    def __init__(
        self,
        health: HealthWatch,
        subjects: Subjects,
        unresolved: Callable[[], int],
        foreign_schedules: Callable[[], int],
    ) -> None:
        self._health, self._dead_stream = health, subjects.dead_stream
        self._unresolved, self._foreign_schedules = unresolved, foreign_schedules

    def __call__(self) -> Iterable[Reading]:
        yield Reading(metrics.UNRESOLVED, self._unresolved())
        yield Reading(metrics.FOREIGN_SCHEDULES, self._foreign_schedules())
        yield Reading(metrics.UNREADABLE, event_log.unreadable_messages() + poison_count())
        if self._health.last is None:
            return
        facts, report = self._health.last
        yield from _report(report)
        yield from _broker(facts.broker)
        yield from _streams(facts, self._dead_stream)
        yield from _silences(facts)
        yield Reading(metrics.UNSERVED, sum(queue.jobs for queue in facts.unserved))
        for queue in [queue for queue in facts.unserved if queue.excluded][:_MOST_EXCLUDED]:
            yield Reading(metrics.EXCLUDED, queue.jobs, (queue.name,))
            if queue.oldest_seconds is not None:
                yield Reading(metrics.EXCLUDED_OLDEST, queue.oldest_seconds, (queue.name,))
        for disk in facts.disks:
            yield Reading(metrics.DISK_USED, disk.used_bytes, (disk.use,))
            yield Reading(metrics.DISK_SIZE, disk.total_bytes, (disk.use,))


def _report(report: Report) -> Iterator[Reading]:
    for finding in report.findings:
        yield Reading(metrics.COMPONENT, finding.state.rank, (finding.component,))


def _broker(broker: BrokerFacts) -> Iterator[Reading]:
    measured = {
        metrics.BROKER_ANSWER: broker.answer_seconds,
        metrics.BROKER_STORED: broker.stored_bytes,
        metrics.BROKER_STORAGE: broker.storage_bytes,
    }
    yield from (Reading(metric, value) for metric, value in measured.items() if value is not None)


def _streams(facts: Facts, dead_stream: str) -> Iterator[Reading]:
    for stream in facts.streams:
        yield Reading(metrics.STREAM_SIZE, stream.bytes, (stream.name,))
        yield Reading(metrics.STREAM_MESSAGES, stream.messages, (stream.name,))
        yield Reading(metrics.STREAM_LAGGING, stream.lagging, (stream.name,))
        if stream.max_bytes:
            when_full = "refused" if stream.full_refuses else "dropped"
            yield Reading(metrics.STREAM_LIMIT, stream.max_bytes, (stream.name, when_full))
        if stream.name == dead_stream:
            yield Reading(metrics.DEAD_LETTERS, stream.messages)


def _silences(facts: Facts) -> Iterator[Reading]:
    for service in facts.services:
        if service.silent_seconds is not None:
            yield Reading(metrics.SILENT, service.silent_seconds, (service.name,))
    for host in facts.hosts:
        yield Reading(metrics.HOST_SILENT, host.silent_seconds, (host.name,))
