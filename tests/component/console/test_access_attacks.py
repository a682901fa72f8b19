"""Attacks on everything that acts, generated from the router, and on what stands in addresses."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import HOST, OWN, PASSWORD, Guarded
from tests.component.console.test_console_matrix import ENDLESS, endpoints

from penstock.config.load import check
from penstock.console.access import first_steps
from penstock.console.access.keyring import Keyring
from penstock.console.app import application
from penstock.console.web.acting import SAFE_METHODS, action_of, changes_nothing
from penstock.console.web.credentials import Local, NoCredentials
from penstock.console.web.gate import Gate
from penstock.console.web.scopes import Scope, scope_of
from penstock.operations.api_tokens import new_token

FOREIGN: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://other.127.0.0.1"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {},
]
"""What a browser says of a request that another site had it send, or hides."""
BODIES = ["application/json", "text/plain", "application/x-www-form-urlencoded"]


async def test_no_endpoint_acts_for_another_site(site: Site) -> None:
    """CSRF: with the cookie of an administrator who just logged in, for whom all else is open."""
    guarded = Guarded(site)
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    del ada.headers["Sec-Fetch-Site"]
    app = application(site.console, Local())
    acting = [(method, path) for method, path, _ in endpoints(app) if method not in SAFE_METHODS]
    assert len(acting) > 60

    def stored() -> list[str]:
        streams = (site.subjects.events_stream, site.subjects.console_stream)
        kept = [one.subject for stream in streams for one in site.bus.stored(stream, ">")]
        return [subject for subject in kept if ".audit." not in subject]

    before, accepted = stored(), []
    for method, path in acting:
        address = path.replace(":int", "").replace("{", "").replace("}", "")
        for headers in FOREIGN:
            for kind in BODIES:
                sent = {**headers, "Content-Type": kind}
                answer = await ada.request(method, address, headers=sent, content=b"{}")
                if answer.status_code != 403:
                    accepted.append((method, path, headers, answer.status_code))
    assert accepted == []
    assert stored() == before
    assert (await ada.get("/api/v1/me")).json()["name"] == "ada"  # still logged in


async def test_no_safe_request_acts(site: Site) -> None:
    """A link or a picture of another site sends GET with the cookie."""
    guarded = Guarded(site)
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    before = [one.subject for one in site.bus.stored(site.subjects.console_stream, ">")]
    for path in ("/logout", "/account/tokens", "/accounts/ada/remove", "/acts/job.cancel/x"):
        answer = await ada.get(path, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code in (200, 404, 405), path
    after = [one.subject for one in site.bus.stored(site.subjects.console_stream, ">")]
    assert after == before
    assert "ada" in guarded.control.directory.accounts


async def test_a_token_in_an_address_is_refused_and_kept_nowhere(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded = Guarded(site)
    token = await guarded.token("read")
    client = guarded.client()
    for address in (
        f"/api/v1/jobs?access_token={token}",
        f"/api/v1/jobs?q={token}&limit=1",
        f"/jobs/{token}",
        f"/live?t={new_token()}",
        f"/login?next=/jobs%3Ftoken={token}",
    ):
        answer = await client.get(address)
        assert answer.status_code == 400, address
        assert "Authorization: Bearer" in answer.json()["detail"]
        assert token not in answer.text
    assert (await client.get("/api/v1/jobs?access_token=x")).status_code == 401
    kept = b"".join(one.body for one in site.bus.stored(site.subjects.console_stream, ">"))
    own = [text for name, _, text in caplog.record_tuples if not name.startswith("httpx")]
    assert token.encode() not in kept
    assert token not in "".join(own)


async def test_the_secret_of_a_setup_link_stands_in_no_refusal(site: Site) -> None:
    guarded = Guarded(site)
    await guarded.control.store.add_account("ada", "viewer")
    secret, _ = await guarded.control.store.make_setup_link("ada")
    client = guarded.client()
    form = {"password": PASSWORD, "again": PASSWORD}
    foreign = {"Sec-Fetch-Site": "cross-site"}
    answer = await client.post(f"/setup/ada/{secret}", data=form, headers=foreign)
    assert answer.status_code == 403
    [refused] = await guarded.entries("account.set_password")
    assert (refused.result, refused.target) == ("refused", "/setup/{account}/{secret}")
    kept = b"".join(one.body for one in site.bus.stored(site.subjects.console_stream, ">"))
    assert secret.encode() not in kept


@pytest.mark.parametrize(
    "host",
    ["evil.example", "console.example.org.evil.example", "console.example.org@evil.example", ""],
)
async def test_a_foreign_name_reads_nothing_also_with_a_public_address(
    site: Site, host: str
) -> None:
    """DNS rebinding."""
    settings = check({"console": {"public_url": "https://console.example.org/"}})
    seen: list[Any] = []

    async def app(*_: Any) -> None:
        seen.append(True)

    gate = Gate(app, settings.console)
    scope: Any = {"type": "http", "path": "/", "query_string": b"", "method": "GET"}

    async def send(_: Any) -> None: ...

    async def receive() -> Any: ...

    await gate({**scope, "headers": [(b"host", host.encode())]}, receive, send)
    assert not seen
    await gate({**scope, "headers": [(b"host", b"console.example.org")]}, receive, send)
    assert seen


async def test_a_flood_of_invented_tokens_is_refused_and_recorded_once_a_minute(
    site: Site,
) -> None:
    guarded = Guarded(site)
    client = guarded.client()
    for _ in range(300):
        headers = {"Authorization": f"Bearer {new_token()}", **OWN}
        assert (await client.get("/api/v1/jobs", headers=headers)).status_code == 401
    page, _ = await guarded.control.audit.newest(10)
    assert [(one.actor, one.result) for one in page] == [("unknown", "refused")]


async def test_the_first_start_says_how_to_get_in_and_has_no_password(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_steps, "_READ_SECONDS", 0.01)
    guarded = Guarded(site)
    await first_steps.show(guarded.control)
    assert "penstock api account add NAME --role admin" in caplog.text
    for name in ("admin", "root", "penstock"):
        form = {"account": name, "password": name, "next": "/"}
        assert (await guarded.client().post("/login", data=form, headers=OWN)).status_code == 403
    caplog.clear()
    await guarded.account("ada", "admin")
    await first_steps.show(guarded.control)
    assert "no person" not in caplog.text


async def test_a_console_that_only_reads_refuses_each_act_with_the_reason(site: Site) -> None:
    """With a token that has every scope; and shows everything all the same."""
    guarded = Guarded(site)
    token = await guarded.token(*(str(scope) for scope in Scope if scope is not Scope.PUBLIC))
    reading = dataclasses.replace(guarded.control, read_only=True)
    console = dataclasses.replace(site.console, control=reading)
    app = application(console, Keyring(reading, NoCredentials()))
    gate = Gate(app, site.settings.console)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=gate), base_url=HOST)
    client.headers["Authorization"] = f"Bearer {token}"
    acting, wrong = 0, []
    for method, path, handler in endpoints(app):
        if scope_of(handler.opt) is Scope.PUBLIC or path in ENDLESS:
            continue
        address = re.sub(r"\{[^}]*int\}", "1", path).replace("{", "").replace("}", "")
        answer = await client.request(method, address, headers=OWN)
        if method in SAFE_METHODS:
            if answer.status_code == 403 or answer.status_code >= 500:
                wrong.append((method, path, answer.status_code))
            continue
        if changes_nothing(handler.opt):  # it only computes, and here is not given what
            if answer.status_code not in (303, 400, 404):
                wrong.append((method, path, answer.status_code))
            continue
        acting += 1
        is_refused = answer.status_code == 403 and "console.read_only" in answer.text
        if not is_refused and not action_of(handler.opt).startswith("session."):
            wrong.append((method, path, answer.status_code))
    assert wrong == []
    assert acting > 60
