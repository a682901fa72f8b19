"""Extends the claims of workers that cannot do so themselves: C code holds their interpreter."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import psutil

from penstock.bus.protocol import Bus, BusError, Delivery
from penstock.bus.pull import delivery
from penstock.events.worker import Claim
from penstock.executor.recovering.returns import ACK_SUBJECT
from penstock.runtime.workers import claims_file, pulse

log = logging.getLogger("penstock.executor")

_DOES_NOT_LIVE = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE}


class Pulses:
    """Looks at workers whose loop does not get on although their process runs.

    Args:
        claim_seconds: how long a claim lasts; a loop is late when it has not beaten for half of it.
    """

    def __init__(self, bus: Bus, run_dir: Path, claim_seconds: float) -> None:
        self._bus, self._run_dir = bus, run_dir
        self._late_seconds = claim_seconds / 2
        self.look_seconds = claim_seconds / 8
        self._used: dict[str, float] = {}

    async def look(self, workers: Iterable[tuple[str, int]], now: float) -> list[str]:
        """Extends the claims of those that are late; a stopped process loses its own.

        Args:
            workers: names and process ids.
            now: monotonic seconds.

        Returns:
            The late ones that used their processor since the last look: they compute.
        """
        late: list[Delivery] = []
        used: dict[str, float] = {}
        for worker, pid in workers:
            reading = pulse.read(self._run_dir, worker)
            if reading is None or now - reading.beat_at < self._late_seconds:
                continue
            seconds = _cpu_seconds(pid)
            if seconds is not None and ACK_SUBJECT.fullmatch(reading.claim):
                late += self._running(worker, reading.claim)
                used[worker] = seconds
        computing = [name for name in used if used[name] > self._used.get(name, used[name])]
        self._used = used
        # Extended here although no worker asked: C code may compute for hours without harm.
        try:
            await self._bus.extend(late)
        except BusError as error:
            log.debug("claims not extended: %s", error)
        return computing

    def _running(self, worker: str, last: str) -> list[Delivery]:
        """The claims of the jobs that a worker runs; the one begun last where it marks none."""
        held = claims_file.read(self._run_dir, worker) or []
        begun = [one.claim for one in held if one.begun and ACK_SUBJECT.fullmatch(one.claim)]
        return [delivery("", claim.encode(), b"", None) for claim in begun or [last]]


def last_claim(run_dir: Path, worker: str) -> Claim | None:
    """Of the job that a worker began last; it may have ended."""
    reading = pulse.read(run_dir, worker)
    if reading is None:
        return None
    return Claim(job_id=reading.job_id, ack_subject=reading.claim, running_seconds=0.0)


def held_claims(run_dir: Path, worker: str) -> tuple[Claim, ...] | None:
    """What a worker held last; None where it noted nothing."""
    held = claims_file.read(run_dir, worker)
    if held is None:
        return None
    return tuple(
        Claim(job_id=one.job_id, ack_subject=one.claim, running_seconds=0.0) for one in held
    )


def begun_jobs(run_dir: Path, worker: str) -> tuple[str, ...]:
    """The jobs that a worker ran last; empty for one that runs one at a time."""
    return tuple(one.job_id for one in claims_file.read(run_dir, worker) or () if one.begun)


def _cpu_seconds(pid: int) -> float | None:
    """Of a process that runs or could; None of one that is stopped or has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() in _DOES_NOT_LIVE:
            return None
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)
