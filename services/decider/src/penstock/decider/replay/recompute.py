"""From the entries of a log to its rounds, each computed again by the production core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.bus.saved_log import BadLog, Entry
from penstock.decider.core.inputs import MeasuredHost, MeasuredPool
from penstock.decider.core.state import State
from penstock.decider.intake import wrong
from penstock.decider.publishing.adopting import Adopted, gather
from penstock.decider.replay.chain import (
    Broken,
    Chain,
    Installed,
    Measurement,
    Step,
    portable,
    state_of,
)
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.record import RECORDS, CheckpointTaken, RoundDecided, SettingsAdopted
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot, PoolSnapshot

MOST_BEHIND = 50_000
"""Snapshots that may be stored while a round is computed and its record is on the way."""

_LEAST_PARTS = 4


class Gap(msgspec.Struct, frozen=True):
    """A round that cannot be recomputed.

    Attributes:
        round: its record.
        why: given for the first of several only.
    """

    round: RoundDecided
    why: str = ""


class Mismatch(msgspec.Struct, frozen=True):
    """The state at a checkpoint is not what its rounds led to."""

    checkpoint: CheckpointTaken
    recorded: Mapping[str, Any]
    recomputed: Mapping[str, Any]


class DecisionKey(msgspec.Struct, frozen=True, tag_field="type", tag=ScalingDecisionMade.__name__):
    """The fields of a published decision that find its round, and its id and source."""

    id: str
    source: str
    pool: str
    epoch: int = 0
    round: int = 0


class Recorded(msgspec.Struct, frozen=True):
    """A decision as it was published.

    Attributes:
        raw: its bytes.
        decision: what it is looked up by.
    """

    raw: bytes
    decision: DecisionKey


class Unreadable(msgspec.Struct, frozen=True):
    """A message that should be a decision and cannot be read."""

    subject: str
    why: str


Result = Step | Gap | Mismatch | Recorded | Unreadable | CheckpointTaken
"""A checkpoint is a result when it is complete: its last part."""

decision_key = msgspec.json.Decoder(DecisionKey).decode
_NOTHING: tuple[Result, ...] = ()


class _Forming:
    """A checkpoint whose parts are coming.

    Attributes:
        before: the state that the rounds led to at its first part, None where they lead to none.
        rounds: recorded since.
    """

    def __init__(self, before: State | None) -> None:
        self.before = before
        self.parts: list[CheckpointTaken] = []
        self.rounds: list[RoundDecided] = []


class Recomputer:
    """Takes entries in order.

    Args:
        settings: by fingerprint.
        installed: strategies and policies.
        what_if: other settings to decide under; recorded states are then not restored, as each
            decision changes the next.
    """

    def __init__(
        self,
        settings: Mapping[str, Adopted],
        installed: Installed,
        what_if: Callable[[Adopted], Adopted] | None = None,
    ) -> None:
        self._settings = dict(settings)
        if what_if is not None:
            self._settings = {name: what_if(adopted) for name, adopted in settings.items()}
        self._installed, self._free = installed, what_if is not None
        self._chains: dict[int, Chain] = {}
        self._broken: set[int] = set()
        self._forming: dict[int, _Forming] = {}
        self._recent: deque[tuple[int, Measurement]] = deque(maxlen=MOST_BEHIND)
        self._takers: dict[str, Callable[[Entry], Sequence[Result]]] = {}

    def take(self, entry: Entry) -> Sequence[Result]:
        """The results of this entry."""
        taker = self._takers.get(entry.subject)
        if taker is None:
            taker = self._takers[entry.subject] = self._taker(entry.subject)
        return taker(entry)

    def glance(self, entry: Entry) -> None:
        """Takes an entry of before: nothing is recomputed from it yet."""
        _, stream, noun, *_ = _parts(entry.subject)
        if stream != "snapshots":
            return
        self._keep(entry.sequence, _accept(entry) if noun in ("pool", "host") else None)
        if noun == "round":
            record = _record(entry)
            if isinstance(record, CheckpointTaken):
                self._collect(record)
            elif isinstance(record, RoundDecided):
                self._note(record)

    def _taker(self, subject: str) -> Callable[[Entry], Sequence[Result]]:
        _, stream, noun, *_, name = _parts(subject)
        if stream == "events":
            decided = name == ScalingDecisionMade.__name__
            return self._take_decision if decided else _take_nothing
        return {
            "pool": self._take_snapshot,
            "host": self._take_snapshot,
            "round": self._take_record,
        }.get(noun, self._take_other)

    def _take_decision(self, entry: Entry) -> Sequence[Result]:
        raw = bytes(entry.body)
        try:
            return (Recorded(raw, decision_key(raw)),)
        except ValueError as error:
            return (Unreadable(entry.subject, str(error)),)

    def _take_snapshot(self, entry: Entry) -> Sequence[Result]:
        self._keep(entry.sequence, _accept(entry))
        return _NOTHING

    def _take_other(self, entry: Entry) -> Sequence[Result]:
        self._keep(entry.sequence, None)
        return _NOTHING

    def _take_record(self, entry: Entry) -> Sequence[Result]:
        self._keep(entry.sequence, None)
        record = _record(entry)
        if isinstance(record, RoundDecided):
            return (self._take_round(record),)
        return self._take_part(record) if isinstance(record, CheckpointTaken) else _NOTHING

    def _keep(self, sequence: int, measurement: Measurement) -> None:
        if not sequence:
            return
        self._recent.append((sequence, measurement))
        for chain in self._chains.values():
            chain.take(sequence, measurement)

    def _take_round(self, record: RoundDecided) -> Step | Gap:
        self._note(record)
        chain = self._chains.get(record.epoch)
        if chain is None:
            why = "" if record.epoch in self._broken else "no checkpoint before it"
            self._broken.add(record.epoch)
            return Gap(record, why)
        try:
            return chain.decide(record, self._settings.get(record.settings))
        except Broken as broken:
            del self._chains[record.epoch]
            self._broken.add(record.epoch)
            return Gap(record, str(broken))

    def _take_part(self, part: CheckpointTaken) -> Sequence[Result]:
        formed = self._collect(part)
        if formed is None:
            return _NOTHING
        # under other settings the recorded state is not the one that the rounds lead to
        if formed.before is not None and self._free:
            return (part,)
        mismatch = _mismatch(part, state_of(formed.parts), formed.before)
        if formed.before is None or mismatch or part.epoch not in self._chains:
            self._begin(formed)
        return (*mismatch, part)

    def _collect(self, part: CheckpointTaken) -> _Forming | None:
        """All parts, when this is the last one."""
        if part.part == 1:
            chain = self._chains.get(part.epoch)
            follows = chain is not None and chain.number == part.number - 1
            self._forming[part.epoch] = _Forming(chain.state if chain and follows else None)
        forming = self._forming.get(part.epoch)
        if forming is None:
            return None
        forming.parts.append(part)
        complete = len(forming.parts) == part.part == part.parts
        return self._forming.pop(part.epoch) if complete else None

    def _note(self, record: RoundDecided) -> None:
        """Keeps a round that was recorded between the parts of a checkpoint."""
        if (forming := self._forming.get(record.epoch)) is not None:
            forming.rounds.append(record)

    def _begin(self, formed: _Forming) -> None:
        """Goes on from a checkpoint, through the rounds that were recorded between its parts."""
        parts, epoch = formed.parts, formed.parts[0].epoch
        chain = self._chains[epoch] = Chain(parts, self._installed)
        for sequence, measurement in reversed(self._recent):
            if sequence <= parts[0].through:
                break
            chain.pending.appendleft((sequence, measurement))
        self._broken.discard(epoch)
        for other, silent in list(self._chains.items()):
            if len(silent.pending) > MOST_BEHIND:  # its leader has ended
                del self._chains[other]
        try:
            for record in formed.rounds:
                chain.decide(record, self._settings.get(record.settings))
        except Broken:  # the round itself was reported with the reason
            del self._chains[epoch]
            self._broken.add(epoch)


def _mismatch(
    part: CheckpointTaken, recorded: State, recomputed: State | None
) -> tuple[Mismatch, ...]:
    if recomputed is None or recorded == recomputed:
        return ()
    one, other = portable(recorded), portable(recomputed)
    return () if one == other else (Mismatch(part, one, other),)


def _take_nothing(_: Entry) -> Sequence[Result]:
    return _NOTHING


def _record(entry: Entry) -> Event | UnknownEvent | None:
    try:
        return RECORDS.decode(entry.body)
    except ValueError:  # its absence is noticed by the next one
        return None


def _accept(entry: Entry) -> MeasuredPool | MeasuredHost | None:
    """The measurement as the decider read it; None for one that it skipped."""
    try:
        snapshot = SNAPSHOTS.decode(entry.body)
    except ValueError:
        return None
    if isinstance(snapshot, PoolSnapshot):
        return None if wrong(snapshot, entry.subject) else MeasuredPool(snapshot, entry.at)
    if isinstance(snapshot, HostSnapshot):
        return None if wrong(snapshot, entry.subject) else MeasuredHost(snapshot, entry.at)
    return None


def recorded_settings(entries: Iterable[Entry]) -> dict[str, Adopted]:
    """The settings at the head of a log, by fingerprint. Raises BadLog: of a pool named twice."""
    adopted = []
    for entry in entries:
        if ".snapshots.settings." not in entry.subject:
            break
        event = RECORDS.decode(entry.body)
        if isinstance(event, SettingsAdopted):
            adopted.append(event)
    settings = gather(adopted)
    for name, pool in ((n, p) for one in settings.values() for n, p in one.pools.items()):
        if pool.name != name:
            raise BadLog(f"found settings of pool {pool.name[:64]!r} under the name {name[:64]!r}")
    return settings


def _parts(subject: str) -> list[str]:
    """Raises BadLog: it is no subject of events, snapshots or rounds."""
    parts = subject.split(".")
    if len(parts) < _LEAST_PARTS:
        raise BadLog(
            f"found the subject {subject[:60]!r}, expected {_LEAST_PARTS} parts or more, like "
            "'penstock.snapshots.pool.NAME'"
        )
    return parts
