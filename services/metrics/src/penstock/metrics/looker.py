"""Looking at other systems: one task a source, with one connection, that backs off from faults."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol

from penstock.config.load import ConfigError
from penstock.config.source_patterns import is_pattern
from penstock.config.sources import SourceTable
from penstock.metrics.core.queue import Queue
from penstock.metrics.core.sketches import BadSketch
from penstock.metrics.core.sources.look import AnyLook, SourceFault, checked
from penstock.metrics.patterns import QueuePatterns
from penstock.metrics.sources.registry import open_source
from penstock.metrics.sources.shown import shown
from penstock.metrics.sources.source import QueueSource, SourceAway
from penstock.runtime.service import Service

log = logging.getLogger("penstock.metrics")

MOST_BACKOFF_SECONDS = 30.0
_LOOK_SHARE = 0.25
"""Looking at what patterns name takes at most this share of the time, however many queues these
are."""
_QUEUES_IN_TIME = 1_000
"""A look at more queues may take longer than ``timeout_seconds``, in proportion."""
_MOST_FAULTS = 20
"""Texts of one queue that are logged before it is seen again: some name what differs each time."""
Looks = Mapping[str, AnyLook | SourceFault]


class SourcePool(Protocol):
    """The meter of a pool whose work lies in a source."""

    name: str

    @property
    def source_queues(self) -> Sequence[Queue]: ...

    def see_source(
        self, looks: Mapping[str, Any], now: float, wall_now: float, faults: Mapping[str, str]
    ) -> None:
        """Takes in looks by queue, of the type that the source's kind gives.

        Args:
            faults: by pattern: why some of its queues could not be looked at.
        """
        ...


class SourceLooker:
    """Looks at all queues of one source, for the pools that have them.

    Attributes:
        name: of the source.

    Args:
        name: of the table ``[sources.NAME]``.
        meters: of the pools with this source.
        open: makes the source of a table; what it raises, such as for a missing secret, is a fault
            of this source alone, and it is asked again.
    """

    def __init__(
        self,
        name: str,
        table: SourceTable,
        meters: Sequence[SourcePool],
        open: Callable[[str, SourceTable], QueueSource] = open_source,
    ) -> None:
        self.name, self._table, self._meters = name, table, meters
        self._open = open
        self._source: QueueSource | None = None
        self._queues = tuple(dict.fromkeys(q.name for m in meters for q in m.source_queues))
        self._named = tuple(name for name in self._queues if not is_pattern(name))
        patterns = [name for name in self._queues if is_pattern(name)]
        self._patterns = QueuePatterns(name, patterns, self._named)
        self._failures = 0
        self._patterns_cost_seconds = 0.0
        self._faults: dict[str, set[str]] = {}

    async def run(self, running: Service) -> None:
        """Looks until the service stops; the connection is closed however that ends."""
        try:
            seconds = await self.look()
            while await running.pause(seconds):
                seconds = await self.look()
        finally:
            await self.close()

    async def look(self) -> float:
        """Looks once, and hands what was found to the meters.

        Returns:
            After how many seconds to look again.
        """
        now, wall_now = time.monotonic(), time.time()
        looks: Looks
        faults: Mapping[str, str]
        try:
            looks, faults = await self._ask(now)
            self._failures = 0
        except _Failed as failure:
            self._failures += 1
            looks, faults = dict.fromkeys(self._queues, SourceFault(str(failure))), {}
        self._patterns_cost_seconds = time.monotonic() - now if self._patterns.names else 0.0
        self._report({**looks, **{name: SourceFault(text) for name, text in faults.items()}})
        for meter in self._meters:
            try:
                meter.see_source(looks, now, wall_now, faults)
            except BadSketch as error:
                log.warning("source %s: pool %s: %s", self.name, meter.name, error)
        return self._pause_seconds()

    async def _ask(self, now: float) -> tuple[Looks, Mapping[str, str]]:
        """The looks, and faults beside looks; raises _Failed, and then the connection is closed."""
        try:
            # Until it can be made, its secret file or a library may still appear.
            source = self._source = self._source or self._open(self.name, self._table)
            async with asyncio.timeout(self._table.timeout_seconds):
                await self._patterns.read(source, now)
            queues = [*self._named, *self._patterns.names]
            many = max(len(queues) / _QUEUES_IN_TIME, 1.0)
            async with asyncio.timeout(self._table.timeout_seconds * many):
                reported = await source.look(queues) if queues else {}
                looks = {queue: _safe(reported.get(queue, _UNNAMED)) for queue in queues}
                await self._patterns.read_again(source, looks, now)
            sums, faults = self._patterns.sums(looks, now)
            return {**{queue: looks[queue] for queue in self._named}, **sums}, faults
        except TimeoutError:
            reason = f"no answer within {self._table.timeout_seconds:g} s"
        except (SourceAway, ConfigError) as error:
            reason = str(error)
        except Exception as error:  # of a source that is not ours
            reason = f"{type(error).__name__}: {error}"
        await self.close()
        raise _Failed(shown(reason))

    async def close(self) -> None:
        """Closes the connection, where there is one."""
        if (source := self._source) is None:
            return
        try:
            async with asyncio.timeout(self._table.timeout_seconds):
                await source.close()
        except Exception as error:  # the next look makes a new connection
            log.debug("source %s: closing failed: %s", self.name, type(error).__name__)

    def _pause_seconds(self) -> float:
        interval = self._table.look_seconds
        if not self._failures:
            return max(interval, self._patterns_cost_seconds / _LOOK_SHARE)
        return max(min(interval * 2.0 ** min(self._failures, 10), MOST_BACKOFF_SECONDS), interval)

    def _report(self, looks: Looks) -> None:
        """Each fault of a queue once by its text, until the queue is seen again."""
        faults = {name: look.text for name, look in looks.items() if isinstance(look, SourceFault)}
        back = sorted(self._faults.keys() - faults.keys())
        logged = {name: self._faults.get(name, set()) for name in faults}
        new = sorted(name for name, text in faults.items() if _is_new(text, logged[name]))
        for name in new:
            logged[name].add(faults[name])
        self._faults = logged
        if new:
            log.warning(
                "source %s: %s cannot be measured: %s", self.name, _named(new), faults[new[0]]
            )
        if back:
            log.warning("source %s: %s can be measured again", self.name, _named(back))


class _Failed(Exception):
    """A look at the whole source failed: why, without secrets."""


_UNNAMED = SourceFault("the source did not name it")


def _safe(look: AnyLook | SourceFault) -> AnyLook | SourceFault:
    """What can be; a fault's text is made fit to be shown, whichever package the source is of."""
    look = checked(look)
    return SourceFault(shown(look.text)) if isinstance(look, SourceFault) else look


def _is_new(text: str, logged: Set[str]) -> bool:
    return text not in logged and len(logged) < _MOST_FAULTS


def _named(queues: Sequence[str]) -> str:
    first = f"queue {queues[0]!r}"
    return first if len(queues) == 1 else f"{len(queues)} queues, e.g. {queues[0]!r},"
