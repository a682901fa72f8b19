"""A log as a decider and its world would store it, made by the production core and recorder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from tests.unit.decider.given import NOW, host, pool, snapshot

from penstock.bus.protocol import BusError, BusUnavailable
from penstock.bus.saved_log import Entry, line
from penstock.config import Pool
from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.state import State
from penstock.decider.publishing.adopting import records
from penstock.decider.publishing.journal import Made, decision_event
from penstock.decider.publishing.recorder import Recorder
from penstock.events.envelope import Event, encode
from penstock.events.orders import NO_ORDERS, Orders
from penstock.events.subjects import Subjects

SUBJECTS = Subjects()
POOLS = {
    each.name: each for each in (pool("emails", strategy="hybrid"), pool("cron", strategy="fixed"))
}


class Log:
    """Writes what a decider and its world would store."""

    def __init__(self, epoch: int = 1) -> None:
        self.entries: list[Entry] = []
        self.epoch = epoch - 1
        self.seen: dict[str, MeasuredPool] = {}
        self.hosts: dict[str, MeasuredHost] = {}
        self.sequence = 0
        self.begin_term(POOLS)

    def begin_term(self, pools: Mapping[str, Pool]) -> None:
        """Another leader, with settings of its own; they are told at the head of the log."""
        self.epoch += 1
        self.pools, self.state = pools, State(watching_since=NOW)
        self.recorder = Recorder(SUBJECTS, "decider/test", self.epoch, pools, Rules())
        for told in records(pools, Rules()):
            subject = SUBJECTS.adopted_settings(told.fingerprint, told.part)
            self.entries.insert(0, Entry(0, NOW, subject, msgspec.Raw(encode(told))))

    def round(
        self,
        second: int,
        rate: float,
        due: set[str] | None = None,
        lost: int = 0,
        orders: Orders = NO_ORDERS,
    ) -> None:
        """Both pools and a host are measured, and what is due is decided; ``lost``: messages of
        the record that the broker does not take, from the first."""
        at = NOW + second
        for one in [snapshot(name, arrival_per_second=rate) for name in self.pools]:
            self.seen[one.pool] = MeasuredPool(one, at)
            self._append(SUBJECTS.pool_snapshot(one.pool), encode(one), at)
        self.hosts["a"] = MeasuredHost(host("a"), at)
        self._append(SUBJECTS.host_snapshot("a"), encode(self.hosts["a"].snapshot), at)
        inputs = Inputs(
            pools=self.pools,
            measured_pools={name: self.seen[name] for name in self.pools},
            measured_hosts=dict(self.hosts),
            strategies=BUILTIN,
            rules=Rules(),
            due=None if due is None else frozenset(due),
            orders=orders,
        )
        through, now = self.sequence, at + 0.05
        outcome = decide(self.state, inputs, now)
        messages = self.recorder.round(self.state, inputs, through, outcome, now)
        self.state = outcome.state
        made = Made(epoch=self.epoch, round=self.recorder.number, through=through, now=now)
        answers = list[int | BusError]()
        for number, message in enumerate(messages):
            if number == len(messages) - 1:
                for decision in outcome.decisions:
                    event = decision_event(decision, made, "decider/test")
                    self._outside(SUBJECTS.event(event), event)
            if ".snapshots.settings." in message.subject:  # a log that is saved begins with them
                self.entries.insert(0, Entry(0, NOW, message.subject, msgspec.Raw(message.body)))
            taken = number >= lost
            answers.append(
                self._append(message.subject, message.body, now)
                if taken
                else BusUnavailable("no answer")
            )
        self.recorder.stored(answers)

    def _append(self, subject: str, body: bytes, at: float) -> int:
        self.sequence += 1
        self.entries.append(Entry(self.sequence, at, subject, msgspec.Raw(body)))
        return self.sequence

    def _outside(self, subject: str, event: Event) -> None:
        self.entries.append(Entry(0, NOW, subject, msgspec.Raw(encode(event))))

    def write(self, path: Path) -> Path:
        path.write_bytes(b"".join(map(line, self.entries)))
        return path


def eventful() -> Log:
    """Three checkpoints, a step of the load, urgent rounds of one pool between those over both."""
    found = Log()
    for second in range(70):
        rate = 5.0 if second < 40 else 9.0
        found.round(second, rate, due={"emails"} if second % 7 else None)
    return found
