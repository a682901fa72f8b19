"""Health reports schedules that are not stored as the settings declare them."""

from __future__ import annotations

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import utc_now
from penstock.health.facts import BrokerFacts, Facts
from penstock.health.report import State
from penstock.health.rules import judge
from penstock.jobs import Client, job
from penstock.jobs.schedules.declaration import in_settings
from penstock.testing.memory.bus import MemoryBus
from penstock.views.schedule_drift import with_drift


@job(queue="clock", name="drift_tests.tidy")
def tidy() -> None: ...


def declaring(cron: str) -> Settings:
    return check({"schedules": {"nightly": {"job": tidy.name, "cron": cron}}})


async def reasons(bus: MemoryBus, settings: Settings) -> tuple[State, tuple[str, ...]]:
    facts = await with_drift(Facts(broker=BrokerFacts()), bus, settings)
    [finding] = [f for f in judge(facts, utc_now()).findings if f.component == "schedules"]
    return finding.state, finding.reasons


async def test_what_is_not_stored_as_declared_is_a_finding() -> None:
    bus, settings = MemoryBus(), declaring("0 3 * * *")
    schedules = Client.over(bus, settings).schedules
    assert await reasons(bus, Settings()) == (State.HEALTHY, ())

    state, [text] = await reasons(bus, settings)
    assert (state, "nightly is missing" in text) == (State.WARNING, True)
    assert "penstock schedule sync" in text

    await schedules.sync(in_settings(settings))
    assert await reasons(bus, settings) == (State.HEALTHY, ())

    _, [text] = await reasons(bus, declaring("0 4 * * *"))
    assert "nightly is changed" in text
    _, [text] = await reasons(bus, declaring("never"))
    assert "no cron expression" in text
    _, [text] = await reasons(bus, Settings())
    assert "nightly is undeclared" in text
