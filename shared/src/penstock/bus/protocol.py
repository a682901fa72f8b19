"""What the platform asks of a broker: one page that NATS and the in-memory bus both fulfil.

`tests/contract/bus_contract.py` runs the same suite against each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from penstock.events.brief import brief, brief_fields

Headers = Mapping[str, str]
FOLLOW_BATCH = 256
"""Messages that come to a follower at a time."""


class BusError(Exception):
    """The broker's part of the error tree.

    ::

        BusError
        ├── WrongSequence      a compare-and-set append lost
        ├── PayloadTooLarge    the message exceeds the limit
        ├── BusUnavailable     no answer in time, or not connected
        │   ├── TooManyBatches the broker has too many atomic batches open; nothing was stored
        │   └── NotLetIn       the broker refuses the credentials
        └── BusRefused         the broker refused: permissions, a missing stream, a full stream
    """


class WrongSequence(BusError):
    """Another writer was first; ``actual`` is the last sequence (0: unknown)."""

    def __init__(self, subject: str, expected: int, actual: int = 0) -> None:
        super().__init__(
            f"{subject}: expected last sequence {expected}, found {actual or 'another'}"
        )
        self.subject, self.expected, self.actual = subject, expected, actual


class PayloadTooLarge(BusError):
    pass


class BusUnavailable(BusError):
    """The broker did not answer in time, or there is no connection to it."""


class TooManyBatches(BusUnavailable):
    pass


class NotLetIn(BusUnavailable):
    """The broker refuses the credentials; it may know them later, when it has read its keys."""


class BusRefused(BusError):
    pass


class StreamFull(BusUnavailable):
    """A stream that refuses what comes when it is full is full, or nearly so."""


class StorageTooSmall(BusRefused):
    """The broker's storage has no room for a stream, which is reserved when it is made."""

    def __init__(self, stream: str, max_bytes: int) -> None:
        setting = "logs.max_bytes" if stream.endswith("_LOGS") else "streams.events_max_bytes"
        super().__init__(
            f"stream {stream} cannot be made: it needs {max_bytes:,} bytes, and the broker's "
            f"storage has less left; lower {setting}, or give the broker more "
            "(a disk with room, jetstream.max_file_store)"
        )


class Expect(msgspec.Struct, frozen=True):
    """A compare-and-set condition: the last message matching ``subject`` has ``sequence``.

    ``subject`` may hold wildcards (all events of one job); empty means the message's own subject.
    Sequence 0 means that there is none yet.
    """

    sequence: int
    subject: str = ""


class Outgoing(msgspec.Struct, frozen=True):
    """A message to be stored."""

    subject: str
    body: bytes
    headers: Headers = {}
    expect: Expect | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields


class Stored(msgspec.Struct, frozen=True):
    """A message as the stream keeps it. ``at`` is the time it was stored, by the broker's clock.

    ``behind``: how many of what was asked for were stored after it then; None where that is not
    known.
    ``compared``: the condition that held when it was stored, by the broker's word: no sender can
    make one up. None: there was none, or it is in doubt, as behind the first of an atomic batch.
    """

    subject: str
    sequence: int
    at: datetime
    body: bytes
    headers: Headers = {}
    behind: int | None = None
    compared: Expect | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much a stream holds.

    Attributes:
        first: sequence of its oldest message, or of the next one where it is empty.
        last: sequence of the latest there ever was; both are 0 before the first.
        max_bytes: what it may hold; 0 for no bound of its own.
        configured_bytes: the same by the settings, which is less while the orchestrator widens it.
    """

    first: int
    last: int
    messages: int
    bytes: int
    max_bytes: int
    configured_bytes: int


class Delivery(msgspec.Struct, frozen=True):
    """A queue message held by this process until its claim lapses.

    Attributes:
        ack_subject: what an answer is published to; also by the executor for a dead worker.
        sequence: in the JOBS stream.
        deliveries: 1 for the first.
        stored_at: POSIX seconds, broker's clock, when the job became available.
        pending: messages of this queue still waiting when this one was delivered.
    """

    subject: str
    body: bytes
    headers: Headers
    ack_subject: str
    sequence: int
    deliveries: int
    stored_at: float
    pending: int

    __repr__ = brief
    __rich_repr__ = brief_fields


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as its consumer sees it.

    Attributes:
        waiting: never delivered, or due for redelivery; claimed: delivered and not answered.
        delivered: count of deliveries since the consumer was made, redeliveries included.
        delivered_sequence: stream sequence of the latest delivery; waiting jobs lie beyond it.
        paused: none is delivered.
        paused_until: when the pause ends by itself; None for one that does not.
    """

    queue: str
    waiting: int
    claimed: int
    delivered: int
    delivered_sequence: int
    redelivered: int = 0
    paused: bool = False
    paused_until: datetime | None = None


class Subscription(Protocol):
    async def unsubscribe(self) -> None: ...


class Puller(Protocol):
    """A standing request for queue messages; owns the pull protocol (no abandoned pulls)."""

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        """Up to ``batch`` deliveries: at once what is there, else wait for the first.

        An empty list after ``wait_seconds``. Cancelling it loses nothing: what arrives later is
        returned by the next fetch or given back by :meth:`close`.
        """
        ...

    async def close(self) -> None:
        """Withdraws the request; whatever was delivered meanwhile is given back at once."""
        ...


