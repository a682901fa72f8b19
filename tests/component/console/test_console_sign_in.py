"""Accounts, logins, sessions and tokens, and the attacks on them."""

from __future__ import annotations

import dataclasses
import hmac
from typing import Any

import httpx
import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import HOST, OWN, PASSWORD, Guarded, login

from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.console.access import keyring, logins
from penstock.console.access.login_limits import OF_THE_PAIR, LoginLimits
from penstock.console.app import application
from penstock.console.web.credentials import NoCredentials
from penstock.console.web.csrf import safe_path
from penstock.console.web.gate import Gate
from penstock.events.envelope import encode
from penstock.operations.console_access import AccessRefused


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


async def me(client: httpx.AsyncClient) -> Any:
    answer = await client.get("/api/v1/me")
    return answer.json() if answer.status_code == 200 else answer.status_code


async def test_a_person_logs_in_and_out(guarded: Guarded) -> None:
    await guarded.account("ada", "operator")
    ada = await guarded.logged_in("ada")
    assert (await me(ada))["role"] == "operator"
    assert [one["is_current"] for one in (await ada.get("/api/v1/me/sessions")).json()] == [True]
    out = await ada.post("/logout")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    ada.cookies.clear()
    assert await me(ada) == 401
    assert [one.result for one in await guarded.entries("session.login")] == ["done"]
    assert [one.actor for one in await guarded.entries("session.logout")] == ["ada"]


async def test_the_cookie_is_of_no_use_after_logout(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    ada = await guarded.logged_in("ada")
    stolen = dict(ada.cookies)
    await ada.post("/logout")
    assert (
        await me(httpx.AsyncClient(transport=ada._transport, base_url=ada.base_url, cookies=stolen))
        == 401
    )


async def test_a_session_that_was_known_before_the_login_is_worth_nothing(guarded: Guarded) -> None:
    """Session fixation."""
    await guarded.account("ada", "viewer")
    planted = "planted-by-a-stranger"
    ada = guarded.client()
    ada.cookies.set("penstock-session", planted, domain="127.0.0.1")
    answer = await login(ada, "ada")
    assert planted not in answer.headers["set-cookie"]
    stranger = guarded.client()
    stranger.headers["Cookie"] = f"penstock-session={planted}"
    assert await me(stranger) == 401


async def test_two_cookies_of_a_session_are_refused(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    [(name, secret)] = dict((await guarded.logged_in("ada")).cookies).items()
    client = guarded.client()
    client.headers["Cookie"] = f"{name}={secret}"
    assert (await me(client))["name"] == "ada"
    client.headers["Cookie"] = f"{name}=planted; {name}={secret}"
    assert await me(client) == 401


async def test_the_cookie_cannot_be_read_by_script_or_sent_by_other_sites(site: Site) -> None:
    guarded = Guarded(site)
    await guarded.account("ada", "viewer")
    cookie = (await login(guarded.client(), "ada")).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
async def test_another_site_cannot_have_a_browser_act(
    guarded: Guarded, headers: dict[str, str]
) -> None:
    """CSRF, of the login too."""
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    del ada.headers["Sec-Fetch-Site"]
    form = {"account": "ada", "password": PASSWORD}
    assert (await ada.post("/login", data=form, headers=headers)).status_code == 403
    answer = await ada.post("/api/v1/accounts", json={"name": "eve"}, headers=headers)
    assert answer.status_code == 403
    assert "eve" not in guarded.control.directory.accounts
    assert (await guarded.entries("account.add"))[0].result == "refused"


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "javascript:x", "",
     "/a\r\nSet-Cookie: x=y", "/%0d%0a\n", "/\u2028x", "/" + "x" * 5_000],
)  # fmt: skip
async def test_a_login_leads_to_a_path_of_this_console_alone(guarded: Guarded, path: str) -> None:
    """Open redirect, and headers injected by way of it."""
    await guarded.account("ada", "viewer")
    answer = await login(guarded.client(), "ada", path=path)
    assert answer.headers["location"] == "/"
    assert safe_path("/jobs?q=state:dead") == "/jobs?q=state:dead"


