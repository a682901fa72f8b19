"""Surveys the installation's health and publishes its changes."""

from __future__ import annotations

import logging

import msgspec

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError, Expect, Outgoing, WrongSequence
from penstock.events.envelope import encode, utc_now
from penstock.events.health import HealthChanged
from penstock.events.subjects import Subjects
from penstock.health.durability import in_one_line
from penstock.health.facts import Facts
from penstock.health.growth import DiskGrowth
from penstock.health.report import Report, State
from penstock.health.rules import judge
from penstock.health.survey import REPORT_SECONDS, Tried, survey
from penstock.runtime.service import Service
from penstock.views.blocked_workflows import with_blocked
from penstock.views.schedule_drift import with_drift

log = logging.getLogger("penstock.orchestrator")

INSTALLATION = "installation"
_MOST_EXCLUDED = 1_000
"""Excluded queues that are logged: their names are not ours to bound."""


class Remembered(Tried, frozen=True, kw_only=True):
    """Shared by orchestrators: the last report, and the last published state of each component."""

    report: Report | None = None
    published: dict[str, State] = msgspec.field(default_factory=dict, name="told")


class HealthWatch:
    """Keeps the last report beside the other small state; of several orchestrators one publishes.

    Args:
        bus: a real broker's; the one in memory has no health.
    """

    def __init__(self, running: Service, bus: NatsBus) -> None:
        self._service, self._bus = running, bus
        self._subjects = Subjects(running.settings.prefix)
        self._subject = self._subjects.state("health", "report")
        self.last: tuple[Facts, Report] | None = None
        self._disks = DiskGrowth()
        self._stores = True
        self._excluded_seen: set[str] = set()

    async def run(self) -> None:
        """Until the service ends."""
        while True:
            try:
                await self.look()
            except BusError as error:
                log.debug("health is not surveyed: %s", error)
            if not await self._service.pause(REPORT_SECONDS):
                return

    def _log_once(self, facts: Facts, report: Report) -> None:
        """What jobs survive, at the first survey; and that the broker stores no events."""
        if self.last is None and report.durability:
            log.info("%s", in_one_line(report.durability))
        stores = not facts.broker.write_error
        if stores != self._stores:
            self._stores = stores
            if stores:
                log.warning("the broker stores again")
            else:
                log.error("%s", _reasons_of(report, "broker"))

    def _log_excluded(self, facts: Facts) -> None:
        """Once for each excluded queue that is seen to hold jobs."""
        for queue in facts.unserved:
            is_new = queue.excluded and queue.name not in self._excluded_seen
            if is_new and len(self._excluded_seen) < _MOST_EXCLUDED:
                self._excluded_seen.add(queue.name)
                text = "queue %s is excluded: its %d jobs wait for 'penstock worker --queue %s'"
                log.info(text, queue.name, queue.jobs, queue.name)

    async def look(self) -> Report:
        """Surveys the installation, stores the report, publishes what changed. Raises BusError."""
        stored = await self._bus.last(self._subjects.state_stream, self._subject)
        before = _before(stored.body if stored else b"")
        surveyed = await survey(self._bus, self._service.settings, serves=True)
        facts = await with_drift(self._disks.grown(surveyed), self._bus, self._service.settings)
        facts = await with_blocked(facts, self._bus, self._service.settings)
        report = judge(facts, utc_now())
        self._log_once(facts, report)
        self._log_excluded(facts)
        self.last = (facts, report)
        events = changes(before, report)
        published = before.published | {event.component: State(event.state) for event in events}
        # Of several orchestrators that survey at once, the compare-and-set lets one publish.
        expect = Expect(stored.sequence if stored else 0)
        try:
            kept = Remembered(
                report=report, published=published, write_error=facts.broker.write_error
            )
            body = msgspec.json.encode(kept)
            await self._bus.append(Outgoing(self._subject, body, expect=expect))
        except WrongSequence:  # another orchestrator surveyed at the same time, and publishes
            return report
        for blank in events:
            event = msgspec.structs.replace(blank, source=self._service.source)
            level = logging.INFO if event.state == State.HEALTHY else logging.WARNING
            log.log(level, "%s", sentence(event))
            await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))
        return report


def sentence(event: HealthChanged) -> str:
    """A change for people."""
    if not event.reasons:
        return f"{event.component} is {event.state} again"
    return f"{event.component} is {event.state}: {'; '.join(event.reasons)}"


def changes(before: Remembered, after: Report) -> list[HealthChanged]:
    """An event for each component whose state differs from the published one, in two surveys.

    Short changes are not published: a pool that is just being scaled up is short of workers for a
    moment.
    """
    was, now = _states(before.report), _states(after)
    reasons = {finding.component: finding.reasons for finding in after.findings}
    reasons[INSTALLATION] = tuple(
        f"{finding.component}: {finding.state}"
        for finding in after.findings
        if finding.state is not State.HEALTHY
    )
    events = []
    for name, state in now.items():
        last_published = before.published.get(name, State.HEALTHY)
        if last_published is not state and was.get(name) is state:
            event = HealthChanged(
                component=name,
                state=state,
                before=last_published,
                reasons=reasons.get(name, ()),
            )
            events.append(event)
    return events


def _reasons_of(report: Report, component: str) -> str:
    reasons = (one.reasons for one in report.findings if one.component == component)
    return "; ".join(next(reasons, ()))


def _states(report: Report | None) -> dict[str, State]:
    if report is None:
        return {}
    return {one.component: one.state for one in report.findings} | {INSTALLATION: report.state}


def _before(body: bytes) -> Remembered:
    try:
        return msgspec.json.decode(body, type=Remembered)
    except (ValueError, RecursionError):  # none, or of another version
        return Remembered()
