"""Workers that reported lately, of those that their hosts vouch for. Bounded, whatever is sent."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from penstock.events.snapshot import HostSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport
from penstock.views.live_workers import WorkerRow, worker_row

SILENT_SECONDS = 10.0
"""A worker reports each second; one that is silent for so long is not shown."""
MOST_WORKERS = 20_000
MOST_BYTES = 2**20
"""Of a report. A row of it holds names and numbers alone."""

_report = msgspec.json.Decoder(WorkerReport).decode


class ReportedWorkers:
    """Takes reports of workers, and forgets silent ones without being asked.

    A report comes from a worker, thus from whatever runs in it: it counts when it came on the
    worker's own subject and its host's last snapshot names the worker in that pool
    (decision 0020), as for the metrics service.

    Args:
        subjects: of the installation.
        clock: steady, in seconds.
    """

    def __init__(self, subjects: Subjects, clock: Callable[[], float] = time.monotonic) -> None:
        self._subjects, self._clock = subjects, clock
        self._pools: dict[str, dict[str, str]] = {}
        self._latest: OrderedDict[tuple[str, str], tuple[float, WorkerRow]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

    def see(self, host: HostSnapshot) -> None:
        """Takes in which workers a host has, by its last snapshot."""
        self._pools[host.host] = {
            name: pool for pool, workers in host.pools.items() for name in workers.names
        }

    def take(self, subject: str, body: bytes) -> bool:
        """Takes a report; False for one that does not count."""
        self.forget_silent()
        if len(body) > MOST_BYTES:
            return False
        try:
            report = _report(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        key = (report.host, report.worker)
        is_named = self._pools.get(report.host, {}).get(report.worker) == report.pool
        if not is_named or subject != self._subjects.worker_report(*key):
            return False
        if key not in self._latest and len(self._latest) >= MOST_WORKERS:
            return False
        self._latest[key] = (self._clock(), worker_row(report))
        self._latest.move_to_end(key)
        return True

    def forget_silent(self) -> None:
        """Forgets workers that did not report lately; the first ones are silent for longest."""
        since = self._clock() - SILENT_SECONDS
        while self._latest and next(iter(self._latest.values()))[0] < since:
            self._latest.popitem(last=False)

    def rows(self) -> list[WorkerRow]:
        """A row for each worker that reported lately, by pool and name."""
        self.forget_silent()
        now = self._clock()
        rows = (
            msgspec.structs.replace(row, lived_seconds=row.lived_seconds + now - at)
            for at, row in self._latest.values()
        )
        return sorted(rows, key=lambda row: (row.pool, row.worker))
