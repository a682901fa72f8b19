"""The audit log: a chain of entries, to which each writer appends by compare-and-set.

Each entry holds the hash of the one before, so that none can be changed, removed or slipped in
without :meth:`AuditLog.verify` finding it. Two writers cannot fork the chain: an entry is stored
only right after the one whose hash it holds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from penstock.bus.protocol import Bus, BusUnavailable, Expect, Outgoing, Stored, WrongSequence
from penstock.events.console import AuditRecorded
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.operations.audit_chain import ChainWalk, Fault, Link

KEPT_DAYS = 400
BLOCK_SIZE = 500
"""Entries that share a subject, by which they are found again."""
LEAST_HEAD = 6
"""Characters of a hash that was noted in short."""
LONGEST_TEXT = 1_000
_MOST_VALUES = 50
_TRIES = 100
_PART = 500
MOST_FAULTS = 100
"""Faults that a check lists."""
_HEADERS = {"Nats-TTL": f"{KEPT_DAYS * 86_400}s"}

T = TypeVar("T")

_decode = msgspec.json.Decoder(AuditRecorded).decode


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of the chain found.

    Attributes:
        entries: that were checked.
        first: number of the oldest entry that is kept; 0 for none.
        last: number of the newest that fits the one before.
        head: hash of that one. Noted elsewhere, it proves later that no entry up to it was
            removed from the end.
        broken_at: number of the first entry that is changed, missing or slipped in; 0 for none.
        broken_sequence: of its message in the stream, which no other bears; of a missing entry,
            that of the message after it; 0 for none.
        problem: how it does not fit.
        fault_count: messages that do not fit, the first one included.
        faults: the oldest hundred of them.
    """

    entries: int = 0
    first: int = 0
    last: int = 0
    head: str = ""
    broken_at: int = 0
    broken_sequence: int = 0
    problem: str = ""
    fault_count: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether each entry fits the one before."""
        return not self.problem


class AuditLog:
    """Writes and reads the audit log.

    Args:
        bus: a connection that may store ``console.audit.*.*``.
        subjects: of the installation.
        source: what the entries name as their origin.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._all = subjects.console("audit", "*", AuditRecorded.__name__)
        self._lock = asyncio.Lock()
        self._end: tuple[int, AuditRecorded | None] | None = None
        self._walked: tuple[int, AuditRecorded] | None = None
        """As far as the chain was followed: sequence of the last message, and the last entry."""

    async def record(
        self,
        actor: str,
        action: str,
        result: str,
        *,
        target: str = "",
        address: str = "",
        request_id: str = "",
        of: int = 0,
        before: Mapping[str, str] | None = None,
        after: Mapping[str, str] | None = None,
        detail: str = "",
    ) -> AuditRecorded:
        """Appends an entry, and returns it as it was stored.

        Raises:
            BusError: it was not stored, or the broker did not say so in time.
        """
        entry = AuditRecorded(
            source=self._source,
            block=0,
            number=0,
            actor=_short(actor),
            action=_short(action),
            result=result,
            target=_short(target),
            address=_short(address),
            request_id=_short(request_id),
            of=of,
            before=_short_values(before or {}),
            after=_short_values(after or {}),
            detail=_short(detail),
        )
        async with self._lock:
            for _ in range(_TRIES):
                sequence, last = self._end or await self._read_end()
                linked = _linked(entry, last)
                try:
                    stored = await self._append(linked, sequence)
                except WrongSequence:
                    self._end = None
                    continue
                except BaseException:
                    self._end = None  # it may have been stored, or not
                    raise
                self._end = self._walked = (stored, linked)
                return linked
        raise BusUnavailable(f"the audit log has {_TRIES} writers that were faster; try again")

    async def entry(self, number: int) -> AuditRecorded | None:
        """An entry by its number; None where there is none, or none any more."""
        block = await self._block(number // BLOCK_SIZE) if number > 0 else []
        return next((entry for entry in block if entry.number == number), None)

    async def newest(
        self,
        limit: int,
        before: int = 0,
        is_wanted: Callable[[AuditRecorded], bool] = lambda _: True,
        most_blocks: int = 40,
    ) -> tuple[list[AuditRecorded], int]:
        """Entries, newest first, and the number from which to go on; 0 where there are no more.

        Args:
            limit: entries at most.
            before: only of lower numbers; 0 for all.
            is_wanted: leaves out others.
            most_blocks: that are read at most.
        """
        _, last = await self._read_end()
        end = last.number + 1 if last else 1
        below = min(before, end) if before else end
        page: list[AuditRecorded] = []
        for block in range((below - 1) // BLOCK_SIZE, -1, -1):
            if most_blocks <= 0:
                return page, below
            most_blocks -= 1
            entries = await self._block(block)
            if not entries:
                return page, 0
            for entry in reversed(entries):
                if entry.number >= below:
                    continue
                below = entry.number
                if is_wanted(entry):
                    page.append(entry)
                    if len(page) == limit:
                        return page, below if below > 1 else 0
        return page, 0

    async def stored(self) -> AsyncIterator[Stored]:
        """All entries that are kept, oldest first, as they lie in the stream."""
        async for message in self._messages(self._all):
            yield message

    async def verify(self, head: str = "") -> Verification:
        """Checks the chain from its oldest entry to its newest.

        Args:
            head: the newest hash of an earlier check, which must still be there: what was removed
                from the end leaves no other trace. Its beginning is enough. Empty: not looked for.

        Raises:
            ValueError: too little of a hash to be one entry's.
        """
        head = head.rstrip("….")
        if head and len(head) < LEAST_HEAD:
            raise ValueError(f"a head has {LEAST_HEAD} characters at least, as it was printed")
        walk, is_there = ChainWalk(), not head
        faults: list[Fault] = []
        count = 0
        async for link, fault in self._walk_all(walk, _link_in):
            is_there = is_there or (link.is_intact and link.hash.startswith(head))
            if fault is not None:
                count += 1
                faults += [fault] if len(faults) < MOST_FAULTS else []
        last = walk.newest.number if walk.newest else 0
        if not is_there:
            problem = "no entry has the hash that was noted: entries are missing at the end"
            count += 1
            faults = [*faults, Fault(number=last + 1, sequence=0, problem=problem)][:MOST_FAULTS]
        return Verification(
            entries=walk.entries,
            first=walk.first,
            last=last,
            head=walk.newest.hash if walk.newest else "",
            broken_at=faults[0].number if faults else 0,
            broken_sequence=faults[0].sequence if faults else 0,
            problem=faults[0].problem if faults else "",
            fault_count=count,
            faults=tuple(faults),
        )

    async def judged(self) -> AsyncIterator[tuple[Stored, Fault | None]]:
        """All messages that are kept, oldest first, each with what is wrong with it."""
        async for message, fault in self._walk_all(ChainWalk(), lambda message: message):
            yield message, fault

    async def _walk_all(
        self, walk: ChainWalk, kept: Callable[[Stored], T]
    ) -> AsyncIterator[tuple[T, Fault | None]]:
        """What is kept of each message, with its fault; a walk judges it some messages later."""
        waiting: deque[T] = deque()
        async for message in self.stored():
            waiting.append(kept(message))
            for fault in walk.add(_link_in(message)):
                yield waiting.popleft(), fault
        for fault in walk.end():
            yield waiting.popleft(), fault

    async def _append(self, entry: AuditRecorded, sequence: int) -> int:
        return await self._bus.append(
            Outgoing(
                self._subjects.console_event(entry),
                encode(entry),
                _HEADERS,
                Expect(sequence, self._all),
            )
        )

    async def _read_end(self) -> tuple[int, AuditRecorded | None]:
        """The sequence of the last message, and the last entry of the chain.

        A key that may write here can store what is no entry, or follows none: the chain goes on
        after the last one that fits, so that no number is given twice.
        """
        last = await self._bus.last(self._subjects.console_stream, self._all)
        if last is None:
            return 0, None
        if self._walked and self._walked[0] < last.sequence:
            later = [one async for one in self._messages(self._all, self._walked[0] + 1)]
            self._walked = _walk(later, self._walked)
        elif not self._walked:
            entry = _read(last)
            recent = await self._recent(entry.number // BLOCK_SIZE) if entry else []
            self._walked = _walk(recent, None)
            if self._walked is None or self._walked[1] != entry:
                self._walked = _walk([one async for one in self.stored()], None)
        return last.sequence, self._walked[1] if self._walked else None

    async def _recent(self, block: int) -> list[Stored]:
        """The messages of a block and of the one before."""
        blocks = (max(0, block - 1), block) if block else (0,)
        return [message for one in blocks async for message in self._messages(self._block_of(one))]

    def _block_of(self, block: int) -> str:
        return self._subjects.console("audit", str(block), AuditRecorded.__name__)

    async def _block(self, block: int) -> list[AuditRecorded]:
        entries = [_read(message) async for message in self._messages(self._block_of(block))]
        return [entry for entry in entries if entry is not None]

    async def _messages(self, pattern: str, start: int = 1) -> AsyncIterator[Stored]:
        while True:
            part = await self._bus.history(self._subjects.console_stream, pattern, _PART, start)
            for message in part:
                yield message
            if not part or part[-1].behind == 0:
                return
            start = part[-1].sequence + 1


def entry_hash(body: bytes) -> str:
    """The hash of an entry, by its stored body: over all its fields but the hash itself.

    Fields of later versions count, too.
    """
    fields = msgspec.json.decode(body, type=dict[str, object])
    fields.pop("hash", None)
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def _linked(entry: AuditRecorded, last: AuditRecorded | None) -> AuditRecorded:
    number = last.number + 1 if last else 1
    linked = msgspec.structs.replace(
        entry, number=number, block=number // BLOCK_SIZE, previous=last.hash if last else ""
    )
    return msgspec.structs.replace(linked, hash=entry_hash(encode(linked)))


def _walk(
    messages: Iterable[Stored], end: tuple[int, AuditRecorded] | None
) -> tuple[int, AuditRecorded] | None:
    """Follows the chain over further messages, of which some may not fit."""
    for message in messages:
        entry = _read(message)
        if entry is not None and _fits(_link(message, entry), _link_of(end[1]) if end else None):
            end = (message.sequence, entry)
        elif end is not None:
            end = (message.sequence, end[1])
    return end


def _fits(link: Link, previous: Link | None) -> bool:
    return link.is_intact and (previous is None or link.follows(previous))


def _link(message: Stored, entry: AuditRecorded) -> Link:
    is_intact = entry_hash(message.body) == entry.hash
    return msgspec.structs.replace(_link_of(entry), sequence=message.sequence, is_intact=is_intact)


def _link_of(entry: AuditRecorded) -> Link:
    return Link(
        sequence=0,
        number=entry.number,
        previous=entry.previous,
        hash=entry.hash,
        is_intact=True,
    )


def _link_in(message: Stored) -> Link:
    """The link that a message is; one that is no entry has the number 0."""
    if (entry := _read(message)) is not None:
        return _link(message, entry)
    sequence = message.sequence
    return Link(sequence=sequence, number=0, previous="", hash="", is_intact=False, is_entry=False)


def _read(message: Stored) -> AuditRecorded | None:
    try:
        return _decode(message.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _short(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _short_values(values: Mapping[str, str]) -> dict[str, str]:
    return {_short(name): _short(value) for name, value in [*values.items()][:_MOST_VALUES]}
