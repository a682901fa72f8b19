"""Looks for stuck jobs among this host's workers, and recovers them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import BusError
from penstock.config import Settings
from penstock.events.recovering import Strategy, Suspect
from penstock.events.worker import Claim, WorkerReport, WorkerStuck
from penstock.executor.core.facts import Condemned
from penstock.executor.core.stuck import (
    HEARTBEAT,
    RUN_TIME,
    Case,
    Parts,
    Usual,
    Vital,
    score,
)
from penstock.executor.core.worker import Worker
from penstock.executor.executor import Executor
from penstock.executor.recovering.job_recovery import Recovery
from penstock.executor.recovering.vitals import Process, Vitals

log = logging.getLogger("penstock.executor")

ROUND_SECONDS = 3.0
"""Three looks fit into the 10 s within which a score must be confirmed."""
_UNSEEN = Process("unknown", 0)


class StuckWatch:
    """Knows how long jobs take here, and looks at those that take long and are silent.

    Args:
        announce: takes the event of a stuck worker.
    """

    def __init__(
        self,
        executor: Executor,
        settings: Settings,
        recovery: Recovery,
        announce: Callable[[WorkerStuck], None],
    ) -> None:
        self._executor, self._recovery, self._announce = executor, recovery, announce
        self._settings, self._host = settings.stuck, settings.host.name
        self._vitals = Vitals()
        self._usual: dict[str, Usual] = {}
        self._first_memory: dict[str, tuple[str, int]] = {}
        self._cases: dict[str, Case] = {}

    def learn(self, report: WorkerReport) -> None:
        """Takes in what a worker reports."""
        for queue, done in report.queues.items():
            self._usual[queue] = self._usual.get(queue, Usual()).learn(done)
        running = longest(report.claims)
        first = self._first_memory.get(report.worker)
        if running is None:
            self._first_memory.pop(report.worker, None)
        elif first is None or first[0] != running.job_id:
            self._first_memory[report.worker] = (running.job_id, report.memory_bytes)

    def take_settings(self, settings: Settings) -> None:
        """Judges by new settings from the next look on."""
        self._settings = settings.stuck

    async def look(self) -> None:
        """One look at all running jobs; a job that is stuck often enough in a row is recovered."""
        now = time.monotonic()
        cases: dict[str, Case] = {}
        for suspect in list(self.suspects(now)):
            case = self._cases.get(suspect.job_id, Case()).look(suspect.score, now, self._settings)
            if case.confirmed(self._settings):
                await self.recover(suspect, self._settings.strategy)
                case = Case()
            cases[suspect.job_id] = case
        self._cases = cases

    async def recover(self, suspect: Suspect, strategy: Strategy) -> Suspect:
        """Takes the job away and, unless the strategy is graceful, ends its worker.

        A worker that runs several jobs ends itself, after the others, if this one does not stop.

        Returns:
            ``suspect`` with what was done.
        """
        self._announce(_event(suspect, strategy))
        if strategy == "off":
            return replace(suspect, outcome="left alone")
        reason = f"stuck: score {suspect.score:.2f}, silent for {suspect.silent_seconds:.0f} s"
        try:
            taken = await self._recovery.recover(suspect.job_id, suspect.worker, reason, strategy)
            if not taken:
                return replace(suspect, outcome="not running there any more")
            log.warning("job %s of worker %s: %s", suspect.job_id, suspect.worker, reason)
            await self._recovery.wake(suspect.job_id)
        except BusError as error:
            log.warning("job %s is stuck and cannot be recovered now: %s", suspect.job_id, error)
            return replace(suspect, outcome=f"failed: {error}")
        worker = self._executor.fleet.workers.get(suspect.worker)
        if strategy != "graceful" and (worker is None or worker.slots == 1):
            self._executor.learn(Condemned(worker=suspect.worker))
        return replace(suspect, outcome=strategy)

    def suspects(self, now: float, threshold: float | None = None) -> Iterator[Suspect]:
        """Running jobs whose score may be above the threshold, with their score.

        Args:
            now: monotonic seconds.
            threshold: instead of the configured one.
        """
        limit = self._settings.threshold if threshold is None else threshold
        workers = [w for w in self._executor.fleet.workers.values() if w.pid is not None]
        self._vitals.forget_others([w.pid for w in workers if w.pid is not None])
        for worker in workers:
            process: Process | None = None
            for claim in _running(worker):
                blind = score(self._vital(worker, claim, _UNSEEN, now), self._settings)
                if _most(blind) > limit:  # asking the kernel costs more than all the rest
                    process = process or self._vitals.look(worker.pid or 0, now) or _UNSEEN
                    vital = self._vital(worker, claim, process, now)
                    yield self._suspect(worker, claim, vital, score(vital, self._settings))

    def _vital(self, worker: Worker, claim: Claim, process: Process, now: float) -> Vital:
        unreported = now - (worker.reported_at or now)
        job_id, first = self._first_memory.get(worker.name, ("", 0))
        usual = self._usual.get(claim.queue, Usual())
        return Vital(
            silent_seconds=claim.silent_seconds + unreported,
            running_seconds=claim.running_seconds + unreported,
            expected_seconds=usual.expected_seconds(self._settings.expected_seconds),
            memory_bytes=process.memory_bytes,
            first_memory_bytes=first if job_id == claim.job_id else process.memory_bytes,
            process=process.state,
        )

    def _suspect(self, worker: Worker, claim: Claim, vital: Vital, parts: Parts) -> Suspect:
        return Suspect(
            job_id=claim.job_id,
            queue=claim.queue,
            host=self._host,
            worker=worker.name,
            pool=worker.pool,
            pid=worker.pid or 0,
            running_seconds=vital.running_seconds,
            silent_seconds=vital.silent_seconds,
            score=parts.score,
            heartbeat=parts.heartbeat,
            run_time=parts.run_time,
            memory=parts.memory,
            process_part=parts.process,
            process=vital.process,
        )


def _running(worker: Worker) -> tuple[Claim, ...]:
    """What a worker runs, as far as it is reported."""
    if worker.slots > 1:
        return worker.claims
    claim = longest(worker.claims)
    return () if claim is None else (claim,)


def longest(claims: tuple[Claim, ...]) -> Claim | None:
    """Of what a worker holds, the job that has run longest: the one that runs."""
    return max(claims, key=lambda claim: claim.running_seconds, default=None)


def _most(blind: Parts) -> float:
    """What the score is at worst, as long as the process was not looked at."""
    return HEARTBEAT * blind.heartbeat + RUN_TIME * blind.run_time + (1 - HEARTBEAT - RUN_TIME)


def _event(suspect: Suspect, strategy: Strategy) -> WorkerStuck:
    fields = msgspec.structs.asdict(suspect)
    names = ("worker", "host", "pool", "pid", "job_id", "queue", "score", "heartbeat", "run_time")
    return WorkerStuck(
        **{name: fields[name] for name in names},
        memory=suspect.memory,
        process=suspect.process_part,
        strategy=strategy,
    )
