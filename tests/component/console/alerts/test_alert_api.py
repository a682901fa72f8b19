"""Endpoints of alerts over a console whose bus is in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.component.console.alerts.receivers import http_receiver
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.config.load import check
from penstock.console.web.credentials import TokenFile
from penstock.events.worker import HostJoined, HostLost
from penstock.testing.memory.bus import MemoryBus

RULE = {
    "id": "lost",
    "name": "A host is lost",
    "condition": {"kind": "host-lost"},
    "for_seconds": 0,
    "keep_seconds": 0,
}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    settings = check(
        {
            "pools": {"reports": {"sla_seconds": 30}},
            "host": {"run_dir": str(tmp_path / "run")},
            "console": {"alert_networks": ["127.0.0.0/8"]},
        }
    )
    site = Site(MemoryBus(), settings, tmp_path / "console")
    site.start()
    site._service.spawn(site.console.alerts.run(site._service), "alerts")
    site.console.alerts.book.group_seconds = 0.0
    await eventually(lambda: site.console.alerts.leader.leads, 10, "a leader")
    yield site
    await site.stop()


@pytest.fixture
def ada(site: Site, tmp_path: Path) -> httpx.AsyncClient:
    tokens = tmp_path / "tokens"
    digest = hashlib.sha256(b"secret").hexdigest()
    tokens.write_text(f"ada read,alerts {digest}\nbob read {hashlib.sha256(b'b').hexdigest()}\n")
    client = site.caller(TokenFile(tokens))
    client.headers["authorization"] = "Bearer secret"
    return client


async def call(
    client: httpx.AsyncClient, method: str, path: str, status: int, body: Any = None, **headers: str
) -> Any:
    answer = await client.request(method, f"/api/v1{path}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_what_never_happened_is_tested_over_the_whole_event_log(
    site: Site, ada: httpx.AsyncClient
) -> None:
    await site.store(HostJoined(host="h1", cpu_cores=1, memory_bytes=1))
    burning = {"id": "burn", "name": "It burns", "condition": {"kind": "burn"}}
    made = await call(ada, "POST", "/alerts/rules", 201, burning)
    assert made["backtest"]["summary"] == "Would not have fired in less than a day."


async def test_a_rule_is_made_changed_switched_and_removed(ada: httpx.AsyncClient) -> None:
    made = await call(ada, "POST", "/alerts/rules", 201, RULE)
    assert made["backtest"]["summary"] == ("No events are recorded: the past is not known.")
    await call(ada, "POST", "/alerts/rules", 409, RULE)
    tag = (await ada.get("/api/v1/alerts/rules/lost")).headers["etag"]
    changed = {**RULE, "for_seconds": 30}
    await call(ada, "PUT", "/alerts/rules/lost", 412, changed, **{"if-match": '"99"'})
    await call(ada, "PUT", "/alerts/rules/lost", 200, changed, **{"if-match": tag})
    assert (await call(ada, "GET", "/alerts/rules/lost", 200))["for_seconds"] == 30
    assert (await call(ada, "POST", "/alerts/rules/lost/toggle", 200))["is_enabled"] is False
    assert (await call(ada, "POST", "/alerts/rules/lost/backtest", 200))["fired"] == 0
    await call(ada, "DELETE", "/alerts/rules/lost", 204)
    await call(ada, "GET", "/alerts/rules/lost", 404)


async def test_of_two_changes_at_once_one_is_refused(ada: httpx.AsyncClient) -> None:
    await call(ada, "POST", "/alerts/rules", 201, RULE)
    path = "/api/v1/alerts/rules/lost"
    tag = (await ada.get(path)).headers["etag"]
    changes = [{**RULE, "for_seconds": seconds} for seconds in (10, 20, 30)]
    headers = {"if-match": tag}
    answers = await asyncio.gather(
        *(ada.put(path, json=change, headers=headers) for change in changes)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]
    [winner] = [answer.json() for answer in answers if answer.status_code == 200]
    assert (await ada.get(path)).json() == winner["rule"]


async def test_the_audit_log_says_what_was_changed(site: Site, ada: httpx.AsyncClient) -> None:
    await call(ada, "POST", "/alerts/rules", 201, RULE)
    await call(ada, "PUT", "/alerts/rules/lost", 200, {**RULE, "for_seconds": 30})
    hook = {"id": "h", "name": "h", "kind": "webhook", "url": "https://a.example/s3cret"}
    await call(ada, "POST", "/alerts/channels", 201, hook)
    entered = {"matchers": [{"label": "host", "glob": "h*"}], "reason": "moving", "seconds": 600}
    silence = await call(ada, "POST", "/silences", 201, entered)
    stream = site.bus.stored(site.subjects.console_stream, site.subjects.console("audit"))
    entries = [msgspec.json.decode(stored.body) for stored in stream]
    done = {entry["target"]: entry for entry in entries if entry["result"] == "done"}
    assert done["rule:lost"]["before"] == {"for_seconds": "0.0"}
    assert done["rule:lost"]["after"] == {"for_seconds": "30.0"}
    assert done["channel:h"]["after"]["host"] == '"a.example"'
    assert done[f"silence:{silence['id']}"]["after"]["reason"] == '"moving"'
    assert "s3cret" not in str(entries)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"channels": ["nowhere"]}, "there is no channel 'nowhere'"),
        ({"held_back_by": ["nothing"]}, "there is no rule 'nothing'"),
        ({"condition": {"kind": "expression", "text": "1 +"}}, "expected a number"),
        ({"group_by": ["pol"]}, "no alert has a label 'pol'"),
        ({"condition": {"kind": "what"}}, "Invalid value 'what'"),
        ({"for_seconds": -1}, ">= 0"),
        ({"colour": "red"}, "unknown field"),
    ],
)
async def test_a_rule_that_cannot_work_is_refused_with_its_reason(
    ada: httpx.AsyncClient, change: dict[str, Any], problem: str
) -> None:
    answer = await ada.post("/api/v1/alerts/rules", json={**RULE, **change})
    assert answer.status_code == 400, answer.text
    assert problem in answer.text


async def test_a_channel_never_shows_its_secrets(ada: httpx.AsyncClient) -> None:
    async with http_receiver() as receiver:
        entered = {
            "id": "hook",
            "name": "Hook",
            "kind": "webhook",
            "url": receiver.url,
            "key": "k1",
        }
        made = await call(ada, "POST", "/alerts/channels", 201, entered)
        assert made["host"] == f"127.0.0.1:{receiver.port}"
        listed = (await ada.get("/api/v1/alerts/channels")).text
        assert "k1" not in listed
        assert "hook?a=1" not in listed
        await call(ada, "POST", "/alerts/channels/hook/test", 204)
        renamed = {"id": "hook", "name": "Pager", "kind": "webhook"}
        await call(ada, "PUT", "/alerts/channels/hook", 200, renamed)
        receiver.answers = [500]
        problem = await call(ada, "POST", "/alerts/channels/hook/test", 502)
        assert "status 500" in problem["detail"]
    assert receiver.requests[1][0]["penstock-signature"]
    await call(ada, "POST", "/alerts/rules", 201, {**RULE, "channels": ["hook"]})
    await call(ada, "POST", "/alerts/channels", 409, entered)
    await call(ada, "DELETE", "/alerts/channels/hook", 409)
    await call(ada, "DELETE", "/alerts/rules/lost", 204)
    await call(ada, "DELETE", "/alerts/channels/hook", 204)


async def test_a_key_is_not_handed_to_another_receiver(site: Site, ada: httpx.AsyncClient) -> None:
    entered = {"id": "h", "name": "h", "kind": "webhook", "url": "https://a.example/x", "key": "k"}
    await call(ada, "POST", "/alerts/channels", 201, entered)
    moved = {"id": "h", "name": "h", "kind": "webhook", "url": "https://b.example/x"}
    await call(ada, "PUT", "/alerts/channels/h", 200, moved)
    book = site.console.alerts.book
    assert site.console.alerts.sealing.open(book.channels["h"]).key == ""


async def test_addresses_of_other_kinds_are_refused(ada: httpx.AsyncClient) -> None:
    for kind, url in (("webhook", "file:///etc/passwd"), ("apprise", "exec://ls")):
        entered = {"id": "x", "name": "x", "kind": kind, "url": url}
        problem = await call(ada, "POST", "/alerts/channels", 400, entered)
        assert "expected one of" in problem["detail"]


async def test_an_alert_is_acknowledged_silenced_and_resolved(
    site: Site, ada: httpx.AsyncClient
) -> None:
    await call(ada, "POST", "/alerts/rules", 201, RULE)
    await site.store(HostLost(host="h1", silent_seconds=6))
    alerts = site.console.alerts
    await eventually(lambda: any(one.alert.rule == "lost" for one in alerts.active()), 5, "alert")
    listed = await call(ada, "GET", "/alerts?phase=firing", 200)
    (alert,) = [one["alert"] for one in listed["items"] if one["alert"]["rule"] == "lost"]
    assert alert["text"].startswith("Host h1 is silent")
    key = alert["key"]
    await call(ada, "POST", f"/alerts/{key}/acknowledge", 202)
    await eventually(lambda: alerts.one(key).alert.acknowledged_by == "ada", 5, "ada")  # type: ignore[union-attr]

    entered = {"matchers": [{"label": "host", "glob": "h*"}], "reason": "moving", "seconds": 600}
    held = await call(ada, "POST", "/silences/preview", 200, entered)
    assert "hold back" in held["summary"]
    assert key in [one["alert"]["key"] for one in held["alerts"]]
    silence = await call(ada, "POST", "/silences", 201, entered)
    assert (await call(ada, "GET", f"/alerts/{key}", 200))["alert"]["muted"] == (
        "silenced by ada: moving"
    )
    await call(ada, "DELETE", f"/silences/{silence['id']}", 204)
    assert (await call(ada, "GET", "/silences", 200))["items"] == []

    await call(ada, "POST", f"/alerts/{key}/resolve", 202)
    await eventually(
        lambda: any(past.resolved_by == "ada" for past in alerts.book.history.values()), 5, "end"
    )
    history = await call(ada, "GET", "/alerts/history", 200)
    assert "ada" in [past["resolved_by"] for past in history["items"]]
    await call(ada, "GET", "/alerts/nothing", 404)
    await call(ada, "POST", "/alerts/nothing/acknowledge", 404)


async def test_who_may_read_may_not_act(site: Site, ada: httpx.AsyncClient) -> None:
    ada.headers["authorization"] = "Bearer b"
    await call(ada, "GET", "/alerts", 200)
    await call(ada, "POST", "/alerts/rules", 403, RULE)
    await call(ada, "POST", "/silences", 403, {})
    ada.headers["authorization"] = "Bearer wrong"
    await call(ada, "GET", "/notifications", 401)


async def test_a_host_that_comes_and_goes_is_in_the_backtest(
    site: Site, ada: httpx.AsyncClient
) -> None:
    joined = HostJoined(host="h1", cpu_cores=1, memory_bytes=1)
    await site.store(joined, HostLost(host="h1", silent_seconds=6), joined)
    made = await call(ada, "POST", "/alerts/rules", 201, RULE)
    assert made["backtest"]["fired"] == 1


async def test_an_address_that_no_message_is_sent_to_is_refused_when_it_is_saved(
    ada: httpx.AsyncClient,
) -> None:
    entered = {"id": "h", "name": "h", "kind": "webhook", "url": "http://10.1.2.3:8080/x"}
    problem = await call(ada, "POST", "/alerts/channels", 400, entered)
    assert "10.1.2.3 is of this machine or a private network" in problem["detail"]
    assert "console.alert_networks" in problem["detail"]
    for host in ("[::ffff:10.1.2.3]", "[::1]:8080", "[fe80::1]"):
        problem = await call(
            ada, "POST", "/alerts/channels", 400, {**entered, "url": f"https://{host}/x"}
        )
        assert "is of this machine or a private network" in problem["detail"], host
    assert (await call(ada, "GET", "/alerts/channels", 200))["items"] == []


async def test_a_webhook_without_a_key_is_said_not_to_be_signed(ada: httpx.AsyncClient) -> None:
    entered = {"id": "h", "name": "h", "kind": "webhook", "url": "http://127.0.0.1:9/x"}
    made = await call(ada, "POST", "/alerts/channels", 201, entered)
    assert made["warning"] == "Its messages are not signed: it has no key."
    page = await ada.get("/alerts/channels", headers={"Accept": "text/html"})
    assert made["warning"] in page.text
    signed = await call(ada, "PUT", "/alerts/channels/h", 200, {**entered, "key": "k"})
    assert signed["warning"] == ""


async def test_a_test_message_has_the_time_of_now(ada: httpx.AsyncClient) -> None:
    async with http_receiver() as receiver:
        entered = {"id": "h", "name": "h", "kind": "webhook", "url": receiver.url}
        await call(ada, "POST", "/alerts/channels", 201, entered)
        await call(ada, "POST", "/alerts/channels/h/test", 204)
    [alert] = receiver.requests[0][1]["alerts"]
    assert not alert["fired_at"].startswith("1970")


async def test_times_of_silences_are_as_elsewhere_and_unknown_fields_name_the_known(
    ada: httpx.AsyncClient,
) -> None:
    entered = {"matchers": [{"label": "pool", "glob": "*"}], "reason": "moving", "seconds": 600}
    at = "2026-12-01T02:00:00Z"
    made = await call(ada, "POST", "/silences", 201, {**entered, "begins": at})
    assert (made["begins_at"], made["ends_at"]) == (at, "2026-12-01T02:10:00Z")
    number = await call(ada, "POST", "/silences", 201, {**entered, "begins": made["begins"]})
    assert number["begins_at"] == at
    listed = (await call(ada, "GET", "/silences", 200))["items"]
    assert [one["ends_at"] for one in listed] == ["2026-12-01T02:10:00Z"] * 2
    wrong = await call(ada, "POST", "/silences", 400, {**entered, "until": at})
    known = "known are matchers, reason, seconds, begins, every_seconds"
    assert known in wrong["errors"][0]["detail"]
    matchers = [{"label": "pol", "glob": "*"}]
    for path in ("/silences", "/silences/preview"):
        wrong = await call(ada, "POST", path, 400, {**entered, "matchers": matchers})
        assert "no alert has a label 'pol'; there are component," in wrong["detail"]
    matchers = [{"label": "pool", "value": "*"}]
    wrong = await call(ada, "POST", "/silences", 400, {**entered, "matchers": matchers})
    assert "known are label, glob" in wrong["errors"][0]["detail"]
