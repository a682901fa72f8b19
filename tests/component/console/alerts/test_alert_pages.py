"""The pages of alerts, and their forms."""

from __future__ import annotations

import html
import re

import httpx
import msgspec
import pytest
from tests.component.console.alerts.test_alert_api import RULE, ada, call, site
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.console.core.alerts.defaults import DEFAULT_RULES
from penstock.console.core.alerts.rules import Escalation, Rule
from penstock.console.pages.alerts import rule_form
from penstock.events.worker import HostLost

__all__ = ["ada", "site"]
FORM = {"sec-fetch-site": "same-origin"}


async def page(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


async def test_an_alert_is_seen_acknowledged_and_silenced_by_forms(
    site: Site, ada: httpx.AsyncClient
) -> None:
    assert "Nothing fires." in await page(ada, "/alerts")
    await call(ada, "POST", "/alerts/rules", 201, RULE)
    await site.store(HostLost(host="h1<b>", silent_seconds=6))
    alerts = site.console.alerts
    await eventually(lambda: any(one.alert.rule == "lost" for one in alerts.active()), 5, "alert")
    key = next(one.alert.key for one in alerts.active() if one.alert.rule == "lost")
    assert "&lt;b&gt;" in (await ada.get("/alerts")).text
    assert "Acknowledge" in await page(ada, f"/alerts/{key}")
    answer = await ada.post(f"/alerts/{key}/acknowledge", headers=FORM)
    assert answer.status_code == 303
    await eventually(lambda: alerts.one(key).alert.acknowledged_by == "ada", 5, "ada")  # type: ignore[union-attr]
    assert "acknowledged by ada" in await page(ada, "/alerts")

    silence = {"label": "host", "glob": "h1*", "reason": "moving", "hours": "2"}
    shown = await ada.post("/alerts/silences", data={**silence, "do": "preview"}, headers=FORM)
    assert "It would hold back" in shown.text
    assert (await ada.post("/alerts/silences", data=silence, headers=FORM)).status_code == 303
    assert "host = h1*" in await page(ada, "/alerts/silences")
    (name,) = alerts.book.silences
    await ada.post(f"/alerts/silences/{name}", headers=FORM)
    assert "Nothing is silenced." in await page(ada, "/alerts/silences")

    await ada.post(f"/alerts/{key}/resolve", headers=FORM)
    await eventually(
        lambda: any(past.resolved_by == "ada" for past in alerts.book.history.values()), 5, "end"
    )
    assert "by ada" in await page(ada, "/alerts/history")


BURN = {
    "name": "Fast",
    "condition-pool": "*",
    "condition-pace": "fast",
    "for_seconds": "2 min",
    "keep_seconds": "5 min",
    "repeat_seconds": "0",
    "severity": "warn",
    "is_enabled": "1",
}
"""The form of the rule ``burn-fast``."""


async def send(
    client: httpx.AsyncClient, path: str, fields: dict[str, str], status: int = 303
) -> str:
    answer = await client.post(path, data=fields, headers=FORM)
    assert answer.status_code == status, answer.text
    return html.unescape(answer.headers.get("location", answer.text))


async def seen_version(client: httpx.AsyncClient, path: str) -> str:
    [version] = re.findall(r'name="version" value="([^"]*)"', await page(client, path))
    return str(version)


async def test_a_rule_is_changed_with_its_backtest(site: Site, ada: httpx.AsyncClient) -> None:
    assert "A promise burns fast" in await page(ada, "/alerts/rules")
    path = "/alerts/rules/burn-fast"
    assert "No events are recorded: the past is not known." in await page(ada, path)
    assert "Not saved yet" in await send(ada, path, {**BURN, "do": "test"}, 200)
    refused = await send(ada, path, {**BURN, "for_seconds": "soon"}, 400)
    assert "For: found 'soon', expected a length of time such as 90 s, 5 min, 4 h." in refused
    assert 'value="soon"' in refused
    assert "severity" in await send(ada, path, {**BURN, "severity": "loud"}, 400)
    assert site.console.alerts.book.rules["burn-fast"].for_seconds == 60
    leads_to = await send(ada, path, {**BURN, "do": "save"})
    assert "The rule is saved." in await page(ada, leads_to)
    rule = await call(ada, "GET", "/alerts/rules/burn-fast", 200)
    assert (rule["name"], rule["for_seconds"], rule["condition"]["pace"]) == ("Fast", 120, "fast")


async def test_two_people_do_not_overwrite_each_others_change(ada: httpx.AsyncClient) -> None:
    path = "/alerts/rules/burn-fast"
    version = await seen_version(ada, path)
    await send(ada, path, {**BURN, "for_seconds": "3 min", "version": version})
    late = {**BURN, "name": "Mine", "version": version}
    refused = await send(ada, path, late, 412)
    assert "Someone changed this rule since you opened it." in refused
    assert 'value="Mine"' in refused
    [again] = re.findall(r'name="version" value="([^"]*)"', refused)
    await send(ada, path, {**late, "version": again})
    assert (await call(ada, "GET", "/alerts/rules/burn-fast", 200))["name"] == "Mine"


async def test_a_form_of_a_rule_that_is_sent_twice_is_saved_once(
    site: Site, ada: httpx.AsyncClient
) -> None:
    path = "/alerts/rules/burn-fast"
    form = {**BURN, "version": await seen_version(ada, path)}
    await send(ada, path, form)
    saved = site.console.alerts.book.versions["rule", "burn-fast"]
    await send(ada, path, form)
    assert site.console.alerts.book.versions["rule", "burn-fast"] == saved


@pytest.mark.parametrize("kind", rule_form.KINDS)
async def test_a_rule_of_each_kind_is_made_by_its_form(ada: httpx.AsyncClient, kind: str) -> None:
    assert f"?kind={kind}" in await page(ada, "/alerts/new-rule")
    path = f"/alerts/new-rule?kind={kind}"
    assert rule_form.KINDS[kind].about in await page(ada, path)
    fields = {name: values[0] for name, values in rule_form.started(kind).items()}
    fields["name"] = f"My {kind}, 1"
    if kind == "expression":
        missing = await send(ada, "/alerts/new-rule", {**fields, "do": "save"}, 400)
        assert "Not saved." in missing
        fields["condition-text"] = "waiting > 100"
    tested = await send(ada, "/alerts/new-rule", {**fields, "do": "test"}, 200)
    assert "The last 14 days" in tested
    leads_to = await send(ada, "/alerts/new-rule", {**fields, "do": "save"})
    assert leads_to == f"/alerts/rules/my-{kind}-1?acted=alert.rule.create"
    assert "The rule is made." in await page(ada, leads_to)
    made = await call(ada, "GET", f"/alerts/rules/my-{kind}-1", 200)
    assert made["condition"]["kind"] == kind
    assert await send(ada, "/alerts/new-rule", {**fields, "do": "save"}, 409)


def test_each_kind_and_field_of_a_rule_has_words() -> None:
    assert set(rule_form.KINDS) == set(rule_form._CONDITIONS)
    for kind in rule_form.KINDS:
        assert all(field.label for field in rule_form.condition_fields(kind))


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.id)
def test_a_form_gives_back_the_rule_that_filled_it(rule: Rule) -> None:
    further = Escalation(after_seconds=600.25, channels=("a", "b"))
    whole = msgspec.structs.replace(
        rule, channels=("a",), escalations=(further, further), repeat_seconds=12_345.5
    )
    made = msgspec.convert(rule_form.definition(rule_form.filled(whole)), Rule)
    assert made == whole


