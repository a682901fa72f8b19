"""One queue between two looks: what arrived, and how long its first waiting job has waited."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from penstock.events.snapshot import WaitingJob
from penstock.metrics.core.line import Line


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker reported of a queue at ``at`` (seconds of a steady clock).

    Attributes:
        waiting: never delivered.
        claimed: delivered and not answered.
        delivered: deliveries so far, redeliveries included.
        redelivered: redeliveries of the claimed ones.
        delivered_sequence: waiting jobs are stored beyond it.
        paused: none is delivered, and so none is counted as waiting.
    """

    at: float
    waiting: int
    claimed: int
    delivered: int
    delivered_sequence: int
    redelivered: int = 0
    paused: bool = False


class Head(msgspec.Struct, frozen=True):
    """The first waiting job as it was looked up at ``at``, beyond sequence ``after``.

    ``stored_at`` is POSIX seconds by the broker's clock; None when no job was left there. ``job``
    is its id, empty where the message has none.
    """

    at: float
    after: int
    stored_at: float | None
    job: str = ""


def arrived(before: Look, after: Look) -> int | None:
    """Jobs that came between two looks; None when they cannot be compared.

    Growth of (waiting + delivered), less the redeliveries: the broker's ``redelivered`` is a gauge
    that falls again as those jobs are answered, so only its rises count. A consumer made anew or a
    broker that lost its latest deliveries counts from lower than before: not comparable. Jobs that
    were taken out unstarted (cancelled, purged) can hide arrivals, and never make them negative.
    What comes to a paused queue is no arrival.
    """
    if after.delivered < before.delivered or after.paused != before.paused:
        return None
    redelivered = max(after.redelivered - before.redelivered, 0)
    growth = after.waiting - before.waiting + after.delivered - before.delivered - redelivered
    return growth if growth >= 0 else None


class Queue:
    """A queue's latest look, and the head of its line.

    Attributes:
        look: None before the first.
        before: the look before it.
        delayed: jobs scheduled for later, None until counted.
        line: what is known of the waiting jobs behind the first.

    Args:
        patience_seconds: while no job is older, it does not matter how old the others are.
        line_seconds: least time between two look-ups of the line.
    """

    __slots__ = (
        "before",
        "delayed",
        "head",
        "line",
        "line_seconds",
        "look",
        "name",
        "patience_seconds",
    )

    def __init__(self, name: str, patience_seconds: float = inf, line_seconds: float = 1.0) -> None:
        self.name = name
        self.patience_seconds, self.line_seconds = patience_seconds, line_seconds
        self.line = Line()
        self.look: Look | None = None
        self.before: Look | None = None
        self.head: Head | None = None
        self.delayed: int | None = None

    def see(self, look: Look) -> None:
        taken_out = self.look is not None and (
            look.delivered_sequence == self.look.delivered_sequence
            and look.waiting < self.look.waiting
        )
        # Fewer wait though none was delivered: jobs were cancelled or purged, perhaps the head.
        if taken_out or not look.waiting:
            self.head = None
        self.before, self.look = self.look, look
        self.line.see(look.waiting, look.delivered_sequence, self.arrived)

    @property
    def arrived(self) -> int | None:
        """Jobs that came between the last two looks, None when unknown."""
        return arrived(self.before, self.look) if self.before and self.look else None

    @property
    def counts_claims(self) -> bool:
        """The claimed jobs are known: of our own queues always."""
        return True

    @property
    def is_idle(self) -> bool:
        """Nothing waits, nothing runs, nothing came."""
        look = self.look
        return look is not None and not (look.waiting or look.claimed or self.arrived)

    @property
    def wants_head(self) -> bool:
        """Its first waiting job is not known, or was delivered since."""
        look, head = self.look, self.head
        if look is None or not look.waiting:
            return False
        return head is None or head.after != look.delivered_sequence or head.stored_at is None

    def wants_line(self, now: float, wall_now: float) -> bool:
        """Its jobs are old enough, and were not looked up just now."""
        if self.look is None or self.look.waiting < 2:
            return False
        looked_up_at, oldest = self.line.looked_up_at, self.oldest_seconds(wall_now)
        rested = looked_up_at is None or now - looked_up_at >= self.line_seconds
        return rested and oldest is not None and oldest >= self.patience_seconds

    def ages(self, wall_now: float) -> tuple[int, tuple[tuple[int, float], ...]]:
        """How many wait, and (place, age) of those that are known; see `Line.ages`."""
        waiting = self.look.waiting if self.look else 0
        return waiting, self.line.ages(waiting, self.oldest_seconds(wall_now), wall_now)

    def jobs(self, wall_now: float) -> Iterator[WaitingJob]:
        """Those of the waiting jobs that were looked up."""
        head = self.head
        if head is not None and head.job and head.stored_at is not None and not self.wants_head:
            yield WaitingJob(head.job, max(wall_now - head.stored_at, 0.0))
        for spot in self.line.spots:
            if spot.job and (head is None or spot.job != head.job):
                yield WaitingJob(spot.job, max(wall_now - spot.stored_at, 0.0))

    def oldest_seconds(self, wall_now: float) -> float | None:
        """Age of the oldest waiting job; 0 when none waits, None when unknown.

        Of a head that was delivered since, the age still stands as an upper bound; the age of that
        measurement is :meth:`head_age_seconds`.
        """
        look, head = self.look, self.head
        if look is None:
            return None
        if not look.waiting:
            return 0.0
        if head is None:
            return None
        if head.stored_at is None:
            # Picked up between look and look-up: none waited then. A later look contradicts it.
            return 0.0 if head.at >= look.at else None
        return max(wall_now - head.stored_at, 0.0)

    def head_age_seconds(self, now: float) -> float:
        """How old the look-up of the head is, where it moved and was not asked for again."""
        if self.head is None or not self.wants_head:
            return 0.0
        return now - self.head.at
