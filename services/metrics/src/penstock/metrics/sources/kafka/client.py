"""One connection to each broker of a Kafka cluster; reads offsets, joins no group."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from penstock.metrics.core.sources.look import SourceFault
from penstock.metrics.core.sources.partitions import Offsets
from penstock.metrics.core.sources.record_batch import RecordBatch, first_batch
from penstock.metrics.sources.kafka.connection import AnswerTooLarge, KafkaConnection, Security
from penstock.metrics.sources.source import SourceAway

Partition = tuple[str, int]
_END, _LOW = -1, -2
_ONE_BATCH_BYTES = 1
"""A broker answers a fetch with one whole batch at least, however few bytes are asked for."""
_GROUP = 0
_UNKNOWN_TOPIC = 3
_UNCOMMITTED = 0
"""Level of isolation: records of transactions that are not over count, too."""


class Topics(msgspec.Struct, frozen=True):
    """What the brokers say of some topics.

    Attributes:
        cluster: id of the cluster.
        leaders: broker of each partition, of topics that have no fault.
        faults: by topic.
        missing: topics that do not exist; they have a fault, too.
    """

    cluster: str
    leaders: dict[Partition, int]
    faults: dict[str, SourceFault]
    missing: frozenset[str]


class KafkaClient:
    """Reads what a consumer group has to do.

    Args:
        servers: (host, port) of brokers; any of them that answers names the others.
        security: of all brokers.
    """

    def __init__(self, servers: Sequence[tuple[str, int]], security: Security) -> None:
        self._servers, self._security = servers, security
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._coordinator: tuple[str, int] | None = None

    async def topics(self, names: Sequence[str]) -> Topics:
        """Raises SourceAway: no broker answers."""
        connection = await self._any()
        request = MetadataRequest(list(names), allow_auto_topic_creation=False)
        [answer] = await connection.ask(request)
        self._brokers = {broker[0]: (broker[1], broker[2]) for broker in answer.brokers}
        await self._close_all_but({*self._brokers.values(), self._coordinator})
        leaders: dict[Partition, int] = {}
        faults = {}
        missing = frozenset(topic for code, topic, *_ in answer.topics if code == _UNKNOWN_TOPIC)
        for code, topic, _, partitions in answer.topics:
            led = {(topic, number): leader for _, number, leader, *_ in partitions}
            if code:
                faults[topic] = SourceFault(f"topic {topic!r}: {_text(code)}")
            elif not led or any(leader not in self._brokers for leader in led.values()):
                faults[topic] = SourceFault(f"topic {topic!r}: a partition has no leader")
            else:
                leaders |= led
        return Topics(answer.cluster_id or "", leaders, faults, missing)

    async def offsets(
        self, group: str, leaders: Mapping[Partition, int]
    ) -> tuple[dict[str, dict[int, Offsets]], dict[str, SourceFault]]:
        """Where partitions begin and end and where the group stands, and faults; both by topic.

        Raises:
            SourceAway: a broker does not answer, or refuses the group.
        """
        faults: dict[str, SourceFault] = {}
        # In this order: else a group that goes on meanwhile would stand beyond the end.
        committed = await self._committed(group, leaders, faults)
        bounds: dict[Partition, tuple[int, int]] = {}
        by_leader = _by_leader(leaders)
        await _together(self._bounds(*part, bounds, faults) for part in by_leader.items())
        offsets: dict[str, dict[int, Offsets]] = {}
        for topic, number in leaders:
            if topic not in faults:
                low, end = bounds[topic, number]
                at = Offsets(low, end, committed[topic, number])
                offsets.setdefault(topic, {})[number] = at
        return offsets, faults

    async def batches(
        self, positions: Mapping[Partition, int], leaders: Mapping[Partition, int]
    ) -> dict[Partition, RecordBatch | None]:
        """The first batch at each of these positions, where there is one.

        It is None where it is too large, or of a format that is not known.

        Raises:
            SourceAway: a broker does not answer.
        """
        batches: dict[Partition, RecordBatch | None] = {}
        by_leader = _by_leader({partition: leaders[partition] for partition in positions})
        await _together(
            self._read_batches(leader, partitions, positions, batches)
            for leader, partitions in by_leader.items()
        )
        return batches

    async def close(self) -> None:
        self._coordinator, self._brokers = None, {}
        await self._close_all_but(())

    # --- requests --------------------------------------------------------------------------------
    async def _committed(
        self, group: str, partitions: Iterable[Partition], faults: dict[str, SourceFault]
    ) -> dict[Partition, int | None]:
        coordinator = await self._connect(await self._coordinator_of(group))
        request = OffsetFetchRequest(group, list(_by_topic(partitions).items()))
        [answer] = await coordinator.ask(request)
        if code := getattr(answer, "error_code", 0):
            raise SourceAway(f"group {group!r}: {_text(code)}")
        committed: dict[Partition, int | None] = {}
        for topic, rows in answer.topics:
            for number, offset, _, code in rows:
                committed[topic, number] = None if offset < 0 else offset
                if code:
                    faults[topic] = SourceFault(f"topic {topic!r}: {_text(code)}")
        return committed

    async def _coordinator_of(self, group: str) -> tuple[str, int]:
        if self._coordinator is None:
            [answer] = await (await self._any()).ask(FindCoordinatorRequest(group, _GROUP))
            if answer.error_code:
                raise SourceAway(f"group {group!r}: {_text(answer.error_code)}")
            self._coordinator = answer.host, answer.port
        return self._coordinator

    async def _bounds(
        self,
        leader: int,
        partitions: Sequence[Partition],
        bounds: dict[Partition, tuple[int, int]],
        faults: dict[str, SourceFault],
    ) -> None:
        def request(moment: int) -> OffsetRequest:
            topics = _by_topic(partitions).items()
            rows = [(topic, [(number, moment) for number in numbers]) for topic, numbers in topics]
            return OffsetRequest(-1, _UNCOMMITTED, rows)

        connection = await self._connect(self._brokers[leader])
        lows: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        answers = await connection.ask(request(_LOW), request(_END))
        for offsets, answer in zip((lows, ends), answers, strict=True):
            for topic, rows in answer.topics:
                for number, code, *_, offset in rows:
                    offsets[topic, number] = offset
                    if code:
                        faults[topic] = SourceFault(f"topic {topic!r}: {_text(code)}")
        bounds.update({partition: (low, ends[partition]) for partition, low in lows.items()})

    async def _read_batches(
        self,
        leader: int,
        partitions: Sequence[Partition],
        positions: Mapping[Partition, int],
        batches: dict[Partition, RecordBatch | None],
    ) -> None:
        for topic, number in partitions:
            place = number, positions[topic, number], _ONE_BATCH_BYTES
            request = FetchRequest(0, 0, _ONE_BATCH_BYTES, _UNCOMMITTED, [(topic, [place])])
            connection = await self._connect(self._brokers[leader])
            try:
                [answer] = await connection.ask(request)
            except AnswerTooLarge:
                batches[topic, number] = None
                continue
            for _, rows in answer.topics:
                for _, code, *_, stored in rows:
                    if stored and not code:
                        batches[topic, number] = first_batch(stored)

    # --- connections -----------------------------------------------------------------------------
    async def _any(self) -> KafkaConnection:
        """A connection to some broker: an open one, else to the first that can be reached."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        *others, last = [*self._brokers.values(), *self._servers]
        for server in others:
            with suppress(SourceAway):
                return await self._connect(server)
        return await self._connect(last)

    async def _connect(self, broker: tuple[str, int]) -> KafkaConnection:
        connection = self._connections.get(broker)
        if connection is None or not connection.is_open:
            connection = await KafkaConnection.open(*broker, self._security)
            self._connections[broker] = connection
        return connection

    async def _close_all_but(self, kept: Container[tuple[str, int] | None]) -> None:
        for broker in [broker for broker in self._connections if broker not in kept]:
            await self._connections.pop(broker).close()


async def _together(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them, or none goes on after one failed: `close` follows then."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _text(code: int) -> str:
    error = for_code(code)
    return f"{error.__name__}: {error.description or error.message}"


def _by_leader(leaders: Mapping[Partition, int]) -> dict[int, list[Partition]]:
    partitions: dict[int, list[Partition]] = {}
    for partition, leader in leaders.items():
        partitions.setdefault(leader, []).append(partition)
    return partitions


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return numbers
