"""Which workflows wait for long, stored at the broker: no restart has to read back to them.

Stored is only who waits, in shards by a hash of the id. What each waits for is read from its own
events, once something comes for it; so what is stored may be older than the log without harm, and
two orchestrators may store it. What must hold is that each workflow is in a stored shard, or that
its last event lies behind the stored position. Therefore shards are stored before the position, and
a workflow leaves its shard only after it has another event; and a process that begins to store
first stores a position that holds without any shard.
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections import deque
from collections.abc import Iterable

import msgspec

from penstock.bus.protocol import Bus, BusError, Outgoing, PayloadTooLarge, Stored
from penstock.events.subjects import Subjects
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows

log = logging.getLogger("penstock.orchestrator")

_SHARDS = 256
_LONG_SECONDS = 60.0
_FEW = 1_000
_KEEP_SECONDS, _KEEP_MANY_SECONDS = 5.0, 30.0
"""Looking through a hundred thousand takes 0.1 s."""
_ANOTHERS = -1
"""In place of the print of a shard that an earlier process stored."""
_MOST_UNSETTLED = 1_000
_SMALL_BYTES = 1_000
_SPREAD_SECONDS = 3_600
"""Within which restored ones are compared with the log, though nothing came for them."""


class WaitingWorkflow(msgspec.Struct, frozen=True, array_like=True):
    """One that waits.

    Attributes:
        sequence: of its last event.
        number: of its last advance.
        function: its place among those of the shard.
        ends_by: POSIX seconds at which it takes longer than it may; 0: it may wait without end.
        size: of what it waits for, in bytes, roughly; 0 where that is little, or not known.
    """

    id: str
    sequence: int
    number: int
    function: int
    is_paused: bool
    ends_by: float = 0.0
    size: int = 0


class Shard(msgspec.Struct, frozen=True, array_like=True):
    """Some of them, as they are stored."""

    functions: tuple[str, ...]
    workflows: tuple[WaitingWorkflow, ...]


class _Reached(msgspec.Struct, frozen=True):
    """How far the log was read.

    Attributes:
        sequence: where a restart reads on.
        unsettled: those in shards that were about to be woken.
    """

    sequence: int = 1
    unsettled: tuple[str, ...] = ()


class LongWaits:
    """Stores them, and restores them into a process that begins.

    Args:
        long_seconds: how long a workflow has waited that is stored.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        suspended: SuspendedWorkflows,
        long_seconds: float = _LONG_SECONDS,
    ) -> None:
        self._bus, self._subjects, self._suspended = bus, subjects, suspended
        self._stream = subjects.state_stream
        self._cursor = subjects.state("cursor", "suspended")
        self._long_seconds = long_seconds
        self._stored: dict[int, int] = {}
        self._positions: deque[tuple[float, int]] = deque()
        self._horizon = 0
        self._next = 0.0
        self._leads = False
        self._reached = _Reached(0)

    async def load(self) -> None:
        """Restores what was stored. Raises BusError."""
        reached = _reached(await self._bus.last(self._stream, self._cursor))
        for subject in await self._bus.count(self._stream, self._subjects.state("suspended", "*")):
            stored = await self._bus.last(self._stream, subject)
            shard = _shard(stored) if stored else None
            if shard is None:  # the log has it all
                reached = _Reached()
                continue
            if shard.workflows:
                self._stored[int(subject.rpartition(".")[2])] = _ANOTHERS
            for one in shard.workflows:
                self._restore(one, shard.functions)
        self._horizon = reached.sequence - 1
        self._suspended.resume(reached.sequence)
        self._suspended.compare(reached.unsettled)

    def _restore(self, one: WaitingWorkflow, functions: tuple[str, ...]) -> None:
        in_seconds = self._long_seconds + zlib.crc32(one.id.encode()) % _SPREAD_SECONDS
        workflow = SuspendedWorkflow(one.sequence, one.number, self._bus.now() + in_seconds)
        workflow.is_unread, workflow.is_paused = True, one.is_paused
        workflow.ends_by, workflow.unread_bytes = one.ends_by or math.inf, one.size
        function = functions[one.function] if one.function < len(functions) else ""
        self._suspended.restore(one.id, workflow, function)

    async def keep(self, *, leads: bool, at_once: bool = False) -> None:
        """Stores what changed, every few seconds. Raises BusError.

        Args:
            leads: whether it is this process that stores; others only note how far they have read.
            at_once: without waiting for these seconds.
        """
        now = time.monotonic()
        if now < self._next and not at_once:
            return
        few = len(self._suspended.unfinished) <= _FEW
        self._next = now + (_KEEP_SECONDS if few else _KEEP_MANY_SECONDS)
        position = self._suspended.position
        self._look_back(now, position)
        if not leads:
            self._leads = False
            return
        if not self._leads:  # what another stored may lack whom this one takes for long known
            await self._reach(_Reached(self._suspended.cursor()))
            self._leads = True
        shards: dict[int, list[str]] = {}
        pins = [position + 1]
        for key, workflow in self._suspended.unfinished.items():
            if self._is_long(workflow):
                shards.setdefault(_number(key), []).append(key)
            else:
                pins.append(workflow.needed_from)
        unsettled = self._suspended.unsettled(key for keys in shards.values() for key in keys)
        pins += await self._store(shards)
        if len(unsettled) <= _MOST_UNSETTLED:  # else the position before holds, too
            await self._reach(_Reached(min(pins), tuple(sorted(unsettled))))

    def _look_back(self, now: float, position: int) -> None:
        """Moves the horizon: what lies before it was read long ago."""
        self._positions.append((now, position))
        while self._positions and now - self._positions[0][0] >= self._long_seconds:
            self._horizon = max(self._horizon, self._positions.popleft()[1])

    def _is_long(self, workflow: SuspendedWorkflow) -> bool:
        return workflow.sequence <= self._horizon and not workflow.is_cancelling

    async def _store(self, shards: dict[int, list[str]]) -> list[int]:
        """Stores the shards that changed.

        Returns:
            Where the workflows begin that are in none of them, since one is too large.
        """
        numbers, messages = [], []
        prints = {number: self._print(shards.get(number, ())) for number in range(_SHARDS)}
        for number, print_now in prints.items():
            if self._stored.get(number, 0) != print_now:
                numbers.append(number)
                messages.append(self._message(number, shards.get(number, ())))
        pins: list[int] = []
        answers = await self._bus.append_many(messages) if messages else []
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, PayloadTooLarge):
                unfinished = self._suspended.unfinished
                pins += [unfinished[k].needed_from for k in shards[number] if k in unfinished]
            elif isinstance(answer, BusError):
                raise answer
            else:
                self._stored[number] = prints[number]
        return pins

    def _print(self, keys: Iterable[str]) -> int:
        """Equal for equal contents; 0 for none."""
        combined = 0
        for key in keys:
            workflow = self._suspended.unfinished[key]
            combined ^= hash((key, workflow.sequence, workflow.is_paused))
        return combined

    def _message(self, number: int, keys: Iterable[str]) -> Outgoing:
        functions: dict[str, int] = {}
        workflows = []
        for key in keys:
            one = self._suspended.unfinished[key]
            function = functions.setdefault(self._suspended.function(key), len(functions))
            ends_by = one.ends_by if one.ends_by < math.inf else 0.0
            about = key, one.sequence, one.number, function, one.is_paused, ends_by
            size = max(one.size, one.unread_bytes)
            workflows.append(WaitingWorkflow(*about, size if size > _SMALL_BYTES else 0))
        shard = Shard(tuple(functions), tuple(workflows))
        subject = self._subjects.state("suspended", str(number))
        return Outgoing(subject, msgspec.msgpack.encode(shard))

    async def _reach(self, reached: _Reached) -> None:
        if reached != self._reached:
            await self._bus.append(Outgoing(self._cursor, msgspec.json.encode(reached)))
            self._reached = reached


def _number(key: str) -> int:
    return zlib.crc32(key.encode()) % _SHARDS


def _reached(stored: Stored | None) -> _Reached:
    try:
        return msgspec.json.decode(stored.body, type=_Reached) if stored else _Reached()
    except (ValueError, RecursionError) as error:
        log.warning("%s cannot be read, starting from the beginning: %s", "the position", error)
        return _Reached()


def _shard(stored: Stored) -> Shard | None:
    try:
        return msgspec.msgpack.decode(stored.body, type=Shard)
    except (ValueError, RecursionError) as error:
        log.error("%s cannot be read: %s", stored.subject, error)
        return None
