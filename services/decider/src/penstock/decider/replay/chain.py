"""One leader's rounds, one after the other, each from the state the last one left."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, take_host
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import State
from penstock.decider.publishing.adopting import Adopted
from penstock.events.record import CheckpointTaken, RoundDecided

Measurement = MeasuredPool | MeasuredHost | None
"""A message of the stream; None: one that decisions do not use."""


class Installed(msgspec.Struct, frozen=True):
    """The code that decisions are made with, besides the core."""

    strategies: Strategies
    policies: Policies


class Broken(Exception):
    """Nothing can be recomputed from here to the next checkpoint; the text gives the reason."""


class Step(msgspec.Struct, frozen=True):
    """A round recomputed: what it started from and what came out."""

    round: RoundDecided
    before: State
    inputs: Inputs
    outcome: Outcome


class Chain:
    """Goes on from a checkpoint.

    Args:
        parts: of the checkpoint, all of them.
        installed: strategies and policies.
    """

    def __init__(self, parts: list[CheckpointTaken], installed: Installed) -> None:
        first = parts[0]
        self.state = state_of(parts)
        self.number, self._through = first.number - 1, first.through
        self._installed, self._planned = installed, PlannedWorkers()
        self._pools = {
            name: MeasuredPool(kept.snapshot, kept.at)
            for part in parts
            for name, kept in part.pools.items()
            if kept.snapshot is not None
        }
        self._hosts = {
            name: MeasuredHost(kept.snapshot, kept.at)
            for part in parts
            for name, kept in part.hosts.items()
        }
        self.pending: deque[tuple[int, Measurement]] = deque()

    def take(self, sequence: int, measurement: Measurement) -> None:
        if sequence > self._through:
            self.pending.append((sequence, measurement))

    def decide(self, record: RoundDecided, settings: Adopted | None) -> Step:
        """Decides a recorded round again.

        Raises:
            Broken: something it rested on is not in the log.
        """
        if record.number != self.number + 1:
            raise Broken(f"rounds {self.number + 1} to {record.number - 1} were not recorded")
        if settings is None:
            raise Broken(f"its settings {record.settings} are not in the log")
        self._advance(record.through, settings)
        inputs = self.inputs(record, settings)
        before, now = self.state, record.at.timestamp()
        outcome = decide(before, inputs, now, self._planned)
        self.state, self.number = outcome.state, record.number
        return Step(record, before, inputs, outcome)

    def inputs(self, record: RoundDecided, settings: Adopted) -> Inputs:
        return Inputs(
            pools=settings.pools,
            measured_pools=dict(self._pools),
            measured_hosts=dict(self._hosts),
            strategies=self._installed.strategies,
            policies=self._installed.policies,
            rules=settings.rules,
            due=None if record.due is None else frozenset(record.due),
            orders=settings.orders,
        )

    def _advance(self, through: int, settings: Adopted) -> None:
        while self.pending and self.pending[0][0] <= through:
            sequence, measurement = self.pending.popleft()
            self._check_next(sequence)
            self._through = sequence
            if isinstance(measurement, MeasuredPool):
                if measurement.snapshot.pool in settings.pools:
                    self._pools[measurement.snapshot.pool] = measurement
            elif isinstance(measurement, MeasuredHost):
                take_host(self._hosts, measurement, settings.rules)
        if self._through < through:
            self._check_next(through + 1)

    def _check_next(self, sequence: int) -> None:
        """Each place in the stream holds something, else a message is missing."""
        if sequence != self._through + 1:
            raise Broken(f"messages {self._through + 1} to {sequence - 1} are not in the log")


def state_of(parts: list[CheckpointTaken]) -> State:
    """The state that a checkpoint keeps."""
    pools = {name: kept.state for part in parts for name, kept in part.pools.items()}
    return msgspec.convert({**parts[0].state, "pools": pools}, State)


def portable(state: State) -> Mapping[str, object]:
    """A state as a checkpoint keeps it: two are the same if these are."""
    kept: Mapping[str, object] = msgspec.json.decode(
        msgspec.json.encode(state, order="deterministic")
    )
    return kept
