"""Snapshots of batches and graphs, stored at the broker so that a restart goes on from there.

Each snapshot says how far into the log it reaches, and a restart reads from the earliest of these:
wherever an orchestrator was killed, nothing is missed. Events that are in a snapshot are skipped.
Of two orchestrators the one that has read further stores it: the log may be shortened up to there.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.bus.protocol import (
    Bus,
    Expect,
    Outgoing,
    PayloadTooLarge,
    Stored,
    WrongSequence,
)
from penstock.events.subjects import Subjects
from penstock.orchestrator.core.batch import Batch, BatchSnapshot
from penstock.orchestrator.core.graph import Graph, GraphSnapshot
from penstock.runtime.poison_messages import skipping_poison

log = logging.getLogger("penstock.orchestrator")

Name = tuple[str, str]
_TRIES = 5
_REFRESH_SECONDS = 60.0
"""Also of what did not change: bounds how much of the log a restart reads."""
_KINDS: dict[str, tuple[Any, Any]] = {
    "batch": (BatchSnapshot, Batch.restored),
    "graph": (GraphSnapshot, Graph.restored),
}


class _Stored(msgspec.Struct, frozen=True):
    """A snapshot as it is stored.

    Attributes:
        seen_to: all events up to this sequence are in the snapshot.
    """

    seen_to: int
    snapshot: msgspec.Raw


class WorkflowSnapshots:
    """The stored snapshots, and the position in the log up to which all events are in them."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._stream = subjects.state_stream
        self._cursor = subjects.state("cursor", "wholes")
        self._stored: dict[Name, tuple[int, float]] = {}
        self._sequences: dict[Name, int] = {}
        self._position = -1

    async def load(self) -> tuple[int, dict[Name, Batch | Graph]]:
        """From where to read the log, and all that was not finished with. Raises BusError."""
        stored = await self._bus.last(self._stream, self._cursor)
        positions = [_position(stored)]
        restored: dict[Name, Batch | Graph] = {}
        log_begins = (await self._bus.extent(self._subjects.events_stream)).first
        for noun in _KINDS:
            for subject in await self._bus.count(self._stream, self._subjects.state(noun, "*")):
                snapshot = await self._bus.last(self._stream, subject)
                if snapshot is not None:
                    name = noun, subject.rpartition(".")[2]
                    if _seen_to(snapshot) < log_begins - 1 and await self._has_left_the_log(name):
                        await self.forget(name)
                        continue
                    self._sequences[name] = snapshot.sequence
                    positions.append(self._restore(name, snapshot, restored))
        # The earliest of all: reading an event twice is harmless, missing one is not.
        return min(positions), restored

    async def _has_left_the_log(self, name: Name) -> bool:
        """Whether the log holds no event of a batch or graph: then it has ended.

        Those that live are carried. After a kill the broker may have an older version of a removed
        snapshot again (see `penstock.bus.records`). Where the log has all since that version, the
        workflow is followed to its end once more, which is harmless. Where it has not, steps that
        ended long ago would be dispatched anew.
        """
        events = self._subjects.events(*name)
        return await self._bus.last(self._subjects.events_stream, events) is None

    def _restore(self, name: Name, stored: Stored, restored: dict[Name, Batch | Graph]) -> int:
        kind, restore = _KINDS[name[0]]
        try:
            kept = msgspec.msgpack.decode(stored.body, type=_Stored)
            snapshot = msgspec.msgpack.decode(kept.snapshot, type=kind)
            restored[name] = restore(snapshot, self._source)
        except (ValueError, RecursionError, zlib.error) as error:
            log.error("%s %s: its snapshot cannot be read: %s", *name, error)
            return 0  # the log has it all
        return kept.seen_to

    async def keep(self, position: int, workflows: Mapping[Name, Batch | Graph]) -> None:
        """Stores what changed. Raises BusError."""
        now = time.monotonic()
        for name, workflow in tuple(workflows.items()):
            stored_position, stored_at = self._stored.get(name, (-1, 0.0))
            if stored_position != workflow.position or now - stored_at > _REFRESH_SECONDS:
                with skipping_poison(
                    f"{name[0]} {name[1]}"
                ):  # is read from the log after a restart
                    await self._store(name, workflow, position)
                self._stored[name] = workflow.position, now
        if position != self._position:
            await self._bus.append(Outgoing(self._cursor, msgspec.json.encode(position)))
            self._position = position

    async def _store(self, name: Name, workflow: Batch | Graph, seen_to: int) -> None:
        snapshot = msgspec.Raw(msgspec.msgpack.encode(workflow.snapshot()))
        body = msgspec.msgpack.encode(_Stored(seen_to, snapshot))
        subject = self._subjects.state(*name)
        for _ in range(_TRIES):
            expect = Expect(self._sequences.get(name, 0))
            try:
                self._sequences[name] = await self._bus.append(Outgoing(subject, body, {}, expect))
                return
            except PayloadTooLarge as error:
                log.error("%s %s: its snapshot cannot be stored: %s", *name, error)
                return
            except WrongSequence:  # another orchestrator's, or an own one whose answer was lost
                stored = await self._bus.last(self._stream, subject)
                self._sequences[name] = stored.sequence if stored else 0
                if stored is not None and _seen_to(stored) > seen_to:
                    return  # it has read further: the log may no longer hold what this one lacks

    async def forget(self, name: Name) -> None:
        """Nothing is left to be done for it. Raises BusError."""
        self._stored.pop(name, None)
        self._sequences.pop(name, None)
        await self._bus.remove(self._stream, self._subjects.state(*name))


def _seen_to(stored: Stored) -> int:
    try:
        return msgspec.msgpack.decode(stored.body, type=_Stored).seen_to
    except (ValueError, RecursionError):
        return 0


def _position(stored: Stored | None) -> int:
    """The stored position; the beginning of the log, which has it all, where it cannot be read."""
    try:
        return msgspec.json.decode(stored.body, type=int) if stored else 0
    except (ValueError, RecursionError) as error:
        log.error("the stored position in the event log cannot be read: %s", error)
        return 0
