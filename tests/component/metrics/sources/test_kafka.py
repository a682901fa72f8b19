"""Kind `kafka`, against librdkafka's mock brokers and a consumer group of confluent-kafka."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.unit.decider.given import one_round

from penstock.config.load import check as settings_of
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.metrics.core.sources.arrivals import arrivals
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.kafka.connection import KafkaConnection, Security
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

pytest.importorskip("aiokafka")

PARTITIONS = 4


class Topic:
    """A topic; its consumer commits each message as it gets it, which is what ends a lag."""

    queue, absent = "mail", "none-such"
    counts_claims, knows_age = False, True

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster

    def open(self, **options: Any) -> QueueSource:
        options = {"group": "workers", "auto_offset_reset": "earliest", **options}
        return open_source("shop", SourceTable(kind="kafka", url=self.cluster.url, options=options))

    async def put(self, count: int) -> None:
        self.cluster.put(count)

    async def take(self, count: int) -> None:
        self.cluster.take(count)

    async def end(self, count: int) -> None:
        pass

    async def stop(self) -> None:
        self.cluster.kill()

    async def start(self) -> None:
        self.cluster.start()

    async def connections(self) -> int:
        return self.cluster.connections()


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster() as cluster:
        yield cluster


class TestKafka(SourceContract):
    @pytest.fixture
    def system(self, cluster) -> Topic:
        return Topic(cluster)


@pytest.fixture
async def source(cluster) -> AsyncIterator[QueueSource]:
    source = Topic(cluster).open()
    yield source
    await source.close()


async def look(source: QueueSource, topic: str = "mail") -> SourceLook:
    [seen] = (await source.look([topic])).values()
    assert isinstance(seen, SourceLook), seen
    return seen


async def put_marker(cluster: KafkaCluster) -> None:
    """The end of a transaction comes to partition 0, as a broker writes it."""
    from aiokafka.protocol.produce import ProduceRequest
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=True, producer_id=1, producer_epoch=0,
        base_sequence=-1, batch_size=1_000,
    )  # fmt: skip
    builder.append(0, int(time.time() * 1000), b"\0\0\0\1", b"\0\0\0\0\0\0", [])
    batch = bytearray(builder.build())
    batch[22] |= 0x20
    connection = await KafkaConnection.open("127.0.0.1", cluster.ports[0], Security())
    [answer] = await connection.ask(
        ProduceRequest(None, -1, 5_000, [("mail", [(0, bytes(batch))])])
    )
    assert answer.topics[0][1][0][1] == 0
    await connection.close()


# --- against an oracle --------------------------------------------------------------------------
async def test_depth_counters_and_age_are_those_of_each_message() -> None:
    chance = random.Random(7)
    with kafka_cluster("mail", "low", brokers=2) as cluster:
        source = Topic(cluster).open()
        lines: list[deque[float]] = [deque() for _ in range(PARTITIONS)]
        put = ended = 0
        for _ in range(40):
            partition, count = chance.randrange(PARTITIONS), chance.randrange(5)
            age, taking = chance.uniform(0, 600), chance.randrange(3)
            age = 0.0 if lines[partition] else age  # a line is in the order of its timestamps
            cluster.put(count, partition=partition, age_seconds=age)
            lines[partition] += [time.time() - age] * count
            put += count
            taken = cluster.take(min(taking, put - ended))
            for number, _ in taken:
                lines[number].popleft()
            ended += len(taken)
            seen = await look(source)
            assert (seen.waiting, seen.arrived, seen.ended) == (put - ended, put, ended)
            assert (seen.claimed, seen.exact, seen.cap) == (None, True, PARTITIONS)
            oldest = min((line[0] for line in lines if line), default=time.time())
            assert seen.oldest_seconds == pytest.approx(time.time() - oldest, abs=1.0, rel=0.1)
        assert ended > 10
        assert put - ended > 10
        assert (await look(source, "low")).waiting == 0
        await source.close()
        assert cluster.connections() == 0


async def test_the_age_is_that_of_the_oldest_partition(cluster, source) -> None:
    cluster.put(5, partition=0, age_seconds=30.0)
    cluster.put(5, partition=1, age_seconds=90.0)
    assert (await look(source)).oldest_seconds == pytest.approx(90.0, abs=1.0)
    cluster.commit({1: 5})
    assert (await look(source)).oldest_seconds == pytest.approx(30.0, abs=1.0)
    cluster.commit({0: 5})
    assert (await look(source)).oldest_seconds == 0.0


async def test_a_batch_that_is_too_large_hides_its_age_and_nothing_else(
    cluster, source, monkeypatch
) -> None:
    monkeypatch.setattr("penstock.metrics.sources.kafka.connection._MOST_BYTES", 100_000)
    cluster.put(1, partition=0, age_seconds=90.0, size=300_000)
    cluster.put(1, partition=1, age_seconds=30.0)
    for _ in range(3):
        seen = await look(source)
        assert seen.waiting == 2
        assert seen.oldest_seconds == pytest.approx(30.0, abs=1.0)
    cluster.commit({1: 1})
    seen = await look(source)
    assert (seen.waiting, seen.oldest_seconds) == (1, None)


# --- where a group begins -----------------------------------------------------------------------
async def test_a_group_that_never_committed_begins_as_its_consumers_do(cluster) -> None:
    cluster.put(5)
    earliest, latest = Topic(cluster).open(), Topic(cluster).open(auto_offset_reset="latest")
    assert (await look(earliest)).waiting == 5
    assert (await look(latest)).waiting == 0
    cluster.put(2)
    assert (await look(latest)).waiting == 2  # else no consumer would ever be started
    cluster.take(7)
    assert (await look(earliest)).waiting == (await look(latest)).waiting == 0
    await earliest.close()
    await latest.close()


async def test_looking_is_no_member_and_makes_no_topic(cluster, source) -> None:
    """A member that joined would take partitions from the one that is there."""
    cluster.put(8)
    assert len(cluster.take(4)) == 4
    for _ in range(20):
        looks = await source.look(["mail", "none-such"])
    fault = looks["none-such"]
    assert isinstance(fault, SourceFault)
    assert "UnknownTopicOrPartition" in fault.text
    cluster.put(1, partition=0)
    cluster.put(1, partition=3)
    assert len(cluster.take(6)) == 6  # of all partitions, by the same member
    assert (await look(source)).waiting == 0


# --- workers ------------------------------------------------------------------------------------
async def test_a_pool_gets_no_more_workers_than_there_are_partitions(cluster, source) -> None:
    mail = {"source": "shop", "command": ["true"], "runtime_seconds": 1.0, "sla_seconds": 5}
    tree = {
        "sources": {"shop": {"kind": "kafka"}},
        "pools": {"mail": {**mail, "min_workers": 0, "max_workers": 50, "strategy": "deadline"}},
    }
    [pool] = pools(settings_of(tree)).values()
    meter = SourceMeter(pool, 60.0, 1.0)
    targets = []
    for second, come in enumerate((0, 1, 0, 400), start=1):
        cluster.put(come)
        meter.see_source(await source.look(["mail"]), float(second), 1_000_000.0 + second)
        meter.observe(float(second))
        at = datetime.fromtimestamp(1_000_000.0 + second, UTC)
        snapshot = meter.snapshot(float(second), at, {"id": "1", "source": "test"}, "tick")
        assert snapshot is not None
        targets.append(one_round(pool, snapshot).decisions[0].target)
    assert targets[0] == 0
    assert targets[-1] == PARTITIONS


# --- what never ends ----------------------------------------------------------------------------
async def test_a_lag_without_records_is_none(cluster, source) -> None:
    cluster.put(3, partition=0)
    await put_marker(cluster)
    assert (await look(source)).waiting == 4
    cluster.commit({0: 3})  # before the end of a transaction, where consumers stay
    seen = await look(source)
    assert (seen.waiting, seen.oldest_seconds) == (0, 0.0)
    assert (await look(source)).waiting == 0
    cluster.put(2, partition=0, age_seconds=50.0)
    seen = await look(source)
    assert (seen.waiting, seen.ended) == (2, 4)
    assert seen.oldest_seconds == pytest.approx(50.0, abs=1.0)


async def test_a_stuck_partition_asks_for_no_workers(cluster, monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("penstock.metrics.sources.kafka.source.monotonic", lambda: clock[0])
    source = Topic(cluster).open(stuck_seconds=60)
    cluster.put(500, partition=0, age_seconds=3_600.0)
    for handled in range(1, 9):
        cluster.put(1, partition=1)
        cluster.commit({0: 1, 1: handled - 1})
        seen = await look(source)
        clock[0] += 10.0
    assert (seen.waiting, seen.stuck) == (500, 499)
    assert seen.oldest_seconds is not None
    assert seen.oldest_seconds < 60.0
    cluster.commit({0: 2})
    assert (await look(source)).stuck == 0
    await source.close()


# --- clusters that end, topics that are made anew -----------------------------------------------
async def test_a_topic_that_was_made_anew_counts_anew(cluster, source) -> None:
    cluster.put(9)
    cluster.take(4)
    before = await look(source)
    cluster.kill()
    with pytest.raises(SourceAway):
        await source.look(["mail"])
    await source.close()
    cluster.start()
    cluster.put(20)
    after = await look(source)
    assert (after.waiting, after.arrived, after.ended) == (20, 20, 0)
    assert before.epoch != after.epoch
    assert arrivals(before, after, None) is None


async def test_offsets_that_are_put_back_are_no_arrivals(cluster, source) -> None:
    cluster.put(9, partition=0)
    cluster.commit({0: 9})
    before = await look(source)
    cluster.commit({0: 2})
    after = await look(source)
    assert after.waiting == 7
    assert arrivals(before, after, None) is None
