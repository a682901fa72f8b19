"""A work queue in memory: who holds which message, until when, and what waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock.bus.protocol import Delivery, QueueDepth
from penstock.testing.memory.streams import Stream

NEVER = float("inf")
"""A time that does not come."""


@dataclass
class _Claim:
    deliveries: int
    lapses_at: float


class Queue:
    """The one consumer of a queue.

    Args:
        stream: where its messages lie; those that are there already wait in order.
        claim_seconds: a message that is not answered this long is delivered again.
    """

    def __init__(self, stream: Stream, name: str, subject: str, claim_seconds: float) -> None:
        self.name, self._stream, self._claim_seconds = name, stream, claim_seconds
        self._new = deque(
            stored.sequence for stored in stream.history(subject, len(stream.messages))
        )
        self._given_back: deque[int] = deque()
        self._claims: dict[int, _Claim] = {}
        self._delivered = self._delivered_sequence = 0
        self.paused = False
        self.paused_until: datetime | None = None

    def offer(self, sequence: int) -> None:
        self._new.append(sequence)

    def take(self, batch: int, now: float) -> list[Delivery]:
        """Up to ``batch`` messages, those due again first."""
        taken: list[Delivery] = []
        while not self.paused and len(taken) < batch and (self._given_back or self._new):
            sequence = (self._given_back or self._new).popleft()
            if sequence in self._stream.messages:
                taken.append(self._deliver(sequence, now))
        return taken

    def _deliver(self, sequence: int, now: float) -> Delivery:
        before = self._claims.get(sequence)
        deliveries = before.deliveries + 1 if before else 1
        self._claims[sequence] = _Claim(deliveries, now + self._claim_seconds)
        self._delivered += 1
        self._delivered_sequence = max(self._delivered_sequence, sequence)
        stored, pending = self._stream.messages[sequence], len(self._new)
        at = int(stored.at.timestamp() * 1e9)
        place = f"$JS.ACK.{self._stream.name}.{self.name}"
        return Delivery(
            subject=stored.subject,
            body=stored.body,
            headers=stored.headers,
            ack_subject=f"{place}.{deliveries}.{sequence}.{self._delivered}.{at}.{pending}",
            sequence=sequence,
            deliveries=deliveries,
            stored_at=stored.at.timestamp(),
            pending=pending,
        )

    def ack(self, sequence: int) -> None:
        """Ends the message, for any caller: acknowledgements are not fenced (as on NATS)."""
        if self._claims.pop(sequence, None):
            self._stream.drop(sequence)
            if sequence in self._given_back:
                self._given_back.remove(sequence)

    def give_back(self, sequence: int) -> None:
        if sequence in self._claims and sequence not in self._given_back:
            self._claims[sequence].lapses_at = NEVER
            self._given_back.append(sequence)

    def hold_back(self, sequence: int, until: float) -> float:
        """Gives it back then; returns when."""
        if sequence in self._claims and sequence not in self._given_back:
            self._claims[sequence].lapses_at = until
        return until

    def extend(self, sequence: int, now: float) -> float:
        """When the claim lapses now."""
        claim = self._claims.get(sequence)
        if claim and sequence not in self._given_back:
            claim.lapses_at = now + self._claim_seconds
        return now + self._claim_seconds

    def lapse(self, now: float) -> bool:
        """Puts what was not answered in time back in line, ends a pause; whether it did either."""
        resumes = self.paused_until is not None and self.paused_until.timestamp() <= now
        if resumes:
            self.paused, self.paused_until = False, None
        lapsed = [number for number, claim in self._claims.items() if claim.lapses_at <= now]
        for sequence in lapsed:
            self.give_back(sequence)
        return resumes or bool(lapsed)

    def next_lapse(self) -> float:
        """When the first claim lapses, or the pause ends."""
        resumes_at = self.paused_until.timestamp() if self.paused_until else NEVER
        return min(resumes_at, *(claim.lapses_at for claim in self._claims.values()), NEVER)

    def forget(self, removed: Iterable[int]) -> None:
        """Messages that were removed from the stream."""
        lost = set(removed)
        self._new = deque(sequence for sequence in self._new if sequence not in lost)
        self._given_back = deque(sequence for sequence in self._given_back if sequence not in lost)
        for sequence in lost:
            self._claims.pop(sequence, None)

    @property
    def waiting(self) -> int:
        """Messages that may be taken."""
        return len(self._new) + len(self._given_back)

    def depth(self) -> QueueDepth:
        return QueueDepth(
            queue=self.name.removeprefix("q_"),
            waiting=self.waiting,
            claimed=len(self._claims) - len(self._given_back),
            delivered=self._delivered,
            delivered_sequence=self._delivered_sequence,
            paused=self.paused,
            paused_until=self.paused_until,
            redelivered=sum(claim.deliveries > 1 for claim in self._claims.values()),
        )


def place_of(ack_subject: str) -> tuple[str, int]:
    """Consumer and stream sequence of an ack subject."""
    parts = ack_subject.split(".")
    return parts[-6], int(parts[-4])
