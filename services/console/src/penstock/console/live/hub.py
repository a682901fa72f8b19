"""Topics that pages listen to: each is rendered once for all its listeners, at most each 100 ms."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

from penstock.runtime.service import Service

log = logging.getLogger("penstock.console")

PACE_SECONDS = 0.1
SLOW_PACE_SECONDS = 1.0
"""While the console is behind."""
HEARTBEAT_SECONDS = 15.0
STATE_SECONDS = 1.0
MOST_WAITING = 64
"""Messages that a slow client may have waiting; then its page is loaded anew."""
MOST_CLIENTS = 500

Render = Callable[[], Awaitable[str]]
"""The topic's present content as HTML fragments; empty for nothing to send."""


class TooManyClients(Exception):
    """So many pages are open that no further one is sent changes."""


class Hub:
    """Sends what changed to the pages that are open.

    A topic is made of sources (``log``, ``pools``, …). When a source changes, each of its topics
    that has a listener is rendered, and all listeners are sent the same bytes.

    Attributes:
        pace_seconds: between two renderings.
    """

    def __init__(self) -> None:
        self._topics: dict[str, tuple[frozenset[str], Render]] = {}
        self._state: Callable[[], str] = lambda: "{}"
        self._clients: set[_Client] = set()
        self._changed: set[str] = set()
        self._woken = asyncio.Event()
        self._last: dict[str, bytes] = {}
        self.pace_seconds = PACE_SECONDS

    def topic(self, name: str, sources: Collection[str], render: Render) -> None:
        """Declares a topic, rendered anew when one of its sources has changed."""
        self._topics[name] = (frozenset(sources), render)

    def state(self, render: Callable[[], str]) -> None:
        """Declares what every page is sent each second: how current it is, as JSON."""
        self._state = render

    @property
    def topics(self) -> Collection[str]:
        """Names that a page can listen to."""
        return self._topics.keys()

    @property
    def clients(self) -> int:
        """Pages that are connected."""
        return len(self._clients)

    def changed(self, source: str) -> None:
        """Notes that a source has changed; its topics are rendered soon."""
        if self._clients:
            self._changed.add(source)
            self._woken.set()

    async def messages(
        self,
        topics: Collection[str],
        is_admitted: Callable[[], bool] = lambda: True,
        leave: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[bytes]:
        """A client's stream of server-sent events, until it goes away.

        Args:
            topics: that it listens to.
            is_admitted: whether it may still read; asked before each message, of which there is one
                a second at least.
            leave: called at its end.

        Raises:
            TooManyClients: too many are connected.
        """
        with _ending(leave), self._connected(topics) as client:
            yield b"retry: 1000\n\n"
            yield self._state_message()
            while is_admitted():
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await client.has_message.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if is_admitted():
                    for message in client.take():
                        yield message

    async def run(self, service: Service) -> None:
        """Renders and sends until the service stops."""
        service.spawn(self._send_state(service), "live state")
        while not service.stopping.is_set():
            await self._woken.wait()
            self._woken.clear()
            changed, self._changed = self._changed, set()
            await self._send(changed)
            await service.pause(self.pace_seconds)

    async def _send(self, changed: Collection[str]) -> None:
        wanted = {topic for client in self._clients for topic in client.topics}
        for name in sorted(wanted):
            sources, render = self._topics[name]
            if sources.isdisjoint(changed):
                continue
            try:
                fragments = (await render()).encode()
            except Exception:
                log.exception("the topic %s cannot be rendered", name)
                continue
            if fragments and self._last.get(name) != fragments:
                self._last[name] = fragments
                message = _event(fragments)
                for client in self._clients:
                    if name in client.topics:
                        client.send(message)

    async def _send_state(self, service: Service) -> None:
        while await service.pause(STATE_SECONDS):
            message = self._state_message()
            for client in self._clients:
                client.send(message)

    def _state_message(self) -> bytes:
        return _event(self._state().encode(), "state")

    @contextmanager
    def _connected(self, topics: Collection[str]) -> Iterator[_Client]:
        if len(self._clients) >= MOST_CLIENTS:
            raise TooManyClients
        client = _Client(frozenset(topics))
        self._clients.add(client)
        for topic in client.topics:
            self._last.pop(topic, None)  # what changed since its page was rendered is not known
            self._changed |= self._topics[topic][0]
        self._woken.set()
        try:
            yield client
        finally:
            self._clients.discard(client)


@contextmanager
def _ending(leave: Callable[[], None]) -> Iterator[None]:
    """Calls ``leave`` at its end."""
    try:
        yield
    finally:
        leave()


class _Client:
    """One open page."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.has_message = asyncio.Event()
        self._waiting: deque[bytes] = deque()

    def send(self, message: bytes) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            message = _event(b"{}", "resync")
        self._waiting.append(message)
        self.has_message.set()

    def take(self) -> list[bytes]:
        messages = list(self._waiting)
        self._waiting.clear()
        self.has_message.clear()
        return messages


def _event(data: bytes, name: str = "") -> bytes:
    """A server-sent event; one without a name is swapped into the page."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"".join(b"data: " + line + b"\n" for line in data.splitlines()) + b"\n"
