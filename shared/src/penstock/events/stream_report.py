"""How far a streaming query of Spark is, as a listener in its session reports it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.events.envelope import Int64

MOST_BATCHES = 16
"""The last batches of a query that each report repeats, so that a lost report loses none."""
MOST_SOURCES = 8
_MOST_SECONDS = 100 * 366 * 86_400.0

Count = Annotated[int, Meta(ge=0, le=10**15)]
Seconds = Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]
Time = Annotated[float, Meta(ge=0, le=1e11)]
Rate = Annotated[float, Meta(ge=0, le=1e15)]
Text = Annotated[str, Meta(max_length=200)]


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of a batch.

    Attributes:
        name: its class, such as ``KafkaV2``; nothing of its address.
        rows: read in the batch.
        lag_rows: that the source had beyond the batch when it was planned; None where its offsets
            do not say.
    """

    name: Text = ""
    rows: Count = 0
    lag_rows: Count | None = None


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that is done, of Spark's ``StreamingQueryProgress``.

    Attributes:
        triggered_at: POSIX seconds, by the driver's clock.
        seconds: from its trigger to its end (``triggerExecution``).
        add_seconds: of these, in which its rows were read, worked on and written (``addBatch``).
        input_rows_per_second: that came, by Spark's own count; None before the second batch.
        processed_rows_per_second: rows of the batch over its time.
    """

    batch_id: Int64
    triggered_at: Time
    rows: Count = 0
    seconds: Seconds = 0.0
    add_seconds: Seconds = 0.0
    input_rows_per_second: Rate | None = None
    processed_rows_per_second: Rate | None = None
    sources: Annotated[tuple[SourceProgress, ...], Meta(max_length=MOST_SOURCES)] = ()

    @property
    def lag_rows(self) -> int | None:
        """Rows that its sources held back; None where no source says."""
        lags = [source.lag_rows for source in self.sources if source.lag_rows is not None]
        return sum(lags) if lags else None


class StreamReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A query's heartbeat, sent each second on a plain subject while its session lives.

    Attributes:
        query: its name.
        query_id: as Spark has it; stays over restarts from a checkpoint.
        run_id: of this start.
        app_id: of the Spark application; empty where it is not known.
        number: counts up within a run, so that a gap shows lost reports.
        at: POSIX seconds, by the driver's clock, as are all times here.
        started_at: when the listener first saw this run.
        batches: the last ones, oldest first.
        batches_done: all that the listener saw of this run.
        idle_at: when a trigger last found no rows.
        ended: the query has ended.
        error: class of the error that ended it; empty where none did.
        dropped: reports of this run that could not be sent.
    """

    query: Annotated[str, Meta(max_length=64)]
    run_id: Annotated[str, Meta(max_length=64)]
    number: Int64
    at: Time
    started_at: Time
    query_id: Annotated[str, Meta(max_length=64)] = ""
    app_id: Annotated[str, Meta(max_length=100)] = ""
    batches: Annotated[tuple[BatchProgress, ...], Meta(max_length=MOST_BATCHES)] = ()
    batches_done: Count = 0
    idle_at: Time | None = None
    ended: bool = False
    error: Text = ""
    dropped: Count = 0