async def test_a_page_without_a_login_leads_there_and_back(guarded: Guarded) -> None:
    answer = await guarded.client().get("/jobs?q=a b", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fq%3Da%2520b"
    page = await guarded.client().get(answer.headers["location"])
    assert 'name="next" value="/jobs?q=a%20b"' in page.text
    assert "no-store" in page.headers["cache-control"]


async def test_failed_logins_are_limited_and_say_no_more_of_a_name_that_there_is(
    guarded: Guarded,
) -> None:
    await guarded.account("ada", "viewer")
    client = guarded.client()
    wrong, unknown = [(await login(client, name, "x")).text for name in ("ada", "eve")]
    assert wrong.replace("ada", "NAME") == unknown.replace("eve", "NAME")
    statuses = [(await login(client, "ada", "x")).status_code for _ in range(OF_THE_PAIR)]
    assert statuses == [403] * (OF_THE_PAIR - 1) + [429]
    assert (await login(client, "ada")).status_code == 429  # right, and too late
    refused = await guarded.entries("session.login")
    assert {one.result for one in refused} == {"refused"}


async def test_floods_of_failed_logins_do_not_fill_the_audit_log(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "_MOST_FAILURES_A_MINUTE", 3)
    client = guarded.client()
    for number in range(6):
        assert (await login(client, f"name-{number}", "x")).status_code == 403
    assert len(await guarded.entries("session.login")) == 3


async def test_by_tls_the_cookie_is_bound_to_the_host(site: Site) -> None:
    guarded = Guarded(site)
    await guarded.account("ada", "viewer")
    encrypted = dataclasses.replace(guarded.control, is_encrypted=True)
    console = dataclasses.replace(site.console, control=encrypted)
    app = application(console, keyring.Keyring(encrypted, NoCredentials()))
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=Gate(app, site.settings.console)), base_url=HOST
    )
    cookie = (await login(client, "ada")).headers["set-cookie"]
    assert cookie.startswith("__Host-penstock=")
    assert "Secure" in cookie


async def test_a_console_that_only_reads_keeps_sessions_to_itself_and_acts_on_nothing(
    site: Site,
) -> None:
    guarded = Guarded(site)
    await guarded.account("ada", "admin")
    reading = dataclasses.replace(guarded.control, read_only=True)
    console = dataclasses.replace(site.console, control=reading)
    app = application(console, keyring.Keyring(reading, NoCredentials()))
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=Gate(app, site.settings.console)), base_url=HOST
    )
    assert (await login(client, "ada")).status_code == 303
    assert (await me(client))["scopes"] == ["admin", "payload", "read"]
    client.headers.update(OWN)
    refused = await client.post("/api/v1/accounts", json={"name": "eve"})
    assert (refused.status_code, "read_only" in refused.json()["detail"]) == (403, True)
    subjects = [one.subject for one in site.bus.stored(site.subjects.console_stream, ">")]
    assert not [subject for subject in subjects if ".session." in subject]
    assert (await client.post("/logout")).status_code == 303


@pytest.mark.parametrize("name", ["local", "CLI", "unknown"])
async def test_no_account_is_called_like_a_caller_without_one(guarded: Guarded, name: str) -> None:
    with pytest.raises(AccessRefused, match="no name of a person"):
        await guarded.control.store.add_account(name, "admin")


def test_a_stranger_elsewhere_does_not_lock_an_account_with_a_few_tries() -> None:
    limits = LoginLimits()
    for _ in range(OF_THE_PAIR):
        limits.failed("192.0.2.1", "ada", 0.0)
    assert limits.wait_seconds("192.0.2.1", "ada", 1.0) == 899.0
    assert limits.wait_seconds("192.0.2.2", "ada", 1.0) == 0
    assert limits.wait_seconds("192.0.2.1", "ada", 901.0) == 0


