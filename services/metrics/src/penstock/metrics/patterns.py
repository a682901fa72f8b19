"""Patterns of a source's queues: which queues they name, read again and again, and their sums."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from penstock.config.source_patterns import matches
from penstock.metrics.core.sources.look import AnyLook, SourceFault, SourceLook
from penstock.metrics.core.sources.pattern import PatternSum
from penstock.metrics.sources.source import MOST_NAMES, ListsQueues, QueueSource, SourceAway

log = logging.getLogger("penstock.metrics")

NAMES_SECONDS = 30.0
"""Names are read so often; so much later the first message of a new queue is seen."""
_NAMES_AGAIN_SECONDS = 5.0
"""After a queue cannot be looked at, its pattern's names are read again, but not more often."""


class QueuePatterns:
    """The patterns of one source.

    Args:
        source: its name.
        patterns: in the order of the pools.
        named: queues that pools name without a pattern: these are in no sum.
    """

    def __init__(self, source: str, patterns: Sequence[str], named: Collection[str]) -> None:
        self._source_name = source
        self._sums = [PatternSum(pattern) for pattern in patterns]
        self._named = frozenset(named)
        self._read_at: float | None = None
        self._logged_empty: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The queues that the patterns named when they were read last."""
        return [name for one in self._sums for name in one.names]

    async def read(self, source: QueueSource, now: float) -> None:
        """Reads the names where it is time for that.

        Raises:
            SourceAway: they cannot be read.
        """
        if self._sums and (self._read_at is None or now - self._read_at >= NAMES_SECONDS):
            await self._read(source, now)

    async def read_again(
        self, source: QueueSource, looks: Mapping[str, AnyLook | SourceFault], now: float
    ) -> None:
        """Reads them where queues cannot be looked at that could be before: perhaps they are gone.

        Raises:
            SourceAway: they cannot be read.
        """
        faulty = [one for one in self._sums if one.unlisted_faults(looks)]
        rested = self._read_at is None or now - self._read_at >= _NAMES_AGAIN_SECONDS
        if faulty and (rested or self._read_at == now):
            if self._read_at != now:
                await self._read(source, now)
            for one in faulty:
                one.confirm_faults(looks)

    def sums(
        self, looks: Mapping[str, AnyLook | SourceFault], now: float
    ) -> tuple[dict[str, SourceLook], dict[str, str]]:
        """The look of each pattern, and what is wrong with some of its queues."""
        summed = {one.pattern: one.sum(looks, now) for one in self._sums}
        return (
            {pattern: one.look for pattern, one in summed.items() if one.look},
            {pattern: one.fault for pattern, one in summed.items() if one.fault},
        )

    async def _read(self, source: QueueSource, now: float) -> None:
        if not isinstance(source, ListsQueues):
            raise SourceAway(
                f"this kind cannot list queues, so that {self._sums[0].pattern!r} stands for none: "
                "name them"
            )
        left = MOST_NAMES
        for one in self._sums:
            listed = await source.names(one.pattern)
            fitting = {name for name in listed if matches(one.pattern, name)} - self._named
            # Those that were measured before stay, however many others come.
            ranked = sorted(fitting, key=lambda name: (name not in one.names, name))[:left]
            surplus = ""
            if len(ranked) < len(fitting):
                surplus = f"more than {MOST_NAMES} queues match: only so many are counted"
            one.set_names(ranked, now, surplus)
            left -= len(ranked)
            self._log_empty(one)
        self._read_at = now

    def _log_empty(self, one: PatternSum) -> None:
        """Once: the pattern may be misspelt."""
        if not one.names and one.pattern not in self._logged_empty:
            self._logged_empty.add(one.pattern)
            log.warning("source %s: %r matches no queue yet", self._source_name, one.pattern)
