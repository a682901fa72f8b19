"""The orchestrator: follows the event log, finishes what crashes cut in two, counts what belongs
together."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.orchestrator import broker_state
from penstock.orchestrator.core.shares import Shares
from penstock.orchestrator.core.unresolved import Unresolved
from penstock.orchestrator.gauges import Readings
from penstock.orchestrator.health_watch import HealthWatch
from penstock.orchestrator.hooks.runner import Hooks
from penstock.orchestrator.queue_consumers import QueueConsumers
from penstock.orchestrator.reconciling.cursor import Cursor, Position
from penstock.orchestrator.reconciling.outdated_dead_letters import OutdatedDeadLetters
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.orchestrator.reconciling.transitions import steps
from penstock.orchestrator.retention.history import History
from penstock.orchestrator.scheduling import declared_schedules
from penstock.orchestrator.scheduling.ended_schedules import EndedSchedules
from penstock.orchestrator.scheduling.foreign_schedules import ForeignSchedules
from penstock.orchestrator.scheduling.ticker import Ticker
from penstock.orchestrator.scheduling.timers import Timers
from penstock.orchestrator.workflows.suspended.long_waits import LongWaits
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.runtime import service_process
from penstock.runtime.poison_messages import skipping_poison
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

RECONCILE_AFTER_SECONDS = 8.0
"""The two halves of a transition are milliseconds apart; a longer gap is that of a crash. With the
second until the next look it is made up for within the 10 s that docs/workflows.md promises."""
MOST_UNRESOLVED = 100_000
"""Steps kept in memory: about 40 MB."""
_CHECK_SECONDS = 1.0
_KEEP_SECONDS = 5.0


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process."""
    service_process.run("orchestrator", settings, body, makes_streams=True, reread=reread)


async def body(running: Service) -> None:
    """What the service does between its start and its end."""
    await Orchestrator(running).run()


