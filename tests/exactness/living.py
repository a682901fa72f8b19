"""A decider's life in simulated time: everything but the broker is what production runs.

Snapshots are encoded, stored and taken in; rounds are due by the real rhythm, decided by the core,
recorded by the recorder; what is worth an event is written to the log.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from penstock.bus.protocol import Stored
from penstock.bus.saved_log import Entry, line, read
from penstock.config import Settings
from penstock.decider import plugins
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import restore
from penstock.decider.intake import Intake
from penstock.decider.publishing.adopting import Adopted, records
from penstock.decider.publishing.event_filter import EventFilter
from penstock.decider.publishing.journal import Made, decision_event
from penstock.decider.publishing.recorder import Recorder
from penstock.decider.replay.chain import Installed
from penstock.decider.replay.recompute import Recomputer, recorded_settings
from penstock.decider.replay.verdict import Verdict
from penstock.decider.replay.verify import Verifier
from penstock.decider.rhythm import Rhythm
from penstock.events.envelope import Event, encode
from penstock.events.orders import NO_ORDERS, Hold, HostStanding, Orders
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade, WorkersScaled
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, PoolWorkers
from penstock.events.subjects import Subjects

START = 1_700_000_000.0
SOURCE = "decider/exactness"
HOSTS = ("host-a", "host-b")
GIB = 2**30
Fields = Mapping[str, Any]
_SLICE_POOLS = 2
"""Three pools are decided in two slices, so that rounds over some of them are recomputed, too."""
_UNMEASURED_SHARE, _STRANGE_SHARE, _NEW_ORDERS_SHARE = 0.15, 0.3, 0.2


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """What happens in a term.

    Attributes:
        pauses_seconds: before each measurement.
        pool_fields / host_fields: of snapshots, to be laid over those that are simulated, now and
            then: anything that a snapshot's type permits.
    """

    pauses_seconds: Sequence[float]
    pool_fields: Sequence[Fields] = ()
    host_fields: Sequence[Fields] = ()


class Life:
    """One installation's log, from term to term."""

    def __init__(self, seed: int, strategies: Strategies, policies: Policies) -> None:
        self.entries: list[Entry] = []
        self.settings: list[Entry] = []
        self.decisions = 0
        self._random = random.Random(seed)
        self._strategies, self._policies = strategies, policies
        self._subjects = Subjects()
        self._now, self._sequence, self._epoch = START, 0, 0
        self._last: dict[str, ScalingDecisionMade] = {}
        self._plans: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, int] = {}

    def term(self, settings: Settings, ours: Adopted, weather: Weather) -> None:
        """A leader takes over, with settings that may be others than before."""
        self._epoch += 1
        for event in records(ours.pools, ours.rules):
            subject = self._subjects.adopted_settings(event.fingerprint, event.part)
            self.settings.append(Entry(0, START, subject, msgspec.Raw(encode(event))))
        self._ours, self._rhythm = ours, Rhythm(slice_pools=_SLICE_POOLS)
        self._intake = Intake(settings, ours.pools, self._rhythm, monotonic=lambda: self._now)
        self._recorder = Recorder(self._subjects, SOURCE, self._epoch, ours.pools, ours.rules)
        self._news = EventFilter(5.0)
        commands = {
            host: WorkersScaled(host=host, epoch=self._epoch, version=1, pools=plan)
            for host, plan in self._plans.items()
        }
        self._state = restore(ours.pools, self._last, commands, self._now)
        self._orders = NO_ORDERS
        self._rhythm.request_all(self._now)
        for pause in weather.pauses_seconds:
            self._now = round(self._now + pause, 6)
            self._measure(weather)
            self._decide()

    def log(self) -> bytes:
        """As `penstock replay --save` writes it."""
        return b"".join(map(line, [*self.settings, *self.entries]))

    def _measure(self, weather: Weather) -> None:
        """Most pools and hosts, each as simulated or with some fields that are anything."""
        for name in self._ours.pools:
            if (fields := self._fields(weather.pool_fields)) is not None:
                snapshot = msgspec.convert({**self._simulated(name), **fields}, PoolSnapshot)
                self._store(self._subjects.pool_snapshot(name), snapshot)
        for name in HOSTS:
            if (fields := self._fields(weather.host_fields)) is not None:
                host = msgspec.convert({**self._host(name), **fields}, HostSnapshot)
                self._store(self._subjects.host_snapshot(name), host)

    def _fields(self, anything: Sequence[Fields]) -> Fields | None:
        if self._random.random() < _UNMEASURED_SHARE:
            return None
        strange = anything and self._random.random() < _STRANGE_SHARE
        return self._random.choice(anything) if strange else {}

    def _simulated(self, name: str) -> dict[str, Any]:
        """A pool's queue, as a walk at random: enough to move every input of a decision."""
        chance = self._random
        waiting = self._waiting[name] = max(self._waiting.get(name, 0) + chance.randint(-9, 12), 0)
        planned = self._state.pools[name].workers if name in self._state.pools else 0
        busy = min(planned, waiting)
        oldest = chance.uniform(0, 1.5) * self._ours.pools[name].profile.sla_seconds
        return {
            "type": PoolSnapshot.__name__,
            "at": datetime.fromtimestamp(self._now, UTC),
            "pool": name,
            "queues": [name],
            "waiting": waiting,
            "running": busy,
            "oldest_waiting_seconds": oldest if waiting else 0.0,
            "waiting_ages_seconds": [oldest, oldest / 2, 0.0] if waiting else [],
            "waiting_jobs": [["01j", oldest], ["02j", oldest / 3]] if waiting else [],
            "arrival_per_second": chance.uniform(0, 8),
            "throughput_per_second": chance.uniform(0, 8),
            "service": self._quantiles(chance.uniform(0.01, 5)),
            "spawn": self._quantiles(chance.uniform(0.1, 5)),
            "workers_ready": planned,
            "workers_idle": planned - busy,
            "worker_age_seconds": 0.3,
            "worker_cpu_cores": 0.05,
            "worker_memory_bytes": 90_000_000,
        }

    def _quantiles(self, mean: float) -> dict[str, Any]:
        return {
            "count": 100,
            "mean_seconds": mean,
            "p50_seconds": mean * 0.8,
            "p95_seconds": mean * 2.5,
            "p99_seconds": mean * 4,
        }

    def _host(self, name: str) -> dict[str, Any]:
        workers = self._plans.get(name, {})
        return {
            "type": HostSnapshot.__name__,
            "at": datetime.fromtimestamp(self._now, UTC),
            "host": name,
            "cpu_cores": 16.0,
            "memory_bytes": 16 * GIB,
            "cpu_busy_cores": self._random.uniform(0, 16),
            "own_cpu_busy_cores": self._random.uniform(0, 4),
            "memory_used_bytes": 2 * GIB,
            "pools": {
                pool: PoolWorkers(planned=count, started=count, ready=count)
                for pool, count in workers.items()
            },
        }

    def _decide(self) -> None:
        self._now = round(self._now + 0.06, 6)
        while due := self._rhythm.due(self._ours.pools, self._now):
            self._round(due)

    def _round(self, due: frozenset[str]) -> None:
        inputs, through, before = self._inputs(due), self._intake.through, self._state
        outcome = decide(before, inputs, self._now)
        self._state, self._plans = outcome.state, outcome.plans
        if outcome.short:
            self._rhythm.request_whole()
        messages = self._recorder.round(before, inputs, through, outcome, self._now)
        self._tell(outcome, through)
        for one in messages:
            if ".snapshots.settings." in one.subject:  # a log that is saved begins with them
                self.settings.append(Entry(0, START, one.subject, msgspec.Raw(one.body)))
        self._recorder.stored([self._append(one.subject, one.body) for one in messages])

    def _inputs(self, due: frozenset[str]) -> Inputs:
        return Inputs(
            pools=self._ours.pools,
            measured_pools=dict(self._intake.pools),
            measured_hosts=dict(self._intake.hosts),
            strategies=self._strategies,
            policies=self._policies,
            rules=self._ours.rules,
            due=None if len(due) == len(self._ours.pools) else due,
            orders=self._standing_orders(),
        )

    def _standing_orders(self) -> Orders:
        """An operator's orders, which now and then are others."""
        chance = self._random
        if chance.random() >= _NEW_ORDERS_SHARE:
            return self._orders
        at_least = chance.randint(0, 5)
        hold = Hold(
            until=self._now + chance.uniform(0.0, 5.0),
            at_least=at_least,
            at_most=chance.choice((None, at_least + chance.randint(0, 3))),
            reason=chance.choice(("", "month end")),
        )
        host = HostStanding(state=chance.choice(("paused", "drained")))
        self._orders = Orders(
            holds={name: hold for name in self._ours.pools if chance.random() < 0.5},
            hosts={name: host for name in HOSTS if chance.random() < 0.3},
        )
        return self._orders

    def _tell(self, outcome: Outcome, through: int) -> None:
        made = Made(epoch=self._epoch, round=self._recorder.number, through=through, now=self._now)
        self.decisions += len(outcome.decisions)
        for decision in self._news.pick(outcome.decisions, set(), self._now):
            event = decision_event(decision, made, SOURCE)
            raw = encode(event)
            self.entries.append(Entry(0, self._now, self._subjects.event(event), msgspec.Raw(raw)))
            stored = SCALING_EVENTS.decode(raw)
            assert isinstance(stored, ScalingDecisionMade)
            self._last[event.pool] = stored

    def _store(self, subject: str, event: Event) -> None:
        body = encode(event)
        sequence = self._append(subject, body)
        self._intake.take(Stored(subject, sequence, datetime.fromtimestamp(self._now, UTC), body))

    def _append(self, subject: str, body: bytes) -> int:
        self._sequence += 1
        self.entries.append(Entry(self._sequence, self._now, subject, msgspec.Raw(body)))
        return self._sequence


@cache
def installed() -> Installed:
    return Installed(plugins.strategies(), plugins.policies())


def verify(log: bytes) -> Verdict:
    """What `penstock replay` finds in a log, by the strategies and policies that are installed."""
    return verify_with(log, installed())


def verify_with(log: bytes, installed: Installed) -> Verdict:
    """The same, by others."""
    entries = [entry for _, entry in read(io.BytesIO(log))]
    recomputer, verifier = Recomputer(recorded_settings(entries), installed), Verifier()
    for entry in entries:
        for found in recomputer.take(entry):
            verifier.take(found)
    return verifier.finish()


def words(verdict: Verdict) -> Iterable[str]:
    """What is not equal, for whoever reads a failed test."""
    for gap in verdict.unproven:
        yield f"round {gap.epoch}.{gap.round} cannot be recomputed: {gap.why}"
    for difference in verdict.differences:
        yield f"round {difference.epoch}.{difference.round} {difference.pool}: {difference.what}"
