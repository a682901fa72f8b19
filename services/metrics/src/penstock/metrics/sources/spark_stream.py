"""Kind ``spark-stream``: streaming queries of Spark, by what a listener in their session reports.

``queues`` are names of queries. Nothing is asked of Spark here: `report_progress` of
`penstock.spark.stream_reporter` sends each query's report once a second over the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.metrics.core.sources.look import SourceFault, StreamLook
from penstock.metrics.sources.source import Kind, SourceSettings

SILENT_SECONDS = 5.0
"""Reports come each second; while the broker or the driver is busy some are lost."""


class StreamSource:
    """The newest report of each query."""

    def __init__(self, settings: SourceSettings) -> None:
        self._reports = settings.reports

    async def look(self, queries: Sequence[str]) -> Mapping[str, StreamLook | SourceFault]:
        return {query: self._look(query) for query in queries}

    async def close(self) -> None:
        pass

    def _look(self, query: str) -> StreamLook | SourceFault:
        newest = self._reports.newest(query) if self._reports else None
        if newest is None:
            return SourceFault(
                f"query {query} has not reported yet: call report_progress(spark) in its program, "
                f"and start it with queryName({query!r})"
            )
        report, silent = newest
        if report.ended:  # it is known to need nothing, however long ago that was
            return StreamLook(report=report)
        if silent > SILENT_SECONDS:
            return SourceFault(
                f"query {query} no longer reports: its driver ended, or cannot reach the broker"
            )
        return StreamLook(report=report, behind_seconds=silent)


KIND = Kind(open=StreamSource, takes_secret=False)
