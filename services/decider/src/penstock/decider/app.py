"""The decider service: a warm standby that leads when the lease is free."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import suppress

from penstock.bus.clock import BrokerClock
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.decider import garbage, plugins
from penstock.decider.core import registry
from penstock.decider.core.inputs import Rules
from penstock.decider.core.policies import shipped
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.registry import Strategies
from penstock.decider.intake import Intake
from penstock.decider.leader import Leader, Setting
from penstock.decider.lease import leadership
from penstock.decider.own_metrics import Readings, require
from penstock.decider.program import program
from penstock.decider.publishing.adopting import Adopted, adopt
from penstock.decider.rhythm import Rhythm
from penstock.decider.standing_orders import StandingOrders
from penstock.events.envelope import new_id
from penstock.events.subjects import Subjects
from penstock.runtime import service_process
from penstock.runtime.lease import Term
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service

log = logging.getLogger("penstock.decider")


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process; raises ConfigError before anything starts."""
    check(settings)
    service_process.run("decider", settings, body, reread=reread, check=check)


def check(settings: Settings) -> None:
    """Raises ConfigError where no decider could work with these settings."""
    adopted(settings, plugins.strategies(), plugins.policies())


def adopted(settings: Settings, strategies: Strategies, policies: Policies) -> Adopted:
    """The settings that this decider works with; raises ConfigError where it cannot."""
    configured = pools(settings)
    registry.check(configured, strategies)
    shipped.check(configured, policies)
    return adopt(configured, Rules.of(settings), strategies, policies)


async def body(running: Service) -> None:
    """The service between its start and its end."""
    garbage.look_rarely()
    await Decider(running).run()


class Decider:
    """Follows the snapshots all the time, so that it can decide the moment it leads."""

    def __init__(self, running: Service) -> None:
        settings, clock, rhythm = running.settings, BrokerClock(), Rhythm()
        subjects = Subjects(settings.prefix)
        strategies, policies = plugins.strategies(), plugins.policies()
        in_force = adopted(settings, strategies, policies)
        holder = re.sub(r"[^A-Za-z0-9_-]", "-", running.source)[:40] + "-" + new_id()[-8:]
        intake = Intake(settings, in_force.pools, rhythm)
        self._service = running
        self._setting = Setting(
            bus=running.bus,
            subjects=subjects,
            holder=holder,
            source=running.source,
            pools=in_force.pools,
            strategies=strategies,
            policies=policies,
            rules=in_force.rules,
            clock=clock,
            intake=intake,
            rhythm=rhythm,
            orders=StandingOrders(running.bus, subjects, self._decide_at_once),
            repeat_seconds=settings.decider.repeat_seconds,
            readings=Readings(running.meters, intake, clock),
        )
        self._lease = leadership(
            running.bus, subjects, holder, settings.decider.lease_seconds, clock=clock
        )
        self._term: Term | None = None
        require(running.checks, intake, self._lease, settings.decider.stale_seconds)

    async def run(self) -> None:
        """Until the service is stopped; then lets the lease go, so that another leads at once."""
        setting = self._setting
        if excluded := self._service.settings.excluded:
            log.info("queues left alone, as they are excluded: %s", ", ".join(excluded))
        self._service.spawn(setting.intake.follow(setting.bus, setting.subjects), "snapshots")
        self._service.spawn(setting.orders.follow(), "orders")
        self._service.spawn(self._lease.watch(), "lease")
        leading = self._service.spawn(self._campaign_and_lead(), "leader")
        await self._service.stopping.wait()
        leading.cancel()
        with suppress(asyncio.CancelledError):
            await leading
        if self._term is not None:
            await self._lease.release(self._term)

    def _decide_at_once(self) -> None:
        self._setting.rhythm.request_all(time.monotonic())
        self._setting.intake.changed.set()

    async def _campaign_and_lead(self) -> None:
        log.info("standing by for the lease, as %s, program %s", self._setting.holder, program())
        while True:
            self._term = await self._lease.campaign()
            self._setting.readings.leads(self._term)
            keeping = self._service.spawn(self._lease.keep(self._term), "renewal")
            try:
                await Leader(self._setting, self._term).lead()
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            self._term.end("the lease ran out")