async def test_a_rule_is_switched_and_removed_after_a_confirmation(ada: httpx.AsyncClient) -> None:
    path = "/alerts/rules/burn-fast"
    assert 'href="/acts/alert.rule.remove/burn-fast"' in await page(ada, path)
    await send(ada, "/acts/alert.rule.toggle/burn-fast", {})
    assert '<span class="state">off</span>' in await page(ada, path)
    assert "its alerts end" in await page(ada, "/acts/alert.rule.remove/burn-fast")
    leads_to = await send(ada, "/acts/alert.rule.remove/burn-fast", {})
    assert "The rule is removed." in await page(ada, leads_to)
    assert (await ada.get(path)).status_code == 404


async def test_the_message_is_shown_as_it_would_read_now(
    site: Site, ada: httpx.AsyncClient
) -> None:
    new = "/alerts/new-rule"
    fields = {name: values[0] for name, values in rule_form.started("host-lost").items()}
    tested = await send(ada, new, {**fields, "name": "Lost", "do": "test"}, 200)
    assert "there are no figures to show a message with" in tested
    await site.store(HostLost(host="h1", silent_seconds=6))
    wanted = {**fields, "name": "Lost", "for_seconds": "0", "do": "test"}
    tested = await send(ada, new, wanted, 200)
    assert "The condition holds now; the message reads:" in tested
    assert "Firing: Lost\n\nFiring (warn): Host h1 is silent since" in tested
    assert "Would have fired once" in tested


