"""Kinds ``procrastinate``, ``oban`` and ``river``: queues in a table of jobs of PostgreSQL.

One statement gives the figures of all queues, as of one moment. What waits, runs and is delayed is
counted up to ``MOST_ROWS`` rows of a queue. Ends are counted from a mark on, an id or a time. What
lies after the mark is counted anew at each look, because a transaction that ends late makes rows
visible whose ids or times have passed; the mark follows a minute behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.sources.source import Kind, SourceSettings
from penstock.metrics.sources.sql import SCHEMES, SqlSource

MOST_ROWS = 100_000
"""More rows of a queue in one state are not counted, and the figures are not exact."""

Schema = Annotated[str, Meta(pattern="^([A-Za-z_][A-Za-z0-9_]{0,62})?$")]


class JobsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tables are; empty: where the user's ``search_path`` finds them.

    Attributes:
        schema: of the tables.
        counts_ended: false where jobs are deleted as soon as they end: their ends cannot be
            counted.
    """

    schema: Schema = ""
    counts_ended: bool = True


class JobsSource(SqlSource):
    """A table of jobs.

    Args:
        settings: of the source.
        query: gives a row for each of ``%(queues)s`` with the figures, ``recent`` (ends since
            ``%(mark)s``), ``settled`` (those of them up to the row's ``mark``) and ``mark``; the
            first time ``%(mark)s`` is null.
        names: as of the kind ``sql``.
    """

    def __init__(self, settings: SourceSettings, query: str, names: str) -> None:
        options: JobsOptions = settings.options
        of = f'"{options.schema}".' if options.schema else ""
        super().__init__(
            settings, Template(query).substitute(of=of), Template(names).substitute(of=of)
        )
        self._counts_ended = options.counts_ended
        self._mark: Any = None
        self._settled: dict[str, int] = {}

    def parameters(self, queues: Sequence[str]) -> Mapping[str, Any]:
        self._settled = {queue: self._settled.get(queue, 0) for queue in queues}
        return {"queues": list(queues), "mark": self._mark}

    def look_of_row(self, queue: str, row: dict[str, Any]) -> SourceLook | SourceFault:
        recent, settled, self._mark = row.pop("recent"), row.pop("settled"), row.pop("mark")
        before = self._settled[queue]
        self._settled[queue] = before + settled
        counts = {name: row[name] for name in ("waiting", "claimed", "delayed")}
        bounded = {name: min(count, MOST_ROWS) for name, count in counts.items()}
        ended = before + recent if self._counts_ended else None
        oldest = row["oldest_seconds"]  # of a time that may be no time: -infinity, 4713 BC
        figures = {
            **row,
            **bounded,
            "ended": ended,
            "exact": bounded == counts,
            "oldest_seconds": None if oldest is None else age_of(float(oldest)),
        }
        return super().look_of_row(queue, figures)


_FIGURES = """
select asked.queue, waits.waiting, runs.claimed, rests.delayed,
       case when waits.waiting = 0 then 0
            else extract(epoch from $now) - extract(epoch from $due) end as oldest_seconds,
       coalesce(ends.recent, 0) as recent, coalesce(ends.settled, 0) as settled, settled.mark
from unnest(%(queues)s::text[]) as asked(queue)
cross join settled
left join ends on ends.queue = asked.queue
cross join lateral (
    select count(*) as waiting, $first
    from (select * from $jobs where $queue = asked.queue and $waits limit $most) as rows
) as waits
cross join lateral (
    select count(*) as claimed
    from (select 1 from $jobs where $queue = asked.queue and $runs limit $most) as rows
) as runs
cross join lateral (
    select count(*) as delayed
    from (select 1 from $jobs where $queue = asked.queue and $rests limit $most) as rows
) as rests
"""


def _query(ends: str, **parts: str) -> str:
    """``${of}`` is left in it, for the schema."""
    return ends + Template(_FIGURES).safe_substitute(parts, most=str(MOST_ROWS + 1))


def _kind(query: str, names: str) -> Kind:
    return Kind(
        open=lambda settings: JobsSource(settings, query, names),
        schemes=SCHEMES,
        options=JobsOptions,
        counts_arrivals=lambda options: bool(options.counts_ended),
        lists_queues=lambda options: True,
    )