class Bus(Protocol):
    """All methods raise :class:`BusUnavailable` when the broker does not answer in time."""

    def now(self) -> float:
        """POSIX seconds by the broker's clock, as far as it is known.

        What is due, expired or late is judged by this one clock: those of hosts differ.
        """
        ...

    @property
    def connected(self) -> bool:
        """Whether the line to the broker stands, as far as is known; may be asked in any thread."""
        ...

    # --- storing ---------------------------------------------------------------------------------
    async def append(self, message: Outgoing) -> int:
        """Stores one message and returns its sequence.

        Raises:
            WrongSequence: its expectation does not hold.
            PayloadTooLarge: body and headers exceed the broker's limit.
        """
        ...

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        """Stores independent messages, pipelined; one answer each, in order. Not atomic."""
        ...

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        """Stores all (at most 1,000, of one stream) or none; returns the last sequence.

        Only the first message may carry an expectation.

        Raises:
            TooManyBatches: the broker keeps 50 open a stream, of all clients together.
        """
        ...

    # --- reading what is stored ------------------------------------------------------------------
    async def last(self, stream: str, subject: str) -> Stored | None:
        """The last message of a subject (wildcards allowed)."""
        ...

    async def last_of(
        self, stream: str, subjects: Sequence[str], before: int = 0
    ) -> dict[str, Stored]:
        """The last message of each of these subjects that has one (no wildcards), by subject.

        In one request for hundreds. Read from any replica, which may lag behind the last append.

        Args:
            before: only messages of lower sequences; 0 for all.
        """
        ...

    async def next(self, stream: str, subject: str, sequence: int) -> Stored | None:
        """The first message of a subject at or after a sequence."""
        ...

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        """The messages of a subject in order, from sequence ``start`` on; fewer of large ones.

        Read from any replica, which may lag behind the last append.
        """
        ...

    async def count(self, stream: str, subject: str) -> dict[str, int]:
        """How many messages each subject holds, of those that match (wildcards allowed).

        A few paged requests, each as large as the subjects are many: not for every second.
        """
        ...

    async def adapt_streams(self, extra_bytes: int = 0) -> None:
        """Has the streams that are there keep what the settings say; the orchestrator does it.

        Those that an earlier version made are changed in place.

        Args:
            extra_bytes: what the event log may hold beyond that, for a while.
        """
        ...

    async def extent(self, stream: str) -> Extent:
        """How much the stream holds now, by the word of its leader."""
        ...

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        """Deletes the messages of a subject; with ``before`` only those of lower sequences.

        In a stream that keeps one message a subject, one that was replaced earlier may be the last
        again after the broker was killed. Use :func:`penstock.bus.records.remove` where that harms.
        """
        ...

    async def remove_each(self, stream: str, bounds: Mapping[str, int]) -> None:
        """As :meth:`remove` for many subjects, each with its ``before``, pipelined.

        Raises:
            BusError: of some, messages may be left.
        """
        ...

    async def remove_message(self, stream: str, sequence: int) -> None:
        """Deletes one message, if it exists."""
        ...

    def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        start: str | int = "new",
        most: int = FOLLOW_BATCH,
    ) -> AsyncIterator[Stored]:
        """Messages as they are stored, without end, in order, through broker restarts.

        Args:
            start: ``new``, ``last`` (the last per subject, then new ones), ``all``, or a sequence.
            most: messages that come at a time, without a pause in which anything else runs.
        """
        ...

    # --- queues ----------------------------------------------------------------------------------
    async def ensure_queue(self, queue: str) -> None:
        """Makes the queue's consumer if it is not there. Idempotent and cheap when it is."""
        ...

    def puller(self, queue: str) -> Puller: ...

    async def pause_queue(self, queue: str, paused: bool, until: datetime | None = None) -> None:
        """Nothing of the queue is delivered to anyone while it is paused. Kept by the broker.

        Args:
            queue: its name.
            paused: False resumes it.
            until: when the broker itself ends the pause; None: it lasts until it is ended.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Done: the message leaves the queue. Sent, not confirmed (a late ack is harmless)."""
        ...

    async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
        """Back to the queue, at once.

        Args:
            delay_seconds: not offered for so long; a few seconds, since it counts as claimed.
        """
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Starts the claim's time anew."""
        ...

    async def depths(self) -> dict[str, QueueDepth]:
        """All queues, in a number of requests that does not grow with each queue."""
        ...

    # --- signals: lossy, nothing may depend on one ------------------------------------------------
    async def signal(self, subject: str, body: bytes = b"") -> None: ...

    async def listen(
        self,
        subject: str,
        handler: Callable[[str, bytes], Awaitable[None] | None],
        at_most: int = 0,
    ) -> Subscription:
        """Calls ``handler(subject, body)`` for each signal; ends after ``at_most`` if positive.

        Stored messages are received too, as they are published.
        """
        ...

    async def close(self) -> None: ...


def broker_time(bus: Bus) -> datetime:
    """Now, by the broker's clock; see :meth:`Bus.now`."""
    return datetime.fromtimestamp(bus.now(), UTC)
