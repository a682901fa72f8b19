"""Queue sources under test: what each has to do, and one that is simulated, with faults.

A package that adds a kind of source tests it by `SourceContract`:

```python
class TestMine(SourceContract):
    @pytest.fixture
    async def system(self):
        yield MySystem()  # a SourceSystem
```
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import pytest

from penstock.config.source_patterns import matches
from penstock.metrics.sources import (
    ListsQueues,
    QueueSource,
    SourceAway,
    SourceFault,
    SourceLook,
)

_FAILING_LOOKS = 1_000
_LOOK_SECONDS = 10.0


class SourceSystem(Protocol):
    """The system that a source looks at, as its test drives it.

    Attributes:
        queue: a queue that exists and is empty.
        absent: one that does not exist; None where the system has no such thing.
        counts_claims: whether the source sees what is delivered and not acknowledged.
        knows_age: whether it knows the age of the oldest waiting message.
    """

    queue: str
    absent: str | None
    counts_claims: bool
    knows_age: bool

    def open(self) -> QueueSource:
        """A source that looks at this system."""
        ...

    async def put(self, count: int) -> None:
        """So many messages come."""
        ...

    async def take(self, count: int) -> None:
        """A consumer gets so many and acknowledges none yet."""
        ...

    async def end(self, count: int) -> None:
        """It acknowledges so many of these."""
        ...

    async def stop(self) -> None:
        """The system no longer answers."""
        ...

    async def start(self) -> None:
        """It answers again; what it held may be lost."""
        ...

    async def connections(self) -> int:
        """Connections, files and processes that sources hold open here."""
        ...


class SourceContract:
    """What each queue source has to do."""

    async def test_a_look_counts_what_waits_and_what_is_claimed(self, system: SourceSystem) -> None:
        source = system.open()
        try:
            assert (await _look(source, system)).waiting == 0
            await system.put(7)
            assert (await _look(source, system)).waiting == 7
            await system.take(3)
            look = await _look(source, system)
            assert look.waiting == 4
            assert look.claimed == (3 if system.counts_claims else None)
            await system.end(2)
            look = await _look(source, system)
            assert (look.waiting, look.claimed) == (4, 1 if system.counts_claims else None)
        finally:
            await source.close()

    async def test_looking_changes_nothing(self, system: SourceSystem) -> None:
        source = system.open()
        try:
            await system.put(3)
            looks = [await _look(source, system) for _ in range(20)]
            assert {look.waiting for look in looks} == {3}
        finally:
            await source.close()

    async def test_a_queue_that_does_not_exist_is_a_fault_and_fails_no_other(
        self, system: SourceSystem
    ) -> None:
        if system.absent is None:
            pytest.skip("an empty queue and none at all are the same in this system")
        source = system.open()
        try:
            await system.put(2)
            looks = await source.look([system.absent, system.queue])
            assert isinstance(looks[system.absent], SourceFault)
            assert isinstance(looks[system.queue], SourceLook)
        finally:
            await source.close()

    async def test_queues_are_listed_by_pattern_where_the_system_can_list_them(
        self, system: SourceSystem
    ) -> None:
        source = system.open()
        if not isinstance(source, ListsQueues):
            pytest.skip("this kind lists no queues")
        try:
            await system.put(1)
            for pattern in ("*", f"{system.queue[:2]}*", f"*{system.queue[1:]}"):
                assert list(await source.names(pattern)).count(system.queue) == 1
            for pattern in ("no-such-*", f"{system.queue}?*", f"{system.queue[0]}[a-z]*"):
                assert not await source.names(pattern)
        finally:
            await source.close()

    async def test_the_age_of_the_oldest_is_right_within_a_second(
        self, system: SourceSystem
    ) -> None:
        source = system.open()
        try:
            await system.put(1)
            put_at = time.monotonic()
            await asyncio.sleep(1.2)
            look, now = await _look(source, system), time.monotonic()
            if not system.knows_age:
                assert look.oldest_seconds is None
                return
            assert look.oldest_seconds is not None
            assert abs(look.oldest_seconds - (now - put_at)) <= 1.0
            await system.take(1)
            assert (await _look(source, system)).oldest_seconds == 0
        finally:
            await source.close()

    async def test_a_thousand_failing_looks_leave_no_connection_behind(
        self, system: SourceSystem
    ) -> None:
        source = system.open()
        await system.put(1)
        await _look(source, system)
        await system.stop()
        for _ in range(_FAILING_LOOKS):
            with pytest.raises(SourceAway):
                await source.look([system.queue])
            await source.close()
        await system.start()
        await _look(source, system)
        await _until_open(system, 1)
        await source.close()
        await source.close()
        await _until_open(system, 0)

    async def test_a_cancelled_look_leaves_a_source_that_can_look_again(
        self, system: SourceSystem
    ) -> None:
        source = system.open()
        try:
            await system.put(1)
            look = asyncio.ensure_future(source.look([system.queue]))
            await asyncio.sleep(0)
            look.cancel()
            await asyncio.wait([look])
            await source.close()
            assert (await _look(source, system)).waiting == 1
            await _until_open(system, 1)
        finally:
            await source.close()


async def _look(source: QueueSource, system: SourceSystem) -> SourceLook:
    async with asyncio.timeout(_LOOK_SECONDS):
        look = (await source.look([system.queue]))[system.queue]
    assert isinstance(look, SourceLook), look
    return look


async def _until_open(system: SourceSystem, most: int) -> None:
    """A server notices a closed connection a moment later."""
    async with asyncio.timeout(_LOOK_SECONDS):
        while await system.connections() > most:  # noqa: ASYNC110 - the server signals nothing
            await asyncio.sleep(0.01)


class SimulatedSystem:
    """A system in memory, and the source that looks at it.

    Attributes:
        faults: raised, one a look, before anything else happens.
        looks: how often it was looked at.
        slow_seconds: each look takes so long.
        reports: figures that replace those of the queues, such as nonsense.
        epoch: of the counters; `restart` begins a new one.
    """

    queue, absent = "mail", "none-such"
    counts_claims, knows_age = True, True

    def __init__(self) -> None:
        self.faults: deque[Exception] = deque()
        self.looks, self.slow_seconds, self.epoch = 0, 0.0, 0
        self.reports: dict[str, SourceLook | SourceFault] = {}
        self._came: deque[float] = deque()
        self._claimed = self._arrived = self._ended = 0
        self._is_up, self._open = True, 0

    def open(self) -> QueueSource:
        return _SimulatedSource(self)

    async def put(self, count: int) -> None:
        self._came += [time.monotonic()] * count
        self._arrived += count

    async def take(self, count: int) -> None:
        for _ in range(min(count, len(self._came))):
            self._came.popleft()
            self._claimed += 1

    async def end(self, count: int) -> None:
        count = min(count, self._claimed)
        self._claimed, self._ended = self._claimed - count, self._ended + count

    async def stop(self) -> None:
        self._is_up = False

    async def start(self) -> None:
        self._is_up = True

    def restart(self) -> None:
        """All counters begin anew; the messages are kept."""
        self.epoch, self._arrived, self._ended = self.epoch + 1, len(self._came), 0

    async def connections(self) -> int:
        return self._open

    def names(self, pattern: str) -> Sequence[str]:
        """The queue, and those of which figures are reported."""
        return [name for name in {self.queue: None, **self.reports} if matches(pattern, name)]

    async def figures(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        """What a look finds."""
        self.looks += 1
        await asyncio.sleep(self.slow_seconds)
        if self.faults:
            raise self.faults.popleft()
        if not self._is_up:
            raise SourceAway("the simulated system is stopped")
        return {queue: self.reports.get(queue) or self._figures(queue) for queue in queues}

    def _figures(self, queue: str) -> SourceLook | SourceFault:
        if queue != self.queue:
            return SourceFault("no such queue")
        return SourceLook(
            waiting=len(self._came),
            claimed=self._claimed,
            oldest_seconds=time.monotonic() - self._came[0] if self._came else 0.0,
            arrived=self._arrived,
            ended=self._ended,
            epoch=str(self.epoch),
        )

    def connected(self, change: int) -> None:
        """A source opened or closed its connection."""
        self._open += change


class _SimulatedSource:
    def __init__(self, system: SimulatedSystem) -> None:
        self._system, self._is_open = system, False

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        if not self._is_open:
            self._is_open = True
            self._system.connected(1)
        return await self._system.figures(queues)

    async def names(self, pattern: str) -> Sequence[str]:
        return self._system.names(pattern)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._system.connected(-1)
