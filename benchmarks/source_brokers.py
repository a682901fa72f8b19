"""The broker of `sources.py`'s messages: a Redis or a RabbitMQ of its own, or one that runs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import kombu
import msgspec

from peer_parts import redis_server
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.paths import LOOPBACK, free_port

QUEUE = "bench"
BROKERS = ("redis", "rabbitmq")
_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Not the one on the path, which changes to the system's user."""
_NAMES = "epmd"
_START_SECONDS = 120.0
STATISTICS_SECONDS = 1
"""Between two figures of RabbitMQ; 5 by default, as old as a quarter of the promise."""


class Addresses(msgspec.Struct, frozen=True):
    """Of a broker: for its clients, and where Penstock looks at it."""

    url: str
    look_url: str

    @property
    def amqp_url(self) -> str:
        """Of RabbitMQ, without its password."""
        user, at, rest = self.url.partition("@")
        return f"{user.rpartition(':')[0]}{at}{rest}"


class Started(msgspec.Struct, frozen=True):
    """A broker; ``end`` is a command that ends what it leaves behind."""

    child: Child
    addresses: Addresses
    end: Sequence[str] = ()


@contextmanager
def message_broker(kind: str, url: str, cache: Path, folder: Path) -> Iterator[Addresses]:
    """The addresses of an empty broker.

    Args:
        kind: one of ``BROKERS``.
        url: of a running one, whose queue is emptied; empty to start one.
        cache: of programs.
        folder: for its files.
    """
    if url:
        with kombu.Connection(url) as connection:
            connection.SimpleQueue(QUEUE).clear()
        yield Addresses(url, url if kind == "redis" else _management(url))
        return
    starts = _redis if kind == "redis" else _rabbitmq
    started = starts(cache, folder)
    try:
        yield started.addresses
    finally:
        started.child.end(20.0)
        if started.end:
            subprocess.run(started.end, check=False, capture_output=True)


def _redis(cache: Path, folder: Path) -> Started:
    server, env = redis_server(cache)
    port, log = free_port(), folder / "redis.log"
    where = ["--bind", LOOPBACK, "--port", str(port), "--dir", str(folder)]
    memory = ["--save", "", "--appendonly", "no"]
    child = children.start([str(server), *where, *memory], name="redis", log=log, env=env)
    children.wait_until(
        child, lambda: "Ready to accept" in log.read_text("utf-8"), _START_SECONDS, "ready"
    )
    url = f"redis://{LOOPBACK}:{port}/0"
    return Started(child, Addresses(url, url))


def _rabbitmq(_: Path, folder: Path) -> Started:
    """Alone: a name server of Erlang's own, the management API, all files in the folder."""
    port, management, names = free_port(), free_port(), free_port()
    config, plugins = folder / "rabbitmq.conf", folder / "plugins"
    config.write_text(
        f"listeners.tcp.default = {LOOPBACK}:{port}\n"
        f"management.tcp.ip = {LOOPBACK}\nmanagement.tcp.port = {management}\n"
        f"collect_statistics_interval = {STATISTICS_SECONDS * 1000}\n",
        "utf-8",
    )
    plugins.write_text("[rabbitmq_management].\n", "utf-8")
    env = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": LOOPBACK,
    }
    child = children.start([_RABBITMQ], name="rabbitmq", log=folder / "rabbitmq.log", env=env)
    children.wait_until(child, lambda: _answers(port), _START_SECONDS, "ready")
    end = [_NAMES, "-port", str(names), "-kill"]  # a daemon, which would stay
    url = f"amqp://guest:guest@{LOOPBACK}:{port}/%2F"
    return Started(child, Addresses(url, _management(url, management)), end)


def _management(url: str, port: int = 15672) -> str:
    address = urlsplit(url)
    return f"http://{address.username or 'guest'}@{address.hostname}:{port}"


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0) as asked:
        asked.settimeout(1.0)
        asked.sendall(b"AMQP\x00\x00\x09\x01")
        return bool(asked.recv(1))
    return False


@contextmanager
def queue_length(url: str) -> Iterator[Callable[[], int]]:
    """Reads what KEDA's scalers for Redis lists and for RabbitMQ by AMQP do: what waits."""
    with kombu.Connection(url) as connection:
        channel = connection.channel()
        if url.startswith("redis"):
            yield lambda: int(channel.client.llen(QUEUE))
            return
        kombu.Queue(QUEUE, kombu.Exchange(QUEUE), routing_key=QUEUE, channel=channel).declare()
        yield lambda: int(channel.queue_declare(QUEUE, passive=True).message_count)
