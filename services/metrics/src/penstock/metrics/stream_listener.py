"""Listens to the reports of streaming queries: the newest of each, for sources that read them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import msgspec

from penstock.bus.protocol import Bus, Subscription
from penstock.events.stream_report import StreamReport
from penstock.events.subjects import Subjects
from penstock.runtime.limited_log import LimitedLog

log = logging.getLogger("penstock.metrics")

_MOST_BYTES = 64_000
_TAKEN_OVER_SECONDS = 10.0
"""After a report that none followed for so long any other counts: of a run that says it began
earlier, or with a smaller number, since a forged one may have had the largest."""


class StreamListener:
    """The newest report of each query that a pool names. No message can stop it.

    Args:
        queries: names; reports of others are not kept.
    """

    def __init__(self, bus: Bus, subjects: Subjects, queries: Iterable[str]) -> None:
        self._bus, self._subjects = bus, subjects
        self._queries = frozenset(queries)
        self._newest: dict[str, tuple[StreamReport, float]] = {}
        self._decoder = msgspec.json.Decoder(StreamReport)
        self._log = LimitedLog(log)

    async def listen(self) -> list[Subscription]:
        """Subscribes to the queries' subjects; to none where no pool names one."""
        return [
            await self._bus.listen(self._subjects.stream_report(query), self._on_report)
            for query in sorted(self._queries)
        ]

    def newest(self, query: str) -> tuple[StreamReport, float] | None:
        """The report, and the seconds since it came; None before the first."""
        if (stored := self._newest.get(query)) is None:
            return None
        report, came_at = stored
        return report, time.monotonic() - came_at

    def _on_report(self, subject: str, body: bytes) -> None:
        try:
            if len(body) > _MOST_BYTES:
                raise ValueError(f"found {len(body)} bytes, expected at most {_MOST_BYTES}")
            report = self._decoder.decode(body)
            if subject != self._subjects.stream_report(report.query):
                raise ValueError(f"found a report of query {report.query!r}")
        except (ValueError, RecursionError) as error:
            self._log.write(logging.WARNING, subject, "%s is ignored: %s", subject, error)
            return
        if self._is_newer(report):
            self._newest[report.query] = report, time.monotonic()

    def _is_newer(self, report: StreamReport) -> bool:
        """Of two runs of one name, the one that began later counts: a query was started anew."""
        newest = self.newest(report.query)
        if newest is None:
            return True
        last, silent = newest
        if silent > _TAKEN_OVER_SECONDS:
            return True
        if last.run_id == report.run_id:
            return report.number > last.number
        return report.started_at > last.started_at or last.ended