async def test_a_setup_link_works_once_and_ends_the_sessions(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    ada = await guarded.logged_in("ada")
    secret, _ = await guarded.control.store.make_setup_link("ada")
    form = {"password": "another long password", "again": "another long password"}
    path, stranger = f"/setup/ada/{secret}", guarded.client()
    short = await stranger.post(path, data={"password": "x", "again": "x"}, headers=OWN)
    assert (short.status_code, "12 to 256 characters" in short.text) == (400, True)
    assert (await stranger.post(path, data=form, headers=OWN)).status_code == 303
    again = await stranger.post(path, data=form, headers=OWN)
    assert (again.status_code, "expired or was used" in again.text) == (400, True)
    assert (await stranger.post("/setup/eve/x", data=form, headers=OWN)).status_code == 400
    directory = guarded.control.directory
    assert await directory.until(lambda: not directory.sessions)
    assert await me(ada) == 401


async def test_tokens_are_made_shown_once_limited_and_revoked(guarded: Guarded) -> None:
    await guarded.account("ada", "operator")
    ada = await guarded.logged_in("ada")
    made = await ada.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"]})
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    bot = guarded.client()
    bot.headers["Authorization"] = f"Bearer {token}"
    assert (await me(bot))["scopes"] == ["read"]
    [listed] = (await ada.get("/api/v1/tokens")).json()
    assert (listed["state"], listed["owner"]) == ("valid", "ada")
    assert listed["used_at"] is not None
    assert token not in str(guarded.site.bus.stored(guarded.site.subjects.console_stream, ">"))
    assert (
        await bot.post("/api/v1/tokens", json={"name": "b", "scopes": ["read"]})
    ).status_code == 403
    more = await ada.post("/api/v1/tokens", json={"name": "root", "scopes": ["admin"]})
    assert (more.status_code, "no scope admin" in more.json()["detail"]) == (403, True)
    assert (await ada.delete(f"/api/v1/tokens/{listed['id']}")).status_code == 204
    assert await me(bot) == 401
    acts = [(one.result, one.actor) for one in await guarded.entries("token.create")]
    assert acts[:2] == [("failed", "ada"), ("begun", "ada")]
    assert acts[-2:] == [("done", "ada"), ("begun", "ada")]


async def test_a_token_never_may_more_than_its_owner_may_now(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    await guarded.account("eve", "admin")  # who stays one
    ada = await guarded.logged_in("ada")
    made = await ada.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read", "admin"]})
    bot = guarded.client()
    bot.headers["Authorization"] = f"Bearer {made.json()['token']}"
    assert (await me(bot))["scopes"] == ["admin", "read"]
    assert (await ada.put("/api/v1/accounts/ada", json={"role": "viewer"})).status_code == 200
    assert (await me(bot))["scopes"] == ["read"]
    await guarded.control.store.remove_account("ada")
    directory = guarded.control.directory
    assert await directory.until(lambda: "ada" not in directory.accounts)
    assert (await me(bot), await me(ada)) == (401, 401)


async def test_a_limited_token_acts_on_nothing_that_does_not_look_at_its_limits(
    guarded: Guarded,
) -> None:
    bot = await guarded.bearer("read", "jobs", queues=("reports",))
    view = {"title": "dead", "path": "/jobs?q=state:dead"}
    answer = await bot.post("/api/v1/views", json=view)
    assert (answer.status_code, "limited" in answer.json()["detail"]) == (403, True)


async def test_secrets_are_compared_in_constant_time(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded.account("ada", "viewer")
    ada, bot = await guarded.logged_in("ada"), await guarded.bearer("read")
    monkeypatch.setattr(keyring.hmac, "compare_digest", lambda *_: False)
    assert (await me(ada), await me(bot)) == (401, 401)
    monkeypatch.undo()
    assert hmac.compare_digest("a", "a")


async def test_an_export_marks_what_is_not_of_the_chain(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    first = await guarded.control.audit.record("ada", "job.retry", "done")
    forged = msgspec.structs.replace(first, actor="mal")
    subject = guarded.site.subjects.console_event(forged)
    for body in (encode(forged), b"nonsense"):
        await guarded.site.bus.append(Outgoing(subject, body))
    answer = await ada.get("/api/v1/audit/export")
    lines = [msgspec.json.decode(line) for line in answer.content.splitlines()]
    assert [line.get("actor", line.get("text")) for line in lines if "fault" in line] == [
        "mal",
        "nonsense",
    ]
    assert first.hash in [line["hash"] for line in lines if "fault" not in line]
    page = await ada.get("/audit?verify=true")
    assert "2 messages do not fit the chain" in page.text
    assert "but is not part of the chain" in page.text
    assert "<ul" in page.text.split("not fit the chain")[1].split("<form")[0]


async def test_nothing_is_done_that_cannot_be_recorded(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")

    async def refuse(*_: Any, **__: Any) -> None:
        raise BusUnavailable("the broker does not answer")

    monkeypatch.setattr(guarded.control.audit, "record", refuse)
    assert (await ada.post("/api/v1/accounts", json={"name": "eve"})).status_code == 503
    assert (await ada.get("/api/v1/audit/export")).status_code == 503
    assert (await login(guarded.client(), "ada")).status_code == 503
    monkeypatch.undo()
    assert "eve" not in (await guarded.control.store.directory()).accounts


async def test_an_act_stands_in_the_log_with_who_from_where_and_what(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    await ada.post(
        "/api/v1/accounts",
        json={"name": "bob", "role": "viewer"},
        headers={"X-Request-ID": "request-7"},
    )
    await ada.put("/api/v1/accounts/bob", json={"role": "operator"})
    done, begun = await guarded.entries("account.change")
    assert (done.actor, done.target, done.result, done.of) == (
        "ada",
        "account:bob",
        "done",
        begun.number,
    )
    assert (dict(done.before), dict(done.after)) == ({"role": "viewer"}, {"role": "operator"})
    assert (await guarded.entries("account.add"))[0].request_id == "request-7"
    assert begun.address == "127.0.0.1"
    page = (await ada.get("/api/v1/audit?action=account.&limit=2")).json()
    assert [one["action"] for one in page["items"]] == ["account.change"] * 2
    assert (await ada.get(f"/api/v1/audit/{begun.number}")).json()["hash"] == begun.hash
    checked = (await ada.get("/api/v1/audit/verify")).json()
    assert (checked["problem"], checked["last"]) == ("", done.number)
    lines = (await ada.get("/api/v1/audit/export")).text.splitlines()
    assert len(lines) == done.number + 1  # the export stands there itself
    assert (await guarded.entries("audit.export"))[0].result == "shown"


async def test_refusals_stand_in_the_log_once_a_minute(guarded: Guarded) -> None:
    bot = await guarded.bearer("read")
    for _ in range(3):
        assert (await bot.get("/api/v1/audit")).status_code == 403
    page, _ = await guarded.control.audit.newest(10, 0, lambda entry: entry.result == "refused")
    assert [(one.actor[:10], one.target) for one in page] == [("token:bot#", "/api/v1/audit")]


@pytest.mark.parametrize("path", ["/login", "/setup/ada/x", "/api/v1/accounts"])
async def test_a_body_of_ten_megabytes_is_refused(guarded: Guarded, path: str) -> None:
    bot = await guarded.bearer("read", "admin")
    answer = await bot.post(path, content=b"a" * 10_000_000, headers=OWN)
    assert answer.status_code == 413


async def test_what_callers_send_injects_no_header(guarded: Guarded) -> None:
    answer = await guarded.client().get(
        "/login?next=%0d%0aSet-Cookie:%20a=b", headers={"X-Request-ID": "a\r\nb: c"}
    )
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-request-id"] != "a\r\nb: c"
