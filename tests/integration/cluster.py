"""Three guarded brokers as one cluster: the shipped `deploy/nats/cluster.conf` on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.integration.guarded import SHIPPED, GuardedBroker
from tests.making import MakeSettings

from penstock.cli.deploy.keys import write
from penstock.config import Settings
from penstock.runtime.broker import Broker
from penstock.runtime.paths import free_port

NAMES = ("nats", "nats-2", "nats-3")


class Node(GuardedBroker):
    """One server of it. ``routes``: the port of each by name."""

    def __init__(self, secrets: Path, name: str, routes: dict[str, int]) -> None:
        Broker.__init__(self, port=free_port())
        self.secrets, self.name, self._routes = secrets, name, routes

    def _config(self) -> str:
        text = SHIPPED.with_name("cluster.conf").read_text("utf-8")
        for shipped, ours in (
            ('include "nats.conf"', super()._config().replace("guarded", self.name)),
            ("port: 6222", f"host: 127.0.0.1\nport: {self._routes[self.name]}"),
            *((f"//{each}:6222", f"//127.0.0.1:{port}") for each, port in self._routes.items()),
            ("/etc/nats/secrets", str(self.secrets / "nats")),
        ):
            assert shipped in text, f"cluster.conf no longer holds {shipped}"
            text = text.replace(shipped, ours)
        return text


class Cluster:
    """Attributes: nodes: by name."""

    def __init__(self, secrets: Path) -> None:
        routes = {name: free_port() for name in NAMES}
        self.nodes = {name: Node(secrets, name, routes) for name in NAMES}
        self.url = ",".join(node.url for node in self.nodes.values())

    def settings(self, make: MakeSettings, role: str, **tables: Any) -> Settings:
        """Of somebody who knows all three, and keeps three copies."""
        node = self.nodes["nats"]
        return node.settings(
            make,
            role,
            nats={"url": self.url, "connect_timeout_seconds": 40},
            streams={"replicas": 3},
            **tables,
        )


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    write(folder / "secrets", "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
    found = Cluster(folder / "secrets")
    with ExitStack() as stack:
        for node in found.nodes.values():
            stack.enter_context(node)
        yield found
