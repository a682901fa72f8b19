"""What joins a host to the broker, and can be cut so that neither side is told."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from tests.chaos.allowed import demand
from tests.integration.partition import Wire

_numbers = itertools.count()


class Link(Protocol):
    url: str
    """Of the broker, as this host sees it."""
    prefix: tuple[str, ...]
    """What a command must begin with to run on this host."""

    def cut(self) -> None: ...
    def heal(self) -> None: ...


class Forwarded(Wire):
    """By a forwarder: data waits while it is cut, and comes late."""

    prefix: tuple[str, ...] = ()


class Cable:
    """A network namespace behind a pair of virtual interfaces: packets are lost while it is cut."""

    def __init__(self, url: str, namespace: str, device: str) -> None:
        self.url = url
        self.prefix: tuple[str, ...] = ("ip", "netns", "exec", namespace)
        self._device = device

    def cut(self) -> None:
        _ip("link", "set", self._device, "down")

    def heal(self) -> None:
        _ip("link", "set", self._device, "up")


class Network:
    """A bridge that the broker listens on, and hosts behind it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._name = f"pk{os.getpid() % 100_000}{next(_numbers) % 10}"
        self._net = f"10.{200 + next(_numbers) % 50}.{os.getpid() % 250}"
        self.address = f"{self._net}.1"
        self._add("link", "add", self._name, "type", "bridge", undo=("link", "del", self._name))
        _ip("addr", "add", f"{self.address}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    def plug(self, number: int, url: str) -> Cable:
        """Host ``number`` from 0."""
        space, device = f"{self._name}n{number}", f"{self._name}v{number}"
        self._add("netns", "add", space, undo=("netns", "del", space))
        _ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", device, "master", self._name, "up")
        _ip("-n", space, "addr", "add", f"{self._net}.{number + 2}/24", "dev", "eth0")
        for inside in ("lo", "eth0"):
            _ip("-n", space, "link", "set", inside, "up")
        return Cable(url, space, device)

    def _add(self, *arguments: str, undo: tuple[str, ...]) -> None:
        _ip(*arguments)
        self._stack.callback(_ip, *undo)


@contextmanager
def network() -> Iterator[Network]:
    """Raises NotAllowed where namespaces and virtual interfaces cannot be made."""
    with ExitStack() as stack:
        yield Network(stack)


def _ip(*arguments: str) -> None:
    demand("ip", *arguments)
