"""The sign of life that the leading console sends outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.component.console.alerts.receivers import HttpReceiver, http_receiver
from tests.component.console.alerts.test_alert_api import ada, call, site
from tests.component.console.alerts.test_alert_leader import Consoles
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.config import ConfigError
from penstock.config.load import check
from penstock.console.alerts.heartbeat import Heartbeat, LastBeat
from penstock.console.api.installation import settings_tree

__all__ = ["ada", "site"]


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as receiver:
        yield receiver


@pytest.fixture
async def consoles(tmp_path: Path, receiver: HttpReceiver) -> AsyncIterator[Consoles]:
    console: dict[str, Any] = {"heartbeat_url": receiver.url, "heartbeat_seconds": 1}
    tree = {
        "host": {"run_dir": str(tmp_path / "run")},
        "console": {**console, "alert_networks": ["127.0.0.0/8"]},
    }
    consoles = Consoles(check(tree), tmp_path / "console")
    yield consoles
    await consoles.stop()


async def test_the_leader_sends_it_and_the_next_one_goes_on(
    consoles: Consoles, receiver: HttpReceiver
) -> None:
    consoles.start()
    second = consoles.start()
    await receiver.until(2)
    assert not second.leader.leads
    await consoles.kill()
    await receiver.until(3)
    await eventually(lambda: second.record.heartbeat.accepted_at > 0, 5, "what came of it")
    names = [headers["idempotency-key"] for headers, _ in receiver.requests]
    assert len(set(names)) == len(names)


async def test_what_is_not_taken_is_shown_until_it_is(
    consoles: Consoles, receiver: HttpReceiver
) -> None:
    receiver.answers = [500]
    alerts = consoles.start()
    await eventually(lambda: alerts.record.heartbeat.error, 5, "the error")
    assert "status 500" in alerts.record.heartbeat.error
    await eventually(lambda: not alerts.record.heartbeat.error, 5, "the next one")
    assert alerts.record.heartbeat.accepted_at


async def test_none_is_sent_before_its_time_or_while_one_is_under_way(
    receiver: HttpReceiver,
) -> None:
    heartbeat = Heartbeat(receiver.url, 60.0, ["127.0.0.0/8"])
    heartbeat.resume(LastBeat(accepted_at=1000.0))
    heartbeat.beat(1059.0)
    assert heartbeat._sending is None
    receiver.delay = asyncio.Event()
    heartbeat.beat(1060.0)
    await receiver.until(1)
    first = heartbeat._sending
    heartbeat.beat(2000.0)
    assert heartbeat._sending is first
    heartbeat.stop()
    receiver.delay.set()


async def test_it_goes_to_no_private_address_that_is_not_allowed(receiver: HttpReceiver) -> None:
    heartbeat = Heartbeat(receiver.url, 1.0)
    heartbeat.beat(1000.0)
    await eventually(lambda: heartbeat.last.error, 5, "the error")
    assert "console.alert_networks" in heartbeat.last.error
    assert receiver.requests == []


async def test_the_page_and_the_api_say_where_it_goes(site: Site, ada: httpx.AsyncClient) -> None:
    shown = await call(ada, "GET", "/alerts/heartbeat", 200)
    assert shown["summary"].startswith("None is sent")
    heartbeat = site.console.alerts.heartbeat = Heartbeat("https://watch.example/s3cret", 60.0)
    shown = await call(ada, "GET", "/alerts/heartbeat", 200)
    assert shown["summary"] == "Sent to watch.example every 60 s; none yet."
    assert heartbeat.host in (await ada.get("/alerts/channels")).text
    assert "s3cret" not in (await ada.get("/alerts/channels")).text


def test_settings_that_others_read_hold_no_paths_of_addresses() -> None:
    hook = {"url": "https://chat.example/hooks/s3cret"}
    tree = {"console": {"heartbeat_url": "https://watch.example/ping/s3cret"}, "hooks": {"h": hook}}
    shown = settings_tree(check(tree))
    assert shown["console"]["heartbeat_url"] == "https://watch.example/***"
    assert shown["console"]["port"] == 9470
    assert "s3cret" not in str(shown)


def test_an_address_that_is_none_is_refused_without_being_quoted() -> None:
    with pytest.raises(ConfigError, match="heartbeat_url: found no web address") as error:
        check({"console": {"heartbeat_url": "ftp://s3cret"}})
    assert "s3cret" not in str(error.value)
