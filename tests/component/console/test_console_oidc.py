"""Logins by OpenID Connect, over HTTP to a provider on loopback, and the attacks on them."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from joserfc.jwk import RSAKey
from tests.component.console.conftest import HOST, Site
from tests.component.console.oidc_provider import CLIENT, SECRET, Claims, Provider
from tests.component.console.signing_in import OWN, Guarded

from penstock.config import ConfigError, Settings
from penstock.config.load import check
from penstock.console.access import login_limits
from penstock.console.access.oidc import CALLBACK, flow
from penstock.console.access.oidc import attempts as attempts_module
from penstock.console.access.oidc import provider as provider_module
from penstock.console.access.oidc.flow import OidcLogins

ROLES = {"data-platform": "operator", "penstock-admins": "admin"}


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    provider = Provider(f"{HOST}{CALLBACK}")
    yield provider
    provider.close()


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.reset()
    return running


@pytest.fixture
def settings(provider: Provider, tmp_path: Path) -> Settings:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    oidc = {
        "issuer": provider.issuer,
        "client_id": CLIENT,
        "client_secret_file": str(tmp_path / "secret"),
        "roles": ROLES,
    }
    return check(
        {
            "host": {"run_dir": str(tmp_path / "run")},
            "console": {"public_url": HOST, "login_required": True, "oidc": oidc},
        }
    )


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of failed logins."""
    for name in ("OF_THE_PAIR", "FROM_ONE_ADDRESS", "TO_ONE_ACCOUNT"):
        monkeypatch.setattr(login_limits, name, 1_000)


async def begin(client: httpx.AsyncClient, path: str = "/", **more: str) -> str:
    """The provider's address that the browser is sent to."""
    answer = await client.get("/login/oidc", params={"next": path, **more})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def log_in(client: httpx.AsyncClient, provider: Provider, path: str = "/") -> httpx.Response:
    return await client.get(provider.authorize(await begin(client, path)))


async def me(client: httpx.AsyncClient) -> Any:
    answer = await client.get("/api/v1/me")
    return answer.json() if answer.status_code == 200 else answer.status_code


async def refusals(guarded: Guarded) -> list[str]:
    entries = await guarded.entries("session.login")
    return [one.detail for one in entries if one.result == "refused"]


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_person_logs_in_by_the_provider(
    guarded: Guarded, provider: Provider, algorithm: str
) -> None:
    provider.signed = provider.signed_by(algorithm)
    ada = guarded.client()
    page = (await ada.get("/login?next=/jobs")).text
    assert 'href="/login/oidc?next=/jobs"' in page
    answer = await log_in(ada, provider, "/jobs?q=state:dead")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?q=state:dead")
    caller = await me(ada)
    assert (caller["role"], caller["method"], caller["is_elevated"]) == ("operator", "oidc", True)
    assert caller["name"].startswith("oidc:ada@example.org#")
    [session] = (await ada.get("/api/v1/me/sessions")).json()
    hours = time.time() + 12 * 3600
    assert session["method"] == "oidc"
    assert abs(msgspec.convert(session["expires_at"], type=datetime).timestamp() - hours) < 60
    [entry] = await guarded.entries("session.login")
    assert (entry.actor, entry.result) == (caller["name"], "done")


def part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def unsigned(claims: Claims) -> str:
    header = json.dumps({"alg": "none", "kid": "rsa-1"})
    return f"{part(header.encode())}.{part(json.dumps(claims).encode())}."


def hashed(secret: bytes) -> Callable[[Claims], str]:
    """Signed by HMAC, as joserfc itself refuses to with a public key."""

    def sign(claims: Claims) -> str:
        header = json.dumps({"alg": "HS256", "kid": "rsa-1"})
        text = f"{part(header.encode())}.{part(json.dumps(claims).encode())}"
        return f"{text}.{part(hmac.digest(secret, text.encode(), 'sha256'))}"

    return sign


def public_key_as_secret(provider: Provider) -> Callable[[Claims], str]:
    return hashed(provider.keys["RS256"].as_pem(private=False))


def client_secret_as_key(_: Provider) -> Callable[[Claims], str]:
    return hashed(SECRET.encode())


def other_key(provider: Provider) -> Callable[[Claims], str]:
    return provider.signed_by("RS256", RSAKey.generate_key(2048, {"kid": "rsa-1"}))


def key_in_the_header(provider: Provider) -> Callable[[Claims], str]:
    own = RSAKey.generate_key(2048, {"kid": "rsa-1"})
    return provider.signed_by("RS256", own, jwk=own.as_dict(private=False))