# --- procrastinate ------------------------------------------------------------------------------
# Events have the times that jobs lack; ``scheduled`` ones have a time that is yet to come.
_PROCRASTINATE_ENDS = """
with start as (
    select coalesce(%(mark)s::bigint, (select max(id) from ${of}procrastinate_events), 0) as mark
), settled as (
    select coalesce(max(id), (select mark from start)) as mark from ${of}procrastinate_events
    where id > (select mark from start)
      and type <> 'scheduled' and at < now() - interval '60 seconds'
), ends as (
    select queue_name as queue, count(*) as recent,
           count(*) filter (where events.id <= (select mark from settled)) as settled
    from ${of}procrastinate_events as events
    join ${of}procrastinate_jobs as jobs on jobs.id = events.job_id
    where events.id > (select mark from start)
      and type in ('succeeded', 'failed', 'cancelled', 'aborted')
    group by queue_name
)"""
# Each step finds the next name in the index of names, however many jobs have one.
_PROCRASTINATE_NAMES = """
with recursive names as (
    select min(queue_name) as name from ${of}procrastinate_jobs
    union all
    select (select min(queue_name) from ${of}procrastinate_jobs where queue_name > names.name)
    from names where names.name is not null
)
select name from names where name like %(like)s limit %(most)s
"""
PROCRASTINATE = _kind(
    _query(
        _PROCRASTINATE_ENDS,
        jobs="${of}procrastinate_jobs",
        queue="queue_name",
        waits="status = 'todo' and (scheduled_at is null or scheduled_at <= now())",
        runs="status = 'doing'",
        rests="status = 'todo' and scheduled_at > now()",
        first=("min(scheduled_at) as due, min(id) filter (where scheduled_at is null) as first_id"),
        now="now()",
        due=(
            "least(waits.due, (select min(at) from ${of}procrastinate_events "
            "where job_id = waits.first_id and type = 'deferred'))"
        ),
    ),
    _PROCRASTINATE_NAMES,
)


# --- Oban ---------------------------------------------------------------------------------------
_OBAN_ENDS = """
with start as (
    select coalesce(%(mark)s::timestamp, timezone('UTC', now())) as mark
), settled as (
    select greatest(
        (select mark from start), timezone('UTC', now() - interval '60 seconds')
    ) as mark
), ended_jobs as (
    select queue, coalesce(completed_at, discarded_at, cancelled_at) as at from ${of}oban_jobs
    where state in ('completed', 'discarded', 'cancelled')
), ends as (
    select queue, count(*) as recent,
           count(*) filter (where at <= (select mark from settled)) as settled
    from ended_jobs where at > (select mark from start) group by queue
)"""
OBAN = _kind(
    _query(
        _OBAN_ENDS,
        jobs="${of}oban_jobs",
        queue="queue",
        waits=(
            "(state = 'available' or (state in ('scheduled', 'retryable') "
            "and scheduled_at <= timezone('UTC', now())))"
        ),
        runs="state = 'executing'",
        rests=("state in ('scheduled', 'retryable') and scheduled_at > timezone('UTC', now())"),
        first="min(scheduled_at) as due",
        now="timezone('UTC', now())",
        due="waits.due",
    ),
    "select distinct queue from ${of}oban_jobs where queue like %(like)s limit %(most)s",
)


# --- River --------------------------------------------------------------------------------------
_RIVER_ENDS = """
with start as (
    select coalesce(%(mark)s::timestamptz, now()) as mark
), settled as (
    select greatest((select mark from start), now() - interval '60 seconds') as mark
), ends as (
    select queue, count(*) as recent,
           count(*) filter (where finalized_at <= (select mark from settled)) as settled
    from ${of}river_job
    where state in ('completed', 'discarded', 'cancelled')
      and finalized_at > (select mark from start)
    group by queue
)"""
RIVER = _kind(
    _query(
        _RIVER_ENDS,
        jobs="${of}river_job",
        queue="queue",
        waits=(
            "(state = 'available' or (state in ('scheduled', 'retryable') "
            "and scheduled_at <= now()))"
        ),
        runs="state = 'running'",
        rests="state in ('scheduled', 'retryable') and scheduled_at > now()",
        first="min(scheduled_at) as due",
        now="now()",
        due="waits.due",
    ),
    "select name from ${of}river_queue where name like %(like)s limit %(most)s",
)
