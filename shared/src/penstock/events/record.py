"""What is kept beside the snapshots, so that each decision can be recomputed from the log.

Settings once in a while, a whole state once in a while, and for each round only what the snapshots
do not say: up to which of them it had seen, when it was, and whom it decided. All of it lies in the
stream of the snapshots and grows old with them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from penstock.events.envelope import Codec, Event, Int64
from penstock.events.snapshot import HostSnapshot, PoolSnapshot


class RecordEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "round"

    epoch: Int64
    """The deciding leader's fencing token."""
    number: Int64
    """The round's, counted from 1 within the epoch."""
    settings: str
    """Fingerprint of the settings in force; see `SettingsAdopted`."""
    program: str
    """Version and fingerprint of the code that decides."""
    through: Int64
    """Sequence of the last snapshot seen: with the order of the stream, these are the inputs."""


class RoundDecided(RecordEvent, frozen=True, kw_only=True, tag=True):
    """One round of decisions; ``at`` is the moment they were computed for.

    Attributes:
        due: the pools that were decided; None for all.
        digest: hash of the round's decisions as JSON, also of those that have no event of their
            own.
        checkpoint: sequence of the checkpoint that recomputing starts from.
    """

    due: tuple[str, ...] | None = None
    digest: str = ""
    checkpoint: Int64 = 0


class KeptPool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pool's state before the round, and its newest snapshot, stored ``at`` (POSIX seconds)."""

    state: dict[str, Any] = {}
    snapshot: PoolSnapshot | None = None
    at: float = 0.0


class KeptHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host's newest snapshot, stored ``at`` (POSIX seconds)."""

    snapshot: HostSnapshot
    at: float


class CheckpointTaken(RecordEvent, frozen=True, kw_only=True, tag=True):
    """Everything that the round of this number starts from; large ones come in parts.

    The first part comes before the record of that round, the others may come between later ones.

    Attributes:
        part: number of this part, counted from 1.
        parts: how many parts there are.
        state: what the decider remembers beyond single pools; in the first part.
        pools: pools of this part.
        hosts: hosts of this part.
    """

    part: Int64 = 1
    parts: Int64 = 1
    state: dict[str, Any] = {}
    pools: dict[str, KeptPool] = {}
    hosts: dict[str, KeptHost] = {}


class SettingsAdopted(Event, frozen=True, kw_only=True, tag=True):
    """Settings that decisions were made under; large ones come in parts.

    Attributes:
        fingerprint: hash of all parts.
        pools: pools of this part, each with its profile applied.
        rules: what holds for all pools and hosts.
        orders: an operator's holds of pools, and pauses and drains of hosts, that were in force.
    """

    noun: ClassVar[str] = "settings"
    key_field: ClassVar[str] = "fingerprint"

    fingerprint: str
    part: Int64 = 1
    parts: Int64 = 1
    rules: dict[str, Any] = {}
    pools: dict[str, Any] = {}
    orders: dict[str, Any] = {}


RECORDS = Codec(RoundDecided, CheckpointTaken, SettingsAdopted)