FORGERIES: dict[str, Callable[[Provider], Callable[[Claims], str]]] = {
    "none": lambda _: unsigned,
    "public key as secret": public_key_as_secret,
    "client secret": client_secret_as_key,
    "other key": other_key,
    "key in the header": key_in_the_header,
}


async def test_a_token_that_the_provider_did_not_sign_is_refused(
    guarded: Guarded, provider: Provider, unlimited: None
) -> None:
    accepted = []
    for name, forge in FORGERIES.items():
        provider.signed = forge(provider)
        client = guarded.client()
        answer = await log_in(client, provider)
        if (answer.status_code, await me(client)) != (403, 401):
            accepted.append(name)
    assert accepted == []
    details = await refusals(guarded)
    assert [detail[:9] for detail in details] == ["ID token:"] * len(FORGERIES)


NOW = time.time
WRONG_CLAIMS: dict[str, Callable[[Claims], Claims]] = {
    "another audience": lambda claims: claims | {"aud": "another client"},
    "no audience": lambda claims: {k: v for k, v in claims.items() if k != "aud"},
    "several audiences, issued to another": lambda claims: (
        claims | {"aud": [CLIENT, "another"], "azp": "another"}
    ),
    "several audiences, issued to none": lambda claims: claims | {"aud": [CLIENT, "another"]},
    "another issuer": lambda claims: claims | {"iss": "https://evil.example"},
    "no issuer": lambda claims: {k: v for k, v in claims.items() if k != "iss"},
    "expired": lambda claims: claims | {"exp": NOW() - 120},
    "no end": lambda claims: {k: v for k, v in claims.items() if k != "exp"},
    "an end that is no number": lambda claims: claims | {"exp": float("nan")},
    "issued in the future": lambda claims: claims | {"iat": NOW() + 3600},
    "not valid yet": lambda claims: claims | {"nbf": NOW() + 3600},
    "no subject": lambda claims: {k: v for k, v in claims.items() if k != "sub"},
    "a subject that is no text": lambda claims: claims | {"sub": 7},
    "no nonce": lambda claims: {k: v for k, v in claims.items() if k != "nonce"},
    "the nonce of another login": lambda claims: claims | {"nonce": "another"},
    "many nonces": lambda claims: claims | {"nonce": [claims["nonce"], "another"]},
}


async def test_a_token_for_another_party_time_or_login_is_refused(
    guarded: Guarded, provider: Provider, unlimited: None
) -> None:
    accepted = []
    for name, change in WRONG_CLAIMS.items():
        provider.changed = change
        client = guarded.client()
        answer = await log_in(client, provider)
        if (answer.status_code, await me(client)) != (403, 401):
            accepted.append(name)
    assert accepted == []
    assert len(await refusals(guarded)) == len(WRONG_CLAIMS)


async def test_an_answer_counts_once(guarded: Guarded, provider: Provider) -> None:
    """Replay of state and code, with the cookie that belonged to it."""
    client = guarded.client()
    back = provider.authorize(await begin(client))
    cookies = dict(client.cookies)
    assert (await client.get(back)).status_code == 303
    thief = guarded.client()
    thief.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    again = await thief.get(back)
    assert (again.status_code, "Log in again" in again.text) == (403, True)
    assert [path for method, path in provider.requests if method == "POST"] == [
        "/realms/main/token"
    ]
    assert await refusals(guarded) == ["the login came back before (state)"]


async def test_an_answer_counts_in_the_browser_that_asked_alone(
    guarded: Guarded, provider: Provider
) -> None:
    """Login CSRF: a stranger's answer, sent to a person's browser by a link."""
    stranger, ada = guarded.client(), guarded.client()
    back = provider.authorize(await begin(stranger))
    assert (await ada.get(back)).status_code == 403
    await begin(ada)  # with a login of her own under way
    assert (await ada.get(back)).status_code == 403
    assert await me(ada) == 401
    assert not [path for method, path in provider.requests if method == "POST"]


async def test_a_code_of_another_login_is_worth_nothing(
    guarded: Guarded, provider: Provider
) -> None:
    """Code injection: a person's code, which leaked, in an answer to the thief's own login."""
    thief = guarded.client()
    stolen = parse_qs(urlsplit(provider.authorize(await begin(guarded.client()))).query)["code"][0]
    own = parse_qs(urlsplit(provider.authorize(await begin(thief))).query)
    query = {"code": stolen, "state": own["state"][0], "iss": own["iss"][0]}
    assert (await thief.get(CALLBACK, params=query)).status_code == 403
    assert await me(thief) == 401
    assert "invalid_grant" in (await refusals(guarded))[0]