async def test_a_rule_is_escalated_by_its_form(ada: httpx.AsyncClient) -> None:
    for name in ("ops", "boss"):
        entered = {"id": name, "name": name, "kind": "log"}
        await call(ada, "POST", "/alerts/channels", 201, entered)
    levels = {"channels": "ops", "then-0": "boss", "after-0": "15 min"}
    levels |= {"then-1": "ops", "after-1": "1 h"}
    path = "/alerts/rules/burn-fast"
    await send(ada, path, {**BURN, **levels})
    rule = await call(ada, "GET", path, 200)
    assert rule["escalations"] == [
        {"after_seconds": 900, "channels": ["boss"]},
        {"after_seconds": 3600, "channels": ["ops"]},
    ]
    text = await page(ada, path)
    assert "Not acknowledged after 15 min" in text
    assert "Held back while" in text
    await send(ada, path, {**BURN, "channels": "ops"})
    assert "escalations" not in await call(ada, "GET", path, 200)


async def test_maintenance_that_returns_is_set_by_a_form(ada: httpx.AsyncClient) -> None:
    weekly = {
        "label": "host",
        "glob": "h*",
        "reason": "updates",
        "hours": "2",
        "begins": "2026-11-22T02:00",
        "every": "604800",
    }
    for hours, problem in (("200", "it would never end"), ("x", "could not convert")):
        refused = await ada.post("/alerts/silences", data={**weekly, "hours": hours}, headers=FORM)
        assert problem in refused.text
    assert (await ada.post("/alerts/silences", data=weekly, headers=FORM)).status_code == 303
    (window,) = (await call(ada, "GET", "/silences", 200))["items"]
    assert (window["every_seconds"], window["lasts_seconds"]) == (604_800, 7200)
    assert window["begins"] % 86_400 == 7200
    assert "each 7 d for 2 h" in await page(ada, "/alerts/silences")


async def test_a_channel_is_made_by_a_form(ada: httpx.AsyncClient) -> None:
    fields = {
        "id": "ops",
        "name": "Ops",
        "kind": "webhook",
        "url": "https://u:p4ss@a.example/secret",
    }
    assert (await ada.post("/alerts/channels", data=fields, headers=FORM)).status_code == 303
    text = await page(ada, "/alerts/channels")
    assert "https://a.example" in text
    assert "p4ss" not in text
    assert "/secret" not in text
    refused = await ada.post("/alerts/channels", data={**fields, "url": "file:///x"}, headers=FORM)
    assert "Not saved: found the scheme 'file'" in html.unescape(refused.text)


async def test_readers_see_no_forms(ada: httpx.AsyncClient) -> None:
    ada.headers["authorization"] = "Bearer b"
    for path in ("/alerts/channels", "/alerts/silences", "/alerts/rules/burn-fast"):
        assert 'method="post" action="/alerts' not in await page(ada, path)
    assert 'method="post"' not in await page(ada, "/alerts/new-rule?kind=burn")
    for path in ("/alerts/new-rule", "/alerts/rules/burn-fast"):
        for do in ("test", "save"):
            await send(ada, path, {**BURN, "kind": "burn", "do": do}, 403)
    assert (await ada.post("/alerts/silences", data={}, headers=FORM)).status_code == 403
