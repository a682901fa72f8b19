"""The decider's own metrics, and its readiness checks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from penstock.bus.clock import BrokerClock
from penstock.decider.core.conclude import Decision
from penstock.decider.intake import Intake
from penstock.events.scaling import ScalingDecisionMade
from penstock.runtime.lease import Lease, Term
from penstock.telemetry import metrics, snapshot_readings
from penstock.telemetry.checks import Checks
from penstock.telemetry.meters import Meters, Reading


class Readings:
    """The metrics of one process over all its terms; in between it makes no decisions."""

    def __init__(self, meters: Meters, intake: Intake, clock: BrokerClock) -> None:
        self._meters, self._intake, self._clock = meters, intake, clock
        self._decided: dict[str, Decision] = {}
        self._term: Term | None = None
        meters.read(self)

    def leads(self, term: Term) -> None:
        self._term, self._decided = term, {}

    def round(
        self,
        decisions: Sequence[Decision],
        published: Sequence[ScalingDecisionMade],
        seconds: float,
    ) -> None:
        """Counts a round.

        Args:
            decisions: all that it made.
            published: those that became events.
            seconds: that it took.
        """
        self._decided.update({decision.pool: decision for decision in decisions})
        self._meters.count(metrics.ROUNDS, "done")
        self._meters.observe(metrics.ROUND, seconds)
        for event in published:
            self._meters.count(metrics.DECISIONS, event.pool, _direction(event))

    def failed(self) -> None:
        self._meters.count(metrics.ROUNDS, "failed")

    def commanded(self, count: int) -> None:
        self._meters.count(metrics.COMMANDS, by=count)

    def __call__(self) -> Iterable[Reading]:
        term = self._term
        leading = term is not None and term.held
        yield Reading(metrics.LEADING, float(leading))
        now = self._clock.now()
        for name, measurement in self._intake.pools.copy().items():
            yield Reading(metrics.SEEN_AGE, max(now - measurement.at, 0.0), (name,))
        if term is None or not leading:
            return
        yield Reading(metrics.EPOCH, term.epoch)
        for decision in self._decided.copy().values():
            yield from snapshot_readings.of_decision(decision)


def _direction(made: ScalingDecisionMade) -> str:
    if made.target == made.current:
        return "same"
    return "up" if made.target > made.current else "down"


def require(checks: Checks, intake: Intake, lease: Lease, stale_seconds: float) -> None:
    """Ready: a decider leads, and measurements come in."""

    def fresh() -> str:
        ages = [time.time() - measurement.at for measurement in intake.pools.copy().values()]
        if not ages:
            return "no snapshot of a pool came yet; does the metrics service run?"
        stale = min(ages) > stale_seconds
        return f"the newest snapshot of a pool is {min(ages):.0f} s old" if stale else ""

    checks.require("leader", lambda: "" if lease.is_held else "no decider leads")
    checks.require("snapshots", fresh)