class Orchestrator:
    """Follows the event log, reconciles, and stores its position.

    Args:
        after_seconds: how old a step must be before its second half is looked up.
        most: steps kept in memory.
    """

    def __init__(
        self,
        running: Service,
        after_seconds: float = RECONCILE_AFTER_SECONDS,
        most: int = MOST_UNRESOLVED,
    ) -> None:
        self._service = running
        self._bus = running.bus
        self._subjects = Subjects(running.settings.prefix)
        self._cursor = Cursor(self._bus, self._subjects)
        self._after_seconds = after_seconds
        self._check_seconds = min(_CHECK_SECONDS, after_seconds / 3)
        self._reading = time.monotonic()
        self._read_at = 0.0
        self._following: asyncio.Task[None] | None = None
        self._client = Client.over(self._bus, running.settings, running.source)
        self._hooks = Hooks(
            self._bus, running.settings, self._client, running.source, running.meters
        )
        self.workflows = WorkflowTracker(
            self._bus, self._subjects, self._client, meters=running.meters
        )
        self.suspended = SuspendedWorkflows(
            self._bus, self._subjects, self._client, after_seconds, running.meters
        )
        self._long_waits = LongWaits(self._bus, self._subjects, self.suspended)
        self.ticker = Ticker(self._bus, self._subjects, running.source)
        self._timers = Timers(self._bus, self._subjects)
        self._ended_schedules = EndedSchedules(self._bus, self._subjects, running.pause)
        self._queues: QueueConsumers | None = None
        if isinstance(self._bus, NatsBus):
            self._queues = QueueConsumers(self._bus, self._subjects, running.settings)
        shares = Shares(serving(running.settings).owners)
        self.table = Unresolved(after_seconds, most, shares=shares)
        self.reconciler = Reconciler(self._bus, self._subjects, self.table)
        self._outdated_dead_letters = OutdatedDeadLetters(self._bus, self._subjects, after_seconds)
        self.history = History(
            self._bus,
            running.settings,
            running.source,
            self.workflows,
            self.table.dead_letters_from,
        )

    async def run(self) -> None:
        position = await self._resume()
        if position is None:
            return
        self.table.resume(position.sequence, position.dead_letters_from)
        self._follow_from(position.sequence)
        self._service.spawn(self.workflows.follow(), "batches and graphs")
        self._service.spawn(self.workflows.act(), "workflow steps")
        self._service.spawn(self.suspended.follow(), "suspended workflows")
        self._service.spawn(self.suspended.act(), "wake-ups")
        self._service.spawn(self.history.run(self._service), "history")
        self._service.spawn(self._hooks.run(self._service), "hooks")
        self._service.spawn(self.ticker.follow(), "schedules")
        self._service.spawn(self.ticker.run(), "ticks")
        declared = declared_schedules.keep(self._service, self._client)
        self._service.spawn(declared, "declared schedules")
        self._service.spawn(broker_state.forget_ended_services(self._service), "ended services")
        self._service.spawn(broker_state.keep_pauses(self._service), "queue pauses")
        self._service.spawn(self._ended_schedules.run(), "schedules of ended jobs")
        if self._queues:
            self._service.spawn(self._queues.run(), "queues")
        self._service.spawn(self._check(), "reconcile")
        self._service.spawn(self._keep(), "cursor")
        if isinstance(self._bus, NatsBus):
            applying = broker_state.apply_stream_settings(self._service, self._bus)
            self._service.spawn(applying, "stream settings")
            self._service.spawn(self._timers.run(), "timers")
            foreign = ForeignSchedules(self._service, self._bus)
            self._service.spawn(foreign.run(), "foreign schedules")
            health = HealthWatch(self._service, self._bus)
            self._service.spawn(health.run(), "health")
            self._service.meters.read(
                Readings(health, self._subjects, self.table.__len__, lambda: foreign.removed)
            )
        self._service.checks.require("event log", self._why_not_following)
        await self._service.stopping.wait()
        with suppress(BusError):
            await self._keep_positions()

    @property
    def position(self) -> Position:
        return Position(
            sequence=self.table.cursor(), dead_letters_from=self.table.dead_letters_from()
        )

    async def _resume(self) -> Position | None:
        """The stored position, once the broker answers; None when asked to stop before."""
        while True:
            try:
                await self.workflows.load()
                await self._long_waits.load()
                return await self._cursor.load()
            except BusError as error:
                log.warning("waiting for the broker: %s", error)
            if not await self._service.pause(self._check_seconds):
                return None

    # --- following -------------------------------------------------------------------------------
    def _follow_from(self, sequence: int) -> None:
        if self._following:
            self._following.cancel()
        self._following = self._service.spawn(self._follow(sequence), "event log")

    async def _follow(self, sequence: int) -> None:
        async for step in steps(self._bus, self._subjects, sequence):
            self._reading, self._read_at = time.monotonic(), step.at
            with skipping_poison(f"event {step.sequence}"):
                self.table.see(step)
                self._timers.see(step)
                self._outdated_dead_letters.see(step)
                self._ended_schedules.see(step)
                if self._queues:
                    self._queues.see(step)

    @property
    def _is_behind(self) -> bool:
        """Old events are still coming in: what seems unfinished may be finished further on."""
        pause = time.monotonic() - self._reading
        return pause < self._check_seconds and self._bus.now() - self._read_at > self._after_seconds

    def _why_not_following(self) -> str:
        if self._following is None or self._following.done():
            return "the event log is not followed"
        if self._is_behind:
            return f"it is {self._bus.now() - self._read_at:.0f} s behind the event log"
        return ""

    # --- reconciling -----------------------------------------------------------------------------
    async def _check(self) -> None:
        is_offline = False
        while await self._service.pause(self._check_seconds):
            if (sequence := self.table.read_again_from()) is not None:
                self._follow_from(sequence)
            # Behind the log, a step may look unfinished whose second half is still to be read.
            if self._is_behind:
                continue
            try:
                await self.reconciler.round(self._bus.now())
                await self._outdated_dead_letters.round(self._bus.now())
                is_offline = False
            except BusError as error:
                if not is_offline:
                    log.warning("reconciling waits for the broker: %s", error)
                is_offline = True

    async def _keep(self) -> None:
        while await self._service.pause(_KEEP_SECONDS):
            with suppress(BusError):  # it is tried again; the reconciling loop logs it
                await self._keep_positions()
                # The one that shortens the log does not fall behind its own removals.
                if not self.history.leads:
                    await self.workflows.look_for_gap()

    async def _keep_positions(self) -> None:
        await self._cursor.keep(self.position)
        await self._long_waits.keep(leads=self.history.leads)
        await self.workflows.keep()
