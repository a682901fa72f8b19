"""The pages for people: browsers, tokens, accounts, the audit log, the proof of who one is."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import HOST, Site
from tests.component.console.signing_in import OWN, PASSWORD, Guarded, login

from penstock.bus.protocol import Outgoing
from penstock.console.access import elevation
from penstock.console.access.keyring import Keyring
from penstock.console.app import application
from penstock.console.web.credentials import Local, NoCredentials
from penstock.console.web.gate import Gate
from penstock.events.console import AuditRecorded
from penstock.events.envelope import encode

HTML = {"Accept": "text/html"}


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


async def status_of(client: httpx.AsyncClient) -> int:
    return (await client.get("/api/v1/me")).status_code


def shown_value(page: str, field: str) -> str:
    match = re.search(rf'id="{field}"[^>]* value="([^"]+)"', page)
    assert match is not None, page
    return match[1]


async def test_a_token_is_shown_once_used_and_revoked(guarded: Guarded) -> None:
    await guarded.account("ada", "operator")
    ada = await guarded.logged_in("ada")
    form = {"name": "ci <b>", "scopes": ["read", "jobs"], "days": "7", "queues": "reports imports"}
    made = await ada.post("/account/tokens", data=form)
    assert made.status_code == 200, made.text
    token = shown_value(made.text, "made")
    bot = guarded.client()
    bot.headers["Authorization"] = f"Bearer {token}"
    caller = (await bot.get("/api/v1/me")).json()
    assert (caller["scopes"], caller["queues"]) == (["jobs", "read"], ["imports", "reports"])
    page = (await ada.get("/account")).text
    assert token not in page
    assert "ci &lt;b&gt;" in page
    assert "from 127.0.0.1" in page  # its last use
    path = re.search(r'action="(/account/tokens/[^"]+/revoke)"', page)
    assert path is not None
    assert (await ada.post(path[1])).headers["location"] == "/account"
    assert await status_of(bot) == 401
    acts = [one.action for one in await guarded.entries("token.revoke")]
    assert acts == ["token.revoke"] * 2


async def test_a_token_that_cannot_be_made_keeps_what_was_entered(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    ada = await guarded.logged_in("ada")
    form = {"name": "root", "scopes": ["admin"], "days": "7"}
    refused = await ada.post("/account/tokens", data=form)
    assert (refused.status_code, "no scope admin to give" in refused.text) == (403, True)
    assert shown_value(refused.text, "name") == "root"
    for days in ("", "x", "0", "999999"):
        assert (await ada.post("/account/tokens", data=form | {"days": days})).status_code == 400
    assert not guarded.control.directory.tokens


async def test_a_browser_is_logged_out_from_another(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    here, there = await guarded.logged_in("ada"), await guarded.logged_in("ada")
    await guarded.account("bob", "viewer")
    bob = await guarded.logged_in("bob")
    page = (await here.get("/account")).text
    assert len(re.findall(r'action="/account/sessions/[^"]+/end"', page)) == 2  # none of bob's
    sessions = (await here.get("/api/v1/me/sessions")).json()
    [other] = [one["id"] for one in sessions if not one["is_current"]]
    path = f"/account/sessions/{other}/end"
    assert path in page
    assert (await bob.post(path)).status_code == 404
    assert (await here.post(path)).headers["location"] == "/account"
    assert [await status_of(one) for one in (here, there, bob)] == [200, 401, 200]


async def test_what_is_dangerous_needs_a_proof_of_the_last_quarter_of_an_hour(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    session = next(iter(guarded.control.directory.sessions.values()))
    late = session.started_at + elevation.LASTS
    assert not guarded.control.elevations.is_elevated(session, late)
    assert guarded.control.elevations.is_elevated(session, late - timedelta(seconds=1))
    monkeypatch.setattr(elevation, "LASTS", timedelta(0))
    dangerous: list[tuple[str, str, Any]] = [
        ("POST", "/tokens", {"name": "ci", "scopes": ["read"]}),
        ("POST", "/accounts", {"name": "eve"}),
        ("PUT", "/accounts/ada", {"role": "viewer"}),
        ("DELETE", "/accounts/ada", None),
        ("POST", "/accounts/ada/setup-link", None),
    ]
    for method, path, body in dangerous:
        answer = await ada.request(method, f"/api/v1{path}", json=body)
        assert answer.status_code == 403, path
        assert answer.json()["type"] == "urn:penstock:problem:elevation-needed"
    form = {"name": "eve", "role": "viewer"}
    assert (await ada.post("/accounts", data=form)).headers["location"] == (
        "/elevate?next=%2Faccounts"
    )
    monkeypatch.undo()
    proof = {"password": PASSWORD, "next": "/accounts"}
    session = next(iter(guarded.control.directory.sessions.values()))
    old = session.started_at - timedelta(hours=1)
    guarded.control.elevations.note(session.id, old)
    wrong = await ada.post("/elevate", data=proof | {"password": "x" * 12})
    assert (wrong.status_code, "password is wrong" in wrong.text) == (400, True)
    assert (await ada.post("/accounts", data=form)).status_code == 303
    right = await ada.post("/elevate", data=proof | {"next": "//evil.example"})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    assert (await ada.post("/accounts", data=form)).status_code == 200
    results = [one.result for one in await guarded.entries("session.elevate")]
    assert results == ["done", "refused"]
    assert [one.result for one in await guarded.entries("account.add")][:2] == ["done", "begun"]


async def test_a_program_proves_who_it_is_by_its_password_and_guesses_are_limited(
    guarded: Guarded,
) -> None:
    await guarded.account("ada", "admin")
    ada, bot = await guarded.logged_in("ada"), await guarded.bearer("read", "admin")
    answer = await ada.post("/api/v1/session/elevate", json={"password": PASSWORD})
    assert answer.status_code == 204
    answer = await bot.post("/api/v1/session/elevate", json={"password": PASSWORD})
    assert (answer.status_code, "began with a password" in answer.json()["detail"]) == (403, True)
    wrong = [
        (await ada.post("/api/v1/session/elevate", json={"password": "x"})).status_code
        for _ in range(11)
    ]
    assert wrong == [403] * 10 + [429]


async def test_an_administrator_invites_promotes_and_removes(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    invited = await ada.post("/accounts", data={"name": "bob", "role": "viewer"})
    assert invited.status_code == 200, invited.text
    link = shown_value(invited.text, "link")
    assert link.startswith("/setup/bob/")
    assert link not in (await ada.get("/accounts")).text
    form = {"password": PASSWORD, "again": PASSWORD}
    assert (await guarded.client().post(link, data=form, headers=OWN)).status_code == 303
    accounts = guarded.control.directory.accounts
    assert await guarded.control.directory.until(lambda: bool(accounts["bob"].password_hash))
    bob = await guarded.logged_in("bob")
    assert (await ada.post("/accounts/bob/role", data={"role": "operator"})).status_code == 303
    assert (await bob.get("/api/v1/me")).json()["role"] == "operator"
    again = await ada.post("/accounts/bob/setup-link")
    assert shown_value(again.text, "link") != link
    wrong = (("ruin", "bob", 404), ("remove", "eve", 404), ("role", "bob", 400))
    for act, name, status in wrong:
        answer = await ada.post(f"/accounts/{name}/{act}", data={"role": "root"})
        assert answer.status_code == status, (act, name)
    assert (await ada.post("/accounts", data={"name": "b/b"})).status_code == 400
    assert (await ada.post("/accounts/bob/remove")).status_code == 303
    assert await status_of(bob) == 401


@pytest.mark.parametrize("path", ["/accounts", "/audit"])
async def test_who_is_no_administrator_is_told_so_on_a_page(guarded: Guarded, path: str) -> None:
    await guarded.account("bob", "operator")
    bob = await guarded.logged_in("bob")
    refused = await bob.get(path, headers=HTML)
    assert (refused.status_code, "this needs admin" in refused.text) == (403, True)
    assert refused.headers["content-type"].startswith("text/html")
    assert (await bob.get(path)).headers["content-type"] == "application/problem+json"


async def test_the_audit_page_filters_goes_back_and_checks_the_chain(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    audit = guarded.control.audit
    for number in range(60):
        await audit.record("bob", "job.cancel", "done", target=f"job:{number}-", detail="<i>late")
    page = (await ada.get("/audit?actor=bob&action=job.")).text
    assert page.count("&lt;i&gt;late") == 50
    older = re.search(r'href="(/audit\?actor=bob[^"]+)" data-earlier', page)
    assert older is not None
    rest = (await ada.get(older[1].replace("&amp;", "&"))).text
    assert (rest.count("&lt;i&gt;late"), "job:0-" in rest) == (10, True)
    one = (await ada.get("/audit?target=job:7-")).text
    assert one.count("&lt;i&gt;late") == 1
    assert "hold the hash of the one before" in (await ada.get("/audit?verify=true")).text
    lines = (await ada.get("/api/v1/audit/export")).text.splitlines()
    assert len(lines) >= 60


async def test_the_audit_page_says_where_the_chain_is_broken(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    last = await guarded.control.audit.record("bob", "job.cancel", "done")
    forged = AuditRecorded(
        block=0, number=last.number + 1, actor="eve", action="x", result="done", hash="0" * 64
    )
    subjects = guarded.site.subjects
    sequence = await guarded.site.bus.append(
        Outgoing(subjects.console_event(forged), encode(forged))
    )
    page = (await ada.get("/audit?verify=true")).text
    problem = f"entry {forged.number} does not hold the hash of entry {last.number}"
    assert f"Message {sequence} of the stream: {problem}" in page


async def test_a_console_that_only_reads_offers_no_act_and_says_why(site: Site) -> None:
    guarded = Guarded(site)
    await guarded.account("ada", "admin")
    reading = dataclasses.replace(guarded.control, read_only=True)
    console = dataclasses.replace(site.console, control=reading)
    app = application(console, Keyring(reading, NoCredentials()))
    transport = httpx.ASGITransport(app=Gate(app, site.settings.console))
    client = httpx.AsyncClient(transport=transport, base_url=HOST)
    assert (await login(client, "ada")).status_code == 303
    client.headers.update(OWN)
    for path in ("/account", "/accounts"):
        page = (await client.get(path)).text
        assert "This console only shows: console.read_only is set" in page
        acts = set(re.findall(r'method="post" action="([^"]+)"', page))
        assert {act for act in acts if "/sessions/" not in act} <= {"/logout"}
    refused = await client.post("/accounts", data={"name": "eve", "role": "admin"})
    assert (refused.status_code, "console.read_only" in refused.json()["detail"]) == (403, True)
    end = re.search(r'action="(/account/sessions/[^"]+/end)"', (await client.get("/account")).text)
    assert end is not None
    assert (await client.post(end[1])).status_code in (303, 401)
    assert await status_of(client) == 401


async def test_without_accounts_a_page_says_how_to_get_in(site: Site) -> None:
    page = (await site.caller(Local()).get("/account")).text
    assert "penstock api account add NAME --role admin" in page
