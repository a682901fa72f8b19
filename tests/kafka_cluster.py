"""A Kafka cluster of a test's own: librdkafka's mock brokers, in a process that can be killed.

That process also holds the producer and the consumers, so that all connections of the test's own
process to the brokers are of what is tested. Each topic has four partitions.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

_START_SECONDS = 60.0
_ROOT = Path(__file__).parents[1]


class KafkaCluster:
    """The brokers get other ports at each start; ``url`` leads to one of them and stays.

    Attributes:
        url: to begin with.
        ports: of the brokers.
    """

    def __init__(self, brokers: int, topics: tuple[str, ...]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"kafka://127.0.0.1:{self.port}"
        self._arguments = [str(self.port), str(brokers), *topics]
        self._process: subprocess.Popen[str] | None = None
        self.ports: list[int] = []

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka_cluster", *self._arguments],
            cwd=_ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.ports = self._answer()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def put(self, count: int, **where: Any) -> None:
        """Messages come; see `_Clients.put`."""
        self._ask({"act": "put", "count": count, **where})

    def take(self, count: int, **where: Any) -> list[list[int]]:
        """A member of the group gets messages and commits each: (partition, offset)."""
        taken: list[list[int]] = self._ask({"act": "take", "count": count, **where})
        return taken

    def commit(self, offsets: Mapping[int, int], topic: str = "mail") -> None:
        """The group's offsets are set, by partition."""
        self._ask({"act": "commit", "topic": topic, "offsets": list(offsets.items())})

    def connections(self) -> int:
        """Connections of this process to brokers."""
        ports = {self.port, *self.ports}
        return sum(
            bool(one.raddr) and one.raddr.port in ports and one.status == "ESTABLISHED"
            for one in psutil.Process().net_connections("tcp")
        )

    def _ask(self, order: Mapping[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the cluster's process ended"
        return json.loads(line)


@contextmanager
def kafka_cluster(*topics: str, brokers: int = 1) -> Iterator[KafkaCluster]:
    """Skips where confluent-kafka is not installed."""
    pytest.importorskip("confluent_kafka")
    cluster = KafkaCluster(brokers, topics or ("mail",))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


# --- the process of the cluster -----------------------------------------------------------------
class _Clients:
    """Producer and consumers of a mock cluster."""

    def __init__(self, brokers: int) -> None:
        import confluent_kafka as kafka

        self._kafka = kafka
        self._mock = kafka.Producer(
            {"test.mock.num.brokers": brokers, "bootstrap.servers": "mock", "log_level": 0}
        )
        found = self._mock.list_topics(timeout=_START_SECONDS).brokers.values()
        self.ports = [broker.port for broker in found]
        self._servers = f"127.0.0.1:{self.ports[0]}"
        self._producer = kafka.Producer({"bootstrap.servers": self._servers, "linger.ms": 5})
        self._consumers: dict[str, Any] = {}

    def make(self, topic: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            made = self._producer.list_topics(topic, timeout=_START_SECONDS).topics[topic]
            if made.error is None and made.partitions:
                return
            time.sleep(0.01)
        raise TimeoutError(topic)

    def put(
        self,
        count: int,
        topic: str = "mail",
        partition: int = -1,
        age_seconds: float = 0.0,
        size: int = 4,
    ) -> None:
        first_ms = int((time.time() - age_seconds) * 1000)
        place = {} if partition < 0 else {"partition": partition}
        for nth in range(count):
            self._producer.produce(topic, b"x" * size, timestamp=first_ms + nth, **place)
        assert not self._producer.flush(_START_SECONDS)

    def take(self, count: int, topic: str = "mail") -> list[list[int]]:
        consumer = self._consumers.get(topic) or self._join(topic)
        taken = []
        while len(taken) < count:
            message = consumer.poll(_START_SECONDS)
            assert message is not None, "no message came"
            if message.error() is None:
                consumer.commit(message, asynchronous=False)
                taken.append([message.partition(), message.offset()])
        return taken

    def commit(self, topic: str, offsets: list[list[int]]) -> None:
        places = [self._kafka.TopicPartition(topic, nth, offset) for nth, offset in offsets]
        consumer = self._kafka.Consumer(self._settings())
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def _join(self, topic: str) -> Any:
        consumer = self._consumers[topic] = self._kafka.Consumer(self._settings())
        consumer.subscribe([topic])
        return consumer

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._servers, "group.id": "workers",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }  # fmt: skip


def _forward(listener: socket.socket, port: int) -> None:
    """Leads each connection to the first broker."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(65_536):
                target.sendall(part)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    while True:
        client, _ = listener.accept()
        broker = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, broker), (broker, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


def main(port: int, brokers: int, *topics: str) -> None:
    clients = _Clients(brokers)
    for topic in topics:
        clients.make(topic)
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=_forward, args=(listener, clients.ports[0]), daemon=True).start()
    _reply(clients.ports)
    for line in sys.stdin:
        order = json.loads(line)
        _reply(getattr(clients, order.pop("act"))(**order))


def _reply(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
