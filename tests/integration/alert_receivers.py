"""A real HTTP receiver and a real SMTP server on loopback, slow and failing by a seed."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

from aiosmtpd.smtp import SMTP, Envelope, Session

SLOW_SECONDS = 0.3
_FAULTS = {"ok": 60, "slow": 10, "refused": 10, "reset": 10, "lost-answer": 10}
"""Share of each in a hundred. ``lost-answer``: it is taken, and the sender does not learn it."""
_MOST_IN_A_ROW = 3
"""Failures of one message, so that none is given up."""
_WORDS = {"firing": "firing", "Firing": "firing", "It was": "resolved", "resolved": "resolved"}


class Entry(NamedTuple):
    """An alert in a message: what became of it, and which host or pool it is about."""

    kind: str
    about: str


class Request(NamedTuple):
    """One attempt as a receiver sees it."""

    channel: str
    id: str
    fault: str
    entries: tuple[Entry, ...]

    @property
    def is_taken(self) -> bool:
        return self.fault in ("ok", "slow", "lost-answer", "held")


class Hold:
    """The next request of a channel is taken, and its answer waits."""

    def __init__(self) -> None:
        self.came, self.released = asyncio.Event(), asyncio.Event()


class Receivers:
    """All receivers of a test: channels ``hook``, ``spare`` and ``dead`` by HTTP, ``mail`` by SMTP.

    Attributes:
        requests: all attempts, in order.
        held: channels whose next request, or present one, waits for its answer.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._failures: Counter[tuple[str, str]] = Counter()
        self._holds: dict[str, Hold] = {}
        self.requests: list[Request] = []
        self.held: set[str] = set()
        self.http_port = self.smtp_port = 0

    def hold(self, channel: str) -> Hold:
        self.held.add(channel)
        return self._holds.setdefault(channel, Hold())

    def _fault(self, channel: str, name: str) -> str:
        if channel in self._holds:
            return "held"
        if channel == "dead":
            return self._random.choice(("refused", "reset"))
        (fault,) = self._random.choices([*_FAULTS], [*_FAULTS.values()])
        if fault not in ("ok", "slow"):
            self._failures[channel, name] += 1
            if self._failures[channel, name] > _MOST_IN_A_ROW:
                return "ok"
        return fault

    async def take(self, channel: str, name: str, entries: tuple[Entry, ...]) -> str:
        """Notes an attempt; returns its fault, when the answer may be given."""
        fault = self._fault(channel, name)
        self.requests.append(Request(channel, name, fault, entries))
        if fault == "held":
            hold = self._holds.pop(channel)
            hold.came.set()
            await hold.released.wait()
            self.held.discard(channel)
        elif fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        return fault

    async def serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            assert headers["idempotency-key"] == body["id"]
            entries = tuple(
                Entry(_WORDS[one["kind"]], next(iter(one["labels"].values())))
                for one in body["alerts"]
            )
            fault = await self.take(head[0].split()[1].strip("/"), body["id"], entries)
            if fault in ("ok", "slow", "held"):
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            elif fault == "refused":
                writer.write(b"HTTP/1.1 500 No\r\n\r\n")
            else:
                writer.transport.abort()
        except asyncio.IncompleteReadError:
            pass  # the sender was killed
        finally:
            writer.close()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Called by the SMTP server for each mail."""
        mail = email.message_from_bytes(bytes(envelope.content or b""), policy=email.policy.default)
        part = mail.get_body(("plain",))
        text = part.get_content().replace("\r\n", "\n") if part else ""
        entries = tuple(
            Entry(_WORDS[word], host)
            for word, host in re.findall(r"(Firing|It was)(?: \(\w+\))?: Host (\w+) is", text)
        )
        (name,) = re.findall(r"^Message ([0-9a-f]{32})$", text, re.MULTILINE)
        fault = await self.take("mail", name, entries)
        if fault in ("reset", "lost-answer") and server.transport is not None:
            server.transport.abort()
        return "451 later" if fault == "refused" else "250 OK"


@asynccontextmanager
async def receivers(seed: int) -> AsyncIterator[Receivers]:
    made = Receivers(seed)
    http = await asyncio.start_server(made.serve_http, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    smtp = await loop.create_server(lambda: SMTP(made), "127.0.0.1", 0)
    made.http_port = http.sockets[0].getsockname()[1]
    made.smtp_port = smtp.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        http.close()
        smtp.close()


def check_exact(
    channel: str, requests: list[Request], expected: Counter[Entry], kills: int
) -> None:
    """What a receiver that drops repetitions by their id has is what was to be sent, no more.

    A message comes again only where its answer was lost, or a leader was killed before it stored
    that it had sent it: that is one message a kill.
    """
    taken = [one for one in requests if one.channel == channel and one.is_taken]
    messages = {one.id: one.entries for one in taken}
    assert Counter(entry for entries in messages.values() for entry in entries) == expected
    for one in taken:
        assert one.entries == messages[one.id]
    unanswered = Counter(one.id for one in taken if one.fault in ("lost-answer", "held"))
    copies = Counter(one.id for one in taken)
    repeated = sum(max(0, count - 1 - unanswered[name]) for name, count in copies.items())
    assert repeated <= kills
    state: dict[str, str] = {}
    for entries in messages.values():
        for kind, about in entries:
            assert kind == ("firing" if state.get(about, "resolved") == "resolved" else "resolved")
            state[about] = kind
