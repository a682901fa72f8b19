"""Looks after the installation's health and tells when it changes."""

from __future__ import annotations

import logging

import msgspec

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError, Expect, Outgoing, WrongSequence
from penstock.events.envelope import encode, utc_now
from penstock.events.health import HealthChanged
from penstock.events.subjects import Subjects
from penstock.health.report import Report, State
from penstock.health.rules import judge
from penstock.health.survey import REPORT_SECONDS, survey
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

INSTALLATION = "installation"


class HealthWatch:
    """Keeps the last report beside the other small state; of several orchestrators one tells.

    Args:
        bus: a real broker's; the one in memory has no health.
    """

    def __init__(self, running: Service, bus: NatsBus) -> None:
        self._service, self._bus = running, bus
        self._subjects = Subjects(running.settings.prefix)
        self._subject = self._subjects.state("health", "report")

    async def run(self) -> None:
        """Until the service ends."""
        while True:
            try:
                await self.look()
            except BusError as error:
                log.debug("health is not told: %s", error)
            if not await self._service.pause(REPORT_SECONDS):
                return

    async def look(self) -> Report:
        """Finds out how things are, keeps it, and tells what changed. Raises BusError."""
        stored = await self._bus.last(self._subjects.state_stream, self._subject)
        report = judge(await survey(self._bus, self._service.settings), utc_now())
        expect = Expect(stored.sequence if stored else 0)
        try:
            body = msgspec.json.encode(report)
            await self._bus.append(Outgoing(self._subject, body, expect=expect))
        except WrongSequence:  # another orchestrator looked at the same time, and tells
            return report
        for event in changes(_before(stored.body if stored else b""), report):
            told = msgspec.structs.replace(event, source=self._service.source)
            log.warning("%s is %s: %s", event.component, event.state, "; ".join(event.reasons))
            await self._bus.append(Outgoing(self._subjects.event(told), encode(told)))
        return report


def changes(before: Report | None, after: Report) -> list[HealthChanged]:
    """An event for each component whose state is another; at first all that are not healthy."""
    old = {finding.component: finding.state for finding in before.findings} if before else {}
    found = [(each.component, each.state, each.reasons) for each in after.findings]
    found.append((INSTALLATION, after.state, ()))
    old[INSTALLATION] = before.state if before else State.HEALTHY
    return [
        HealthChanged(component=name, state=state, before=was, reasons=reasons)
        for name, state, reasons in found
        if (was := old.get(name, State.HEALTHY)) is not state
    ]


def _before(body: bytes) -> Report | None:
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.MsgspecError:  # none, or of another version
        return None
