"""One run of the demo: dispatches the load, kills two processes, waits, and judges."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from examples.demonstration import incidents, load, view
from examples.demonstration.audit import audit
from examples.demonstration.figures import figures
from examples.demonstration.following import Following
from examples.demonstration.installation import Installation
from examples.demonstration.kills import (
    Busy,
    Kill,
    NothingToKill,
    busy_workers,
    kill_leader,
    kill_worker,
)
from examples.demonstration.plotted import Plotted
from examples.demonstration.recording import Recording, height
from examples.demonstration.replaying import replay
from examples.demonstration.report import Report
from examples.demonstration.screen import Screen

from penstock.bus.protocol import Bus
from penstock.config.topology import pools
from penstock.events.envelope import Event, utc_now
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.views.pool_board import Board

KILL_WORKER_AT, KILL_LEADER_AT = 23.0, 43.0
KILLED_POOL = "thumbnails"
BUSY_SINCE_SECONDS = 0.1
"""The worker that is killed is in the middle of a job, and its executor knows of which."""
_READY_SECONDS, _WARM_SECONDS, _LAST_JOB_SECONDS, _CALM_SECONDS = 30.0, 20.0, 20.0, 6.0
_DRAW_SECONDS = 0.25


class NotReady(RuntimeError):
    """The installation did not become ready in time."""


class Demo:
    """One run, from the first process to the verdict.

    Args:
        installation: prepared, not started.
        bus: connected to its broker.
        screen: shows the run.
        seed: of the load.
    """

    def __init__(self, installation: Installation, bus: Bus, screen: Screen, seed: int) -> None:
        self._installation, self._bus = installation, bus
        self._screen, self._seed = screen, seed
        self._settings = installation.settings
        self._pools = tuple(pools(installation.settings).values())
        self._subjects = Subjects(self._settings.prefix)
        self._recording = Recording({q: pool.name for pool in self._pools for q in pool.queues})
        self._board = Board()
        self._following = Following(bus, self._subjects, self._recording, self._board)
        self._following.received = self._show_event
        self._client = Client(bus, prefix=self._settings.prefix)
        self._dispatched: list[str] = []
        self._kills: list[Kill] = []
        self._trouble: list[str] = []
        self._begins = self._ends = 0.0

    async def run(self) -> tuple[Report, Plotted]:
        """Runs it; returns the report and what the picture shows."""
        self._installation.report = self._report
        self._installation.start()
        background = [
            asyncio.create_task(self._following.run()),
            asyncio.create_task(self._draw()),
        ]
        offering = asyncio.create_task(self._run_phases())
        try:
            await asyncio.wait([offering, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()  # raises what ended it
            await offering
        finally:
            for task in (offering, *background):
                task.cancel()
            await asyncio.gather(offering, *background, return_exceptions=True)
        return await self._judge()

    # --- the phases ------------------------------------------------------------------------------
    async def _run_phases(self) -> None:
        await self._until_ready()
        await self._warm_spark()
        self._begins = time.time()
        self._report("the load begins")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offer())
            group.create_task(self._kill_a_worker())
            group.create_task(self._kill_the_leader())
        if not await self._following.until(self._all_ended, _LAST_JOB_SECONDS):
            left = sum(job.ended_at is None for job in self._recording.jobs.values())
            self._trouble.append(
                f"{left} jobs had not ended {_LAST_JOB_SECONDS:g} s after the last"
            )
        self._ends = max(time.time(), self._begins + load.SECONDS)
        await self._following.until(self._all_calm, _CALM_SECONDS)
        self._ends = max(self._ends, time.time())

    async def _until_ready(self) -> None:
        def ready() -> bool:
            now = time.time()
            return bool(self._recording.leaders) and all(
                height(self._recording.ready(pool.name), now) >= pool.profile.min_workers
                for pool in self._pools
            )

        if not await self._following.until(ready, _READY_SECONDS):
            raise NotReady(f"no leader, or not each pool's first worker, in {_READY_SECONDS:g} s")
        self._report("broker, services and the first workers are ready")

    async def _warm_spark(self) -> None:
        """One job of each kind, so that the host's one JVM runs when the load begins."""
        dice = random.Random(self._seed)
        for number in range(2):
            call = load.report(str(self._installation.lake), number, dice)
            self._dispatched.append(await self._client.dispatch(call))
        warm = await self._following.until(self._all_ended, _WARM_SECONDS)
        self._report("Spark is warm" if warm else "Spark is still starting")

    async def _offer(self) -> None:
        offered = load.arrivals(load.streams(str(self._installation.lake)), self._seed)
        for arrival in offered:
            await self._pause_until(arrival.at)
            self._dispatched.append(await self._client.dispatch(arrival.call))
        self._report(f"the last of {len(offered)} jobs is dispatched")

    async def _kill_a_worker(self) -> None:
        await self._pause_until(KILL_WORKER_AT)
        await self._following.until(lambda: bool(self._busy()), _LAST_JOB_SECONDS)
        self._kill(lambda: kill_worker(self._busy(), time.time()))

    async def _kill_the_leader(self) -> None:
        await self._pause_until(KILL_LEADER_AT)
        self._kill(lambda: kill_leader(self._recording, self._installation, time.time()))

    def _kill(self, strike: Callable[[], Kill]) -> None:
        try:
            kill = strike()
        except NothingToKill as error:
            self._trouble.append(str(error))
            return
        self._kills.append(kill)
        whom = f"worker {kill.worker} in mid-job" if kill.worker else "the decider that leads"
        self._report(f"SIGKILL to {whom} (process {kill.pid})", "bold red")

    async def _pause_until(self, at: float) -> None:
        if (left := self._begins + at - time.time()) > 0:
            await asyncio.sleep(left)

    # --- the recording ---------------------------------------------------------------------------
    def _busy(self) -> Sequence[Busy]:
        return busy_workers(self._recording, KILLED_POOL, time.time() - BUSY_SINCE_SECONDS)

    def _all_ended(self) -> bool:
        jobs = self._recording.jobs
        return len(jobs) >= len(self._dispatched) and all(
            job.ended_at is not None for job in jobs.values()
        )

    def _all_calm(self) -> bool:
        """Every pool is back at its minimum: the end of the picture."""
        now = time.time()
        return all(
            height(self._recording.started(pool.name), now) <= pool.profile.min_workers
            for pool in self._pools
        )

    async def _judge(self) -> tuple[Report, Plotted]:
        proof = await audit(self._bus, self._subjects, self._dispatched)
        pools_figures = tuple(
            figures(self._recording, pool, self._begins, self._ends) for pool in self._pools
        )
        report = Report(
            pools=pools_figures,
            audit=proof,
            incidents=incidents.sentences(self._recording, self._kills, self._begins),
            notes=incidents.notes(self._recording, proof),
            replay=await replay(self._bus, self._subjects, self._installation.folder),
            trouble=(
                *self._trouble,
                *self._following.malformed,
                *incidents.unrecovered(self._recording, self._kills),
            ),
        )
        return report, Plotted(
            recording=self._recording,
            pools=pools_figures,
            kills=tuple(self._kills),
            begins=self._begins,
            ends=self._ends,
            title=_title(report),
            subtitle=_subtitle(report, self._kills),
        )

    # --- what is shown ---------------------------------------------------------------------------
    async def _draw(self) -> None:
        lease = self._settings.host.lease_seconds
        while True:
            at = self._at(time.time())
            lines = view.lines(self._recording, self._board, self._pools, lease, utc_now())
            self._screen.draw(at, view.phase(at), lines)
            await asyncio.sleep(_DRAW_SECONDS)

    def _show_event(self, event: Event, at: float) -> None:
        if text := incidents.news(event, self._recording, self._kills):
            self._screen.report(self._at(at), text, "yellow")

    def _report(self, text: str, style: str = "") -> None:
        self._screen.report(self._at(time.time()), text, style)

    def _at(self, now: float) -> float:
        return now - self._begins if self._begins else -1.0


def _title(report: Report) -> str:
    kept = all(pool.kept for pool in report.pools)
    return "Penstock kept its promises" if kept else "Penstock broke a promise"


def _subtitle(report: Report, kills: Sequence[Kill]) -> str:
    jobs, late = (sum(getattr(pool, name) for pool in report.pools) for name in ("jobs", "late"))
    used = sum(pool.worker_seconds for pool in report.pools)
    fixed = sum(pool.fixed_worker_seconds for pool in report.pools)
    saved = f"{1 - used / fixed:.0%} fewer worker-seconds than a fleet fixed at the peak"
    killed = " and ".join("a worker" if kill.worker else "the leading decider" for kill in kills)
    return f"{jobs} jobs, {late} late; {saved}" + (f"; {killed} killed" if kills else "")
