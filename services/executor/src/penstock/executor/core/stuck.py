"""Whether a running job is stuck: a weighted score, and how often it must be too high. Pure.

``0.4 heartbeat + 0.3 run time + 0.15 memory + 0.15 process``, each from 0 (well) to 1. No single
part, and no two of them, reach the threshold of 0.7 alone: a job that is only slow, or only silent,
is left alone.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.config.hosts import Stuck
from penstock.events.worker import QueueReport

HEARTBEAT, RUN_TIME, MEMORY, PROCESS = 0.4, 0.3, 0.15, 0.15

IDLE: Final = "idle"
"""A process that waits and has used next to no CPU since the last look; not one of the kernel's."""
_BADNESS: Final = {
    "stopped": 1.0,
    "tracing-stop": 1.0,
    "zombie": 1.0,
    "dead": 1.0,
    "disk-sleep": 0.75,
    IDLE: 0.5,
}
_STEADY: Final = 1.1
"""Growth up to this is no growth: memory never stands quite still."""
_FEWEST_JOBS: Final = 20
"""Fewer samples give no expected run time."""
_KEPT_SHARE: Final = 0.99
"""Weight of earlier jobs, each time that further jobs of the queue ended."""


class Vital(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of one running job.

    Attributes:
        silent_seconds: since the job gave a sign of its own that work goes on.
        expected_seconds: how long jobs of its queue run at most, as a rule.
        memory_bytes: of its process.
        first_memory_bytes: when it was first seen.
        process: state as psutil names it, or :data:`IDLE`.
    """

    silent_seconds: float
    running_seconds: float
    expected_seconds: float
    memory_bytes: int
    first_memory_bytes: int
    process: str


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Each part of the score, 0 to 1."""

    heartbeat: float
    run_time: float
    memory: float
    process: float

    @property
    def score(self) -> float:
        return (
            HEARTBEAT * self.heartbeat
            + RUN_TIME * self.run_time
            + MEMORY * self.memory
            + PROCESS * self.process
        )


def score(vital: Vital, settings: Stuck) -> Parts:
    """The parts of a job's score."""
    expected = max(vital.expected_seconds, 1e-9)
    grown = vital.memory_bytes / max(vital.first_memory_bytes, 1)
    return Parts(
        heartbeat=_share(vital.silent_seconds / settings.silent_seconds),
        run_time=_share((vital.running_seconds / expected - 1) / (settings.longer - 1)),
        memory=_share((grown - _STEADY) / (settings.memory_growth - _STEADY)),
        process=_BADNESS.get(vital.process, 0.0),
    )


class Case(msgspec.Struct, frozen=True):
    """When the score of a job was too high lately, monotonic seconds."""

    seen_at: tuple[float, ...] = ()

    def look(self, total: float, now: float, settings: Stuck) -> Case:
        """After another look; one that finds the job well clears it."""
        if total <= settings.threshold:
            return Case()
        recent = tuple(at for at in self.seen_at if now - at <= settings.within_seconds)
        return Case((*recent, now))

    def confirmed(self, settings: Stuck) -> bool:
        return len(self.seen_at) >= settings.looks


class Usual(msgspec.Struct, frozen=True):
    """How long jobs of a queue ran on this host: sums that forget slowly."""

    count: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

    def learn(self, report: QueueReport) -> Usual:
        """With what a worker did since its last report."""
        if not report.finished:
            return self
        return replace(
            self,
            count=self.count * _KEPT_SHARE + report.finished,
            seconds=self.seconds * _KEPT_SHARE + report.service_sum_seconds,
            squares=self.squares * _KEPT_SHARE + report.service_sum_squares,
        )

    def expected_seconds(self, otherwise: float) -> float:
        """Mean and three standard deviations; ``otherwise`` while too few jobs were seen."""
        if self.count < _FEWEST_JOBS:
            return otherwise
        mean = self.seconds / self.count
        variance = max(self.squares / self.count - mean * mean, 0.0)
        return float(mean + 3 * variance**0.5)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
