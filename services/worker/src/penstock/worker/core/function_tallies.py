"""What a worker did by job function, counted until its next report. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.events.worker import FunctionReport
from penstock.measuring.quantiles import SECONDS_BUCKETS

MAX_FUNCTIONS = 64
"""Functions in one report; the others are counted together."""
OTHER = "other"


@dataclass
class _Tally:
    started: int = 0
    failed: int = 0
    peak_memory_bytes: int = 0
    runs: list[float] = field(default_factory=list)


class FunctionTallies:
    """Attempts by function; further functions than `MAX_FUNCTIONS` count as `OTHER`."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def started(self, function: str) -> None:
        self._of(function).started += 1

    def finished(
        self, function: str, run_seconds: float, failed: bool, peak_memory_bytes: int = 0
    ) -> None:
        """An attempt returned or raised.

        Args:
            function: its name.
            run_seconds: how long it ran.
            failed: it raised.
            peak_memory_bytes: of its process; 0 where it was not measured.
        """
        tally = self._of(function)
        tally.failed += failed
        tally.runs.append(run_seconds)
        tally.peak_memory_bytes = max(tally.peak_memory_bytes, peak_memory_bytes)

    def take(self) -> dict[str, FunctionReport]:
        """What was counted since the last call."""
        tallies, self._tallies = self._tallies, {}
        return {
            function: FunctionReport(
                started=tally.started,
                finished=len(tally.runs),
                failed=tally.failed,
                run_sum_seconds=sum(tally.runs),
                run_buckets=_buckets(tally.runs),
                peak_memory_bytes=tally.peak_memory_bytes,
            )
            for function, tally in tallies.items()
        }

    def _of(self, function: str) -> _Tally:
        if (tally := self._tallies.get(function)) is None:
            if len(self._tallies) >= MAX_FUNCTIONS:
                function = OTHER
            tally = self._tallies.setdefault(function, _Tally())
        return tally


def _buckets(runs: list[float]) -> tuple[tuple[int, int], ...]:
    """How many runs fell into each bucket, for those that have any."""
    indexes, counts = np.unique(np.searchsorted(SECONDS_BUCKETS, runs), return_counts=True)
    return tuple(zip(indexes.tolist(), counts.tolist(), strict=True))
