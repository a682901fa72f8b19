"""Judges a whole log, a part of its jobs at a time. Pure."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from penstock.events.envelope import UnknownEvent
from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.jobs import derived_ids
from penstock.verifying import coded, jobs, scaling, workflows
from penstock.verifying.rules import History, Violation
from penstock.verifying.scaling import TickRecord
from penstock.verifying.workflows import End

MOST_SHOWN = 100
"""Violations kept in full; beyond that they are only counted."""
_TICK = re.compile(r"s-([0-9a-f]{1,32})-([0-9]{1,12})")


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the log that is judged.

    Attributes:
        whole_from: sequence from which on it holds every event.
        whole_since: time of that; None where it is not known.
        trimmed: there were earlier events, which have left the log or were not read.
        carried: what lives has an event, as its earlier ones left the log in good order; False for
            a part that was cut out, and where the log was shortened while it was read.
        judged_from: events of jobs, batches and graphs before this sequence are left out: of a log
            that was shortened meanwhile some of them were read, and those that followed were not.
        reached: the epoch of the deciders' lease; None where it is not known.
    """

    whole_from: int = 1
    judged_from: int = 1
    whole_since: datetime | None = None
    trimmed: bool = False
    carried: bool = True
    reached: int | None = None


class Report(msgspec.Struct, kw_only=True):
    """The verdict.

    Attributes:
        events: that were judged.
        jobs: in the log.
        living: jobs that have not ended.
        partial_jobs: jobs whose first events are not in the log: what they do is judged from the
            first event on that a record can begin with.
        batches: in the log.
        partial_batches: batches that are not recounted, as the first of their events are missing.
        graphs: in the log.
        partial_graphs: graphs whose order is not judged, for the same reason.
        schedules: whose ticks were judged.
        partial_schedules: schedules whose ticks are not counted, as they were made before the log
            is whole, or an earlier version of Penstock stored their declaration.
        hosts: whose commands were judged.
        partial_hosts: hosts with a command of which the log does not say whether a leader gave it.
        later_events: events of a later version of Penstock, which are passed over.
        decisions: that were computed again.
        acknowledged: ids that were given.
        unjudged: what could not be judged, a sentence each.
        broken: violations by rule.
        violations: the first ones.
    """

    events: int = 0
    jobs: int = 0
    living: int = 0
    partial_jobs: int = 0
    batches: int = 0
    partial_batches: int = 0
    graphs: int = 0
    partial_graphs: int = 0
    schedules: int = 0
    partial_schedules: int = 0
    hosts: int = 0
    partial_hosts: int = 0
    later_events: int = 0
    decisions: int = 0
    acknowledged: int = 0
    unjudged: list[str] = []
    broken: dict[str, int] = {}
    violations: list[Violation] = []

    @property
    def is_kept(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    def add(self, violations: Iterable[Violation]) -> None:
        """Counts violations, and keeps the first ones."""
        for violation in violations:
            self.broken[violation.rule] = self.broken.get(violation.rule, 0) + 1
            if len(self.violations) < MOST_SHOWN:
                self.violations.append(violation)


class Checker:
    """Fills a report.

    Batches come first. Jobs follow in parts, so that not all of them are in memory at a time: a
    graph is in the same part as the jobs of its steps and its callbacks.

    Args:
        extent: the part of the log.
        must_end: every job has to have ended.
        acknowledged: ids of jobs that have to have ended.
    """

    def __init__(
        self, extent: Extent, *, must_end: bool = False, acknowledged: Collection[str] = ()
    ) -> None:
        self.report = Report(acknowledged=len(acknowledged))
        self._extent, self._must_end = extent, must_end
        self._missing = set(acknowledged)
        self._batch_ends: dict[str, tuple[End, ...]] = {}
        self._recounts: dict[tuple[str, End], Counter[str]] = {}
        self._ticks: dict[str, array[int]] = {}

    def batches(self, histories: Mapping[str, History]) -> None:
        """All batches, before any job."""
        for batch_id, history in histories.items():
            self._count(history)
            self.report.batches += 1
            self.report.add(workflows.check_batch(batch_id, history))
            if workflows.is_whole(history) and history[0][0] >= self._extent.whole_from:
                self._batch_ends[batch_id] = workflows.batch_ends(history)
            else:
                self.report.partial_batches += 1

    def jobs(self, histories: Mapping[str, History], graphs: Mapping[str, History]) -> None:
        """A part of the jobs, with the graphs that belong to it."""
        steps: dict[str, dict[int, History]] = {}
        for job_id, history in histories.items():
            if step := derived_ids.step(job_id):
                steps.setdefault(step[0], {})[step[1]] = history
        whole_graphs: dict[str, tuple[End, ...]] = {}
        for graph_id, history in graphs.items():
            self._count(history)
            self.report.graphs += 1
            is_whole = workflows.is_whole(history) and history[0][0] >= self._extent.whole_from
            if is_whole:
                whole_graphs[graph_id] = workflows.graph_ends(history)
            self.report.partial_graphs += not is_whole
            own_steps = steps.get(graph_id, {})
            self.report.add(
                workflows.check_graph(graph_id, history, own_steps if is_whole else None)
            )
        for job_id, history in histories.items():
            if coded.is_coded(history) and history[0][0] >= self._extent.whole_from:
                self.report.add(coded.check_workflow(job_id, history, steps.get(job_id, {})))
            self._job(job_id, history, whole_graphs)

    def scaling(
        self,
        leaders: Sequence[tuple[int, LeaderChanged]],
        commands: Mapping[str, Sequence[tuple[int, WorkersScaled]]],
    ) -> None:
        """Changes of leaders in the log's order, and commands by host."""
        self.report.add(scaling.check_leaders(leaders))
        announced = {change.epoch for _, change in leaders}
        whole_from = scaling.announced_from(leaders, self._extent.trimmed)
        for of_host in commands.values():
            self.report.hosts += 1
            self.report.partial_hosts += not all(
                scaling.is_led(command, whole_from) for _, command in of_host
            )
            self.report.add(
                scaling.check_commands(of_host, announced, whole_from, self._extent.reached)
            )

    def schedules(self, records: Iterable[TickRecord]) -> None:
        """The records of schedules, after all jobs."""
        since = self._extent.whole_since
        for record in records:
            self.report.schedules += 1
            self.report.partial_schedules += not scaling.is_counted(record, since)
            ticks = self._ticks.get(record.generation, array("q"))
            self.report.add(scaling.check_ticks(record, ticks, since))

    def finish(self) -> Report:
        """The report, once everything was taken."""
        for (batch_id, end), recount in self._recounts.items():
            self.report.add(workflows.check_counts(batch_id, end, recount))
        for batch_id, ends in self._batch_ends.items():
            for end in ends:
                if (batch_id, end) not in self._recounts:
                    self.report.add(workflows.check_counts(batch_id, end, Counter()))
        if self._missing and self._extent.trimmed:
            self.report.unjudged.append(
                f"{len(self._missing)} acknowledged jobs are not in the log, whose first events "
                "are missing: whether they ended is not known"
            )
        elif self._missing:
            for job_id in sorted(self._missing):
                self.report.add(jobs.check_ended(job_id, None))
        return self.report

    def _job(self, job_id: str, history: History, graphs: Mapping[str, tuple[End, ...]]) -> None:
        report, extent = self.report, self._extent
        self._count(history)
        report.jobs += 1
        report.partial_jobs += not jobs.is_whole(history)
        report.add(jobs.check_job(job_id, history, trimmed=extent.trimmed))
        if extent.trimmed and extent.carried:
            report.add(jobs.check_carried(job_id, history))
        record = jobs.record_of(history)
        report.living += record is not None and not record.state.ended
        if job_id in self._missing or (self._must_end and record is not None):
            self._missing.discard(job_id)
            report.add(jobs.check_ended(job_id, record))
        if member := derived_ids.member(job_id):
            for end in self._batch_ends.get(member.batch, ()):
                stands = workflows.standing(history, end)
                if stands:
                    self._recounts.setdefault((member.batch, end), Counter())[stands] += 1
        name, which = workflows.owner(job_id)
        ends = self._batch_ends.get(name, graphs.get(name))
        if ends is not None:
            report.add(workflows.check_callback(job_id, which, history, ends))
        if tick := _TICK.fullmatch(job_id):
            self._ticks.setdefault(tick[1], array("q")).append(int(tick[2]))

    def _count(self, history: History) -> None:
        self.report.events += len(history)
        self.report.later_events += sum(
            isinstance(event, UnknownEvent) and not event.unreadable for _, event in history
        )


def check(
    histories: Mapping[str, History],
    extent: Extent | None = None,
    *,
    batches: Mapping[str, History] | None = None,
    graphs: Mapping[str, History] | None = None,
    must_end: bool = False,
    acknowledged: Collection[str] = (),
) -> Report:
    """The verdict on histories that fit into memory.

    Args:
        histories: the events of each job, by its id.
        extent: the part of the log that they are; None for a whole log.
        batches: the events of each batch.
        graphs: the events of each graph.
        must_end: every job has to have ended.
        acknowledged: ids of jobs that have to have ended.
    """
    checker = Checker(extent or Extent(), must_end=must_end, acknowledged=acknowledged)
    checker.batches(batches or {})
    checker.jobs(histories, graphs or {})
    return checker.finish()
