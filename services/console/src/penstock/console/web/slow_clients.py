"""Connections that are slow, or ask without reading, are closed: uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_SECONDS = 20.0
"""Within which a request has to be there whole, from its connection or the answer before it."""
ANSWER_SECONDS = 20.0
"""Within which a client has to take some of what waits for it."""
MOST_PIPELINED = 16
"""Requests that a connection may have waiting behind the one that is answered."""
MOST_CONNECTIONS = 2_000
_LOOK_SECONDS = 1.0


class _TooManyRequests(Exception):
    """Ends the parsing of what a connection sent."""


class ImpatientProtocol(HttpToolsProtocol):
    """Closes a connection on which a request has begun, or none yet, for too long.

    A request that is there whole, such as that of an open page's stream of changes, takes as long
    as it likes. Between requests ``timeout_keep_alive`` counts. A client that takes nothing of its
    answers, or sends further requests without waiting for them, is cut off; where there are too
    many connections, one that waits for nothing makes room, of the address that has most.
    """

    _looking: asyncio.TimerHandle | None = None
    _waits_since: float | None = None
    _unread_bytes = 0
    _taken_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self._taken_at = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self.pipeline.clear()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self.transport.abort()
            raise _TooManyRequests
        if self._waits_since is None:
            self._waits_since = self.loop.time()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._waits_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _look(self) -> None:
        now = self.loop.time()
        unread_bytes = self.transport.get_write_buffer_size()
        if not unread_bytes or unread_bytes < self._unread_bytes:
            self._taken_at = now
        self._unread_bytes = unread_bytes
        is_slow = self._waits_since is not None and now - self._waits_since > REQUEST_SECONDS
        if is_slow or now - self._taken_at > ANSWER_SECONDS:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)

    def _make_room(self) -> None:
        """Ends the connection that is without use for longest, of the address that has most."""
        others = [cast(ImpatientProtocol, one) for one in self.connections if one is not self]
        useless = [one for one in others if one._is_useless]
        if useless:
            held = Counter(one._address for one in others)
            chosen = max(useless, key=lambda one: (held[one._address], -one._taken_at))
            self.connections.discard(chosen)
            chosen.transport.abort()

    @property
    def _is_useless(self) -> bool:
        """Whether no answer is on its way that the client takes."""
        is_idle = self.cycle is None or self.cycle.response_complete
        return is_idle or bool(self._unread_bytes)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""