async def test_a_cookie_that_was_made_up_is_refused(guarded: Guarded, provider: Provider) -> None:
    client = guarded.client()
    back = provider.authorize(await begin(client))
    client.cookies.clear()
    for cookie in ("", "rubbish", "gAAAAA" + "A" * 90, "x" * 9_000, "\xe9"):
        header = [(b"Cookie", f"penstock-login={cookie}".encode("latin-1"))]
        answer = await client.get(back, headers=header)  # type: ignore[arg-type]
        assert answer.status_code == 403, cookie


async def test_a_login_that_took_too_long_begins_anew(
    guarded: Guarded, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = guarded.client()
    back = provider.authorize(await begin(client))
    late = time.time() + attempts_module.SECONDS + 1
    monkeypatch.setattr(flow, "time", lambda: late)
    assert (await client.get(back)).status_code == 403


@pytest.mark.parametrize("change", [{"iss": "https://evil.example"}, {"iss": None}])
async def test_an_answer_of_another_provider_is_refused(
    guarded: Guarded, provider: Provider, change: dict[str, str | None]
) -> None:
    """Mix-up (RFC 9207): the code must not be sent to this provider's token endpoint."""
    client = guarded.client()
    back = urlsplit(provider.authorize(await begin(client)))
    query = {name: values[0] for name, values in parse_qs(back.query).items()} | change
    given = {name: value for name, value in query.items() if value is not None}
    assert (await client.get(CALLBACK, params=given)).status_code == 403
    assert not [path for method, path in provider.requests if method == "POST"]


async def test_what_the_provider_refuses_is_refused(guarded: Guarded, provider: Provider) -> None:
    client = guarded.client()
    back = parse_qs(urlsplit(provider.authorize(await begin(client))).query)
    query = {"error": "<b>access_denied", "state": back["state"][0], "iss": back["iss"][0]}
    answer = await client.get(CALLBACK, params=query)
    assert (answer.status_code, "<b>" in answer.text) == (403, False)
    assert await refusals(guarded) == ["the provider says '<b>access_denied'"]


METADATA = "http://169.254.169.254/latest/meta-data"


WRONG_ADDRESSES: list[tuple[str, Any]] = [
    ("issuer", "http://127.0.0.1:1/realms/other"),
    ("token_endpoint", METADATA),
    ("jwks_uri", METADATA),
    ("authorization_endpoint", "https://evil.example/authorize"),
    ("token_endpoint", "file:///etc/passwd"),
    ("jwks_uri", "https://127.0.0.1@evil.example/keys"),
    ("end_session_endpoint", "javascript:alert(1)"),
    ("token_endpoint", 7),
]


async def test_what_the_provider_describes_leads_to_no_other_host(
    guarded: Guarded, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSRF, and phishing by way of a description that was tampered with."""
    monkeypatch.setattr(provider_module, "_FAILED_SECONDS", 0.0)
    for name, address in WRONG_ADDRESSES:
        provider.described = lambda document, name=name, address=address: document | {name: address}
        answer = await guarded.client().get("/login/oidc")
        assert (answer.status_code, "location" in answer.headers) == (502, False), (name, address)
        assert "evil" not in answer.text


async def test_redirects_and_endless_answers_of_the_provider_are_not_followed(
    guarded: Guarded, provider: Provider
) -> None:
    keys = "/realms/main/keys"
    elsewhere = f"{provider.issuer}/elsewhere"
    for answer in ((302, {"Location": elsewhere}, b""), (200, {}, b"[" * 600_000), (200, {}, b"7")):
        provider.answers[keys] = answer
        assert (await log_in(guarded.client(), provider)).status_code == 502
    assert ("GET", "/realms/main/elsewhere") not in provider.requests


async def test_a_provider_that_is_away_leaves_the_other_ways_in(
    guarded: Guarded, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers["/realms/main/.well-known/openid-configuration"] = (503, {}, b"")
    client = guarded.client()
    assert (await client.get("/login/oidc")).status_code == 502
    asked = len(provider.requests)
    assert (await client.get("/login/oidc")).status_code == 502
    assert len(provider.requests) == asked  # a flood of logins is no flood of requests there
    assert (await client.get("/login")).status_code == 200
    monkeypatch.setattr(provider_module, "_FAILED_SECONDS", 0.0)
    provider.answers.clear()
    assert (await log_in(client, provider)).status_code == 303


async def test_a_new_key_of_the_provider_is_fetched(
    guarded: Guarded, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await log_in(guarded.client(), provider)).status_code == 303
    before = provider.keys["RS256"]
    provider.keys["RS256"] = RSAKey.generate_key(2048, {"kid": "rsa-2", "use": "sig"})
    provider.signed = provider.signed_by("RS256")
    assert (await log_in(guarded.client(), provider)).status_code == 403  # at most twice a minute
    monkeypatch.setattr(provider_module, "_KEYS_AGAIN_SECONDS", 0.0)
    assert (await log_in(guarded.client(), provider)).status_code == 303
    provider.keys["RS256"] = before


async def test_a_login_leads_to_a_path_of_this_console_alone(
    guarded: Guarded, provider: Provider
) -> None:
    client = guarded.client()
    outside = ("//evil.example", "https://evil.example", "/\\evil", "javascript:x", "/a\r\nb")
    for path in outside:
        answer = await log_in(client, provider, path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), path


async def test_a_session_that_was_there_before_ends_with_the_login(
    guarded: Guarded, provider: Provider
) -> None:
    """Session fixation: each login has a secret of its own, and the former one is worth nothing."""
    client = guarded.client()
    await log_in(client, provider)
    former = client.cookies["penstock-session"]
    await log_in(client, provider)
    assert client.cookies["penstock-session"] != former
    thief = guarded.client()
    thief.headers["Cookie"] = f"penstock-session={former}"
    assert (await me(thief), (await me(client))["role"]) == (401, "operator")


async def test_a_person_without_a_role_is_refused_with_the_reason(
    guarded: Guarded, provider: Provider, unlimited: None
) -> None:
    lists: list[Any] = [["staff"], [], None, "staff", {"data-platform": 1}, [7]]
    for groups in lists:
        provider.person["groups"] = groups
        client = guarded.client()
        answer = await log_in(client, provider)
        assert (answer.status_code, "console.oidc.roles" in answer.text) == (403, True), groups
        assert await me(client) == 401
    why = "no value of the claim groups has a role"
    assert await refusals(guarded) == [why] * len(lists)


async def test_the_highest_role_counts(guarded: Guarded, provider: Provider) -> None:
    provider.person["groups"] = ["data-platform", "penstock-admins", "staff"]
    client = guarded.client()
    await log_in(client, provider)
    assert (await me(client))["role"] == "admin"


async def test_people_are_told_apart_by_their_subject_and_are_no_account(
    guarded: Guarded, provider: Provider
) -> None:
    """One who may name itself at the provider takes neither an account nor another's name."""
    await guarded.account("ada", "admin")
    names = set[str]()
    for subject, email in (("1", "ada"), ("2", "ada"), ("2", "ada#1\u202e")):
        provider.person |= {"sub": subject, "email": email}
        client = guarded.client()
        await log_in(client, provider)
        caller = await me(client)
        assert caller["role"] == "operator"
        names.add(caller["name"])
    assert len(names) == 3
    assert not [name for name in names if name in guarded.control.directory.accounts]
    assert [name.count("#") for name in names] == [1, 1, 1]
    assert "\u202e" not in "".join(names)


async def test_after_the_logout_a_page_names_the_session_at_the_provider(
    guarded: Guarded, provider: Provider
) -> None:
    client = guarded.client()
    await log_in(client, provider)
    out = await client.post("/logout", headers=OWN)
    assert out.headers["location"] == "/logged-out"
    assert await me(client) == 401
    page = (await client.get("/logged-out")).text
    assert f'href="{provider.issuer}/logout?client_id=penstock+console' in page


async def test_a_person_of_the_provider_proves_there_who_it_is(
    guarded: Guarded, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = guarded.client()
    await log_in(client, provider)
    monkeypatch.setattr("penstock.console.access.elevation.LASTS", timedelta(0))
    wanted = {"name": "ci", "scopes": ["read"], "days": 7}
    refused = await client.post("/api/v1/tokens", json=wanted, headers=OWN)
    assert (refused.status_code, refused.json()["type"]) == (
        403,
        "urn:penstock:problem:elevation-needed",
    )
    address = await begin(client, "/account", proof="true")
    assert {"prompt=login", "max_age=0"} <= set(urlsplit(address).query.split("&"))
    provider.changed = lambda claims: claims | {"auth_time": int(time.time()) - 3600}
    assert (await client.get(provider.authorize(address))).status_code == 403
    provider.changed = lambda claims: claims | {"sub": "of another person"}
    other = provider.authorize(await begin(client, "/account", proof="true"))
    assert (await client.get(other)).status_code == 403
    monkeypatch.undo()
    provider.changed = lambda claims: claims
    back = provider.authorize(await begin(client, "/account", proof="true"))
    answer = await client.get(back)
    assert (answer.status_code, answer.headers["location"]) == (303, "/account")
    assert [one.result for one in await guarded.entries("session.elevate")] == ["done"]
    assert (await client.post("/api/v1/tokens", json=wanted, headers=OWN)).status_code == 201


async def test_a_token_of_a_person_of_the_provider_ends_within_a_week(
    guarded: Guarded, provider: Provider
) -> None:
    client = guarded.client()
    await log_in(client, provider)
    wanted = {"name": "ci", "scopes": ["read"], "days": 8}
    answer = await client.post("/api/v1/tokens", json=wanted, headers=OWN)
    assert (answer.status_code, "7 at most" in answer.json()["detail"]) == (403, True)


async def test_a_token_of_an_administrator_of_the_provider_ends_within_a_week_too(
    guarded: Guarded, provider: Provider
) -> None:
    provider.person["groups"] = ["penstock-admins"]
    client = guarded.client()
    await log_in(client, provider)
    assert (await me(client))["role"] == "admin"
    wanted = {"name": "ci", "scopes": ["read", "admin"], "days": 8}
    answer = await client.post("/api/v1/tokens", json=wanted, headers=OWN)
    assert (answer.status_code, "7 at most" in answer.json()["detail"]) == (403, True)


async def test_sessions_end_where_the_provider_is_taken_out_of_the_settings(
    guarded: Guarded, provider: Provider
) -> None:
    client = guarded.client()
    await log_in(client, provider)
    object.__setattr__(guarded.control, "oidc", None)
    assert await me(client) == 401


async def test_the_clients_secret_is_shown_nowhere(
    guarded: Guarded, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    client = guarded.client()
    await log_in(client, provider)
    provider.answers["/realms/main/token"] = (500, {}, SECRET.encode())
    await log_in(guarded.client(), provider)
    shown = caplog.text + str(await refusals(guarded)) + (await client.get("/settings")).text
    assert SECRET not in shown
    assert "token: status 500" in caplog.text


async def test_failed_logins_are_limited(guarded: Guarded, provider: Provider) -> None:
    """Each makes the console ask the provider, and stands in the audit log."""
    client = guarded.client()
    statuses = [(await client.get(f"{CALLBACK}?state=x&code=y")).status_code for _ in range(12)]
    assert statuses == [403] * 10 + [429] * 2
    assert (await client.get("/login")).status_code == 200


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"issuer": "http://login.example.org"}, "issuer"),
        ({"issuer": "https://user@login.example.org"}, "issuer"),
        ({"issuer": "https://login.example.org?x=1"}, "issuer"),
        ({"client_id": ""}, "client_id is missing"),
        ({"roles": {}}, "roles are missing"),
        ({"roles": {"staff": "root"}}, "roles"),
        ({"scopes": ["email"]}, "openid"),
        ({"hosts": ["https://x.example"]}, "hosts"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], problem: str) -> None:
    oidc = {"issuer": "https://login.example.org", "client_id": "x", "roles": ROLES} | change
    with pytest.raises(ConfigError, match=problem):
        check({"console": {"public_url": HOST, "oidc": oidc}})


def test_a_provider_needs_the_consoles_own_address_and_a_secret_that_can_be_read(
    settings: Settings,
) -> None:
    oidc = {"issuer": "https://login.example.org", "client_id": "x", "roles": ROLES}
    with pytest.raises(ConfigError, match="public_url"):
        check({"console": {"oidc": oidc}})
    gone = msgspec.structs.replace(settings.console.oidc, client_secret_file="/gone")
    with pytest.raises(ConfigError, match="client_secret_file"):
        OidcLogins(msgspec.structs.replace(settings.console, oidc=gone))


async def test_by_tls_the_cookie_of_the_attempt_is_bound_to_the_host(
    guarded: Guarded, provider: Provider
) -> None:
    assert guarded.control.attempt_cookie_name == "penstock-login"
    encrypted = dataclasses.replace(guarded.control, is_encrypted=True)
    assert encrypted.attempt_cookie_name == "__Host-penstock-login"
    cookie = (await guarded.client().get("/login/oidc")).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"} <= {
        part.strip() for part in cookie.split(";")
    }
