"""Keeps what is needed to recompute each round: see `penstock.events.record`.

Costs one small message a round, a checkpoint twice a minute and the settings every ten minutes.
The checkpoint of many pools takes a tenth of a second to encode. Rounds that decide a slice of them
store a part of it each: the checkpoint is one of before the first of these rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, zip_longest
from typing import Any

import msgspec

from penstock.bus.protocol import BusError, Outgoing
from penstock.config import Pool
from penstock.decider.core.decide import Outcome
from penstock.decider.core.digest import digest
from penstock.decider.core.inputs import Inputs, Rules
from penstock.decider.core.state import PoolState, State, dump
from penstock.decider.program import program
from penstock.decider.publishing.adopting import in_parts, records
from penstock.events.envelope import Event, encode
from penstock.events.orders import NO_ORDERS
from penstock.events.record import (
    CheckpointTaken,
    KeptHost,
    KeptPool,
    RoundDecided,
    SettingsAdopted,
)
from penstock.events.subjects import Subjects

CHECKPOINT_SECONDS = 30.0
SETTINGS_SECONDS = 600.0
"""Settings are recorded anew before the stream drops them for their age."""
POOLS_A_PART = 100
_HOSTS_A_PART = 50
_PARTS_A_SLICE = 2
"""Keep each message well below the broker's usual limit of 1 MB, and what a slice encodes below
some 3 ms; the checkpoint of 10,000 pools is stored within half a second."""


class Recorder:
    """One term's records.

    Args:
        source: service and instance that speaks.
    """

    def __init__(
        self,
        subjects: Subjects,
        source: str,
        epoch: int,
        pools: Mapping[str, Pool],
        rules: Rules,
    ) -> None:
        self._subjects, self._source, self._epoch = subjects, source, epoch
        self._pools, self._rules, self._orders = pools, rules, NO_ORDERS
        self._settings = records(pools, rules, source)
        self._number = 0
        self._checkpoint = self._new_checkpoint = 0
        self._checkpoint_at = self._settings_at = float("-inf")
        self._parts: Iterator[CheckpointTaken] = iter(())
        self._sent: list[Event] = []

    @property
    def number(self) -> int:
        """Of the round that was recorded last, counted from 1."""
        return self._number

    def round(
        self, before: State, inputs: Inputs, through: int, outcome: Outcome, now: float
    ) -> list[Outgoing]:
        """The messages that keep a round; `stored` must be called with the broker's answers.

        Args:
            through: sequence of the last snapshot in ``inputs``.
        """
        if self._sent:  # the answers to the last ones never came
            self.start_anew()
        self._number += 1
        if inputs.orders != self._orders:
            self._orders, self._settings_at = inputs.orders, float("-inf")
            self._settings = records(self._pools, self._rules, self._source, inputs.orders)
        common: dict[str, Any] = {
            "at": datetime.fromtimestamp(now, UTC),
            "source": self._source,
            "epoch": self._epoch,
            "number": self._number,
            "settings": self._settings[0].fingerprint,
            "program": program(),
            "through": through,
        }
        self._sent = []
        if not 0 <= now - self._settings_at < SETTINGS_SECONDS:
            self._settings_at = now
            self._sent += self._settings
        if not 0 <= now - self._checkpoint_at < CHECKPOINT_SECONDS:
            self._checkpoint_at = now
            self._parts = _checkpoint(before, inputs, common)
        whole = inputs.due is None or not self._checkpoint
        self._sent += islice(self._parts, None if whole else _PARTS_A_SLICE)
        due = None if inputs.due is None else tuple(sorted(inputs.due))
        digested = digest(outcome.decisions)
        self._sent.append(
            RoundDecided(due=due, digest=digested, checkpoint=self._checkpoint, **common)
        )
        return [Outgoing(self._subject(event), encode(event)) for event in self._sent]

    def stored(self, answers: Sequence[int | BusError]) -> None:
        """Takes the broker's answers to the last round's messages: a refused one starts anew."""
        for event, answer in zip(self._sent, answers, strict=True):
            if isinstance(event, CheckpointTaken) and isinstance(answer, int):
                self._new_checkpoint = answer if event.part == 1 else self._new_checkpoint
                if event.part == event.parts:
                    self._checkpoint = self._new_checkpoint
        if any(isinstance(answer, BusError) for answer in answers):
            self.start_anew()
        self._sent = []

    def start_anew(self) -> None:
        """The next round does not go on from the last one's records."""
        self._checkpoint_at = self._settings_at = float("-inf")
        self._checkpoint = 0
        self._parts = iter(())

    def _subject(self, event: Event) -> str:
        if isinstance(event, SettingsAdopted):
            return self._subjects.adopted_settings(event.fingerprint, event.part)
        return self._subjects.round(event.name)


def _checkpoint(
    state: State, inputs: Inputs, common: Mapping[str, Any]
) -> Iterator[CheckpointTaken]:
    """The parts, each made when it is asked for: all values behind them stay as they are."""
    beyond = msgspec.to_builtins(msgspec.structs.replace(state, pools={}), order="deterministic")
    pieces = list(
        zip_longest(
            in_parts(dict.fromkeys(inputs.pools), POOLS_A_PART),
            in_parts(inputs.measured_hosts, _HOSTS_A_PART),
        )
    )
    for number, (pools, hosts) in enumerate(pieces or [(None, None)], 1):
        yield CheckpointTaken(
            part=number,
            parts=max(len(pieces), 1),
            state=beyond if number == 1 else {},
            pools={name: _kept_pool(state, inputs, name) for name in pools or ()},
            hosts={
                name: KeptHost(snapshot=measurement.snapshot, at=measurement.at)
                for name, measurement in (hosts or {}).items()
            },
            **common,
        )


def _kept_pool(state: State, inputs: Inputs, name: str) -> KeptPool:
    measurement = inputs.measured_pools.get(name)
    return KeptPool(
        state=dump(state.pools.get(name) or PoolState()),
        snapshot=measurement.snapshot if measurement else None,
        at=measurement.at if measurement else 0.0,
    )
