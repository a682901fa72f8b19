"""What the console publishes about itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched, get
from tests.waiting import eventually

from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.console.read_models import broker_silence, projection
from penstock.console.read_models.broker_silence import BrokerSilence
from penstock.console.watching import watch
from penstock.runtime.service import Service


@pytest.fixture
def service(site: Site) -> Service:
    made = Service("console", site.settings, site.bus)
    watch(made, site.console)
    return made


async def test_position_lag_and_files_are_measured(site: Site, service: Service) -> None:
    last = await site.store(dispatched(1), dispatched(2))
    values = {one.metric.name: one.value for one in service.meters.samples()}  # type: ignore[union-attr]
    assert values["penstock.console.position"] == last
    assert values["penstock.console.folded"] == 2
    assert values["penstock.console.behind"] == 0
    assert values["penstock.console.rebuilding"] == 0
    assert values["penstock.console.open_pages"] == 0
    assert values["penstock.console.database"] > 10_000
    assert service.checks.reasons()["rows"] == ""


async def test_it_is_not_ready_while_its_rows_are_old(
    site: Site, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.store(dispatched(1))
    now = site.bus.now() + 12
    monkeypatch.setattr(site.bus, "now", lambda: now)
    site.console.projection._is_caught_up = False
    reason = service.checks.reasons()["rows"]
    assert reason.endswith("s behind the event log")
    assert reason.startswith("the rows are 1")
    site.console.projection._shed()
    assert "points of one second are not kept" in service.checks.reasons()["rows"]
    assert site.console.hub.pace_seconds == 1.0
    assert not site.console.measurements.keeps_seconds
    [behind] = [one for one in (await get(site, "/attention"))["items"] if one["kind"] == "behind"]
    assert "pages are sent changes once a second" in behind["text"]
    monkeypatch.undo()
    site.console.projection._is_caught_up = True
    site.console.projection._shed()
    assert (site.console.standing.held_back, site.console.hub.pace_seconds) == ((), 0.1)


async def test_a_broker_that_hangs_is_stated_although_the_connection_stands(
    site: Site, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.store(dispatched(1))
    monkeypatch.setattr(broker_silence, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(projection, "_COMPARE_SECONDS", 0.01)
    hangs = asyncio.Event()

    async def unanswered(_: str) -> None:
        hangs.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(site.bus, "extent", unanswered)
    await hangs.wait()
    await eventually(lambda: site.console.standing.silent_since, 10, "the silence")
    health = await get(site, "/health")
    assert (site.bus.connected, health["state"]) == (True, "disconnected")
    assert not health["standing"]["is_connected"]
    assert service.checks.reasons()["rows"].startswith("the broker has not answered since ")
    page = (await site.client.get("/")).text
    assert "the broker has not answered since " in page
    assert ">live<" not in page


def test_a_refusal_is_an_answer_and_a_failed_request_is_none() -> None:
    clock = [0.0]
    silence = BrokerSilence(lambda: 1000 + clock[0], lambda: clock[0])
    with silence.question():
        pass
    for clock[0] in (1.0, 3.0, 5.0):
        with silence.question():
            raise BusUnavailable("no answer")
    assert silence.since == datetime.fromtimestamp(1000, UTC)
    with silence.question():
        raise BusRefused("not permitted")
    assert silence.since is None
