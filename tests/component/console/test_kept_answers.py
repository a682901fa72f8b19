"""What is kept of requests with an Idempotency-Key: no secret, and nothing that can be forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded

from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.roles import ROLES
from penstock.console.alerts.sealing import Sealing
from penstock.console.app import application
from penstock.console.web.acting import shows_secret
from penstock.console.web.credentials import NoCredentials
from penstock.console.web.once import Answered
from penstock.events.envelope import utc_now
from penstock.jobs.payloads.encryption import About
from penstock.testing.memory.bus import MemoryBus

KEY = {"Idempotency-Key": "k1"}
VIEW = {"title": "dead", "path": "/jobs?q=state:dead"}


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


def kept(bus: MemoryBus, site: Site) -> list[Any]:
    return list(bus.stored(site.subjects.console_stream, site.subjects.console("request")))


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        ("/tokens", {"name": "ci", "scopes": ["read"]}, "token"),
        ("/accounts", {"name": "eve"}, "path"),
        ("/accounts/olga/setup-link", None, "path"),
    ],
)
async def test_an_answer_with_a_secret_is_stored_nowhere_and_given_once(
    site: Site, guarded: Guarded, path: str, body: Any, shown: str
) -> None:
    await guarded.account("olga", "viewer")
    admin = await guarded.bearer("read", "admin")
    first = await admin.post(f"/api/v1{path}", json=body, headers=KEY)
    assert first.status_code == 201, first.text
    secret = first.json()[shown].rpartition("/")[2]
    records = kept(site.bus, site)
    assert len(records) == 2
    ring = site.console.alerts.sealing.ring
    for record in records:
        about = _about(record.subject.split(".")[3])
        assert secret.encode() not in record.body + ring.open(record.body, about)
    assert not site.bus.stored(site.subjects.keys_stream, ">")
    again = await admin.post(f"/api/v1{path}", json=body, headers=KEY)
    assert again.status_code == 409
    assert "shown once" in again.json()["detail"]
    assert secret not in again.text


def test_every_answer_that_shows_a_secret_is_declared_so(site: Site) -> None:
    """A new endpoint whose answer has such a field fails here."""
    named = {"token", "secret", "password", "key", "path", "link"}
    app = application(site.console, NoCredentials())
    found = set()
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            shape = handler.parsed_fn_signature.return_type.annotation
            fields = set(getattr(shape, "__struct_fields__", ()))
            if "POST" in {str(one) for one in handler.http_methods} and fields & named:
                found.add((route.path, shows_secret(handler.opt)))
    assert {path for path, is_secret in found if is_secret} == {
        "/api/v1/tokens",
        "/api/v1/accounts",
        "/api/v1/accounts/{name:str}/setup-link",
    }
    assert {path for path, is_secret in found if not is_secret} == {"/api/v1/views"}


async def test_an_answer_without_a_secret_is_given_again_and_is_not_stored_in_clear(
    site: Site, guarded: Guarded
) -> None:
    caller = await guarded.bearer("read")
    first = await caller.post("/api/v1/views", json=VIEW, headers=KEY)
    again = await caller.post("/api/v1/views", json=VIEW, headers=KEY)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotency-replayed"] == "true"
    assert all(b"state:dead" not in record.body for record in kept(site.bus, site))


def record(body: bytes = b"{}", **changed: Any) -> bytes:
    made = Answered(request="r", at=utc_now(), state="done", status=200, body=body)
    return msgspec.json.encode(msgspec.structs.replace(made, **changed))


@pytest.mark.parametrize(
    "forge",
    [
        lambda folder, name: record(),
        lambda folder, name: b"",
        lambda folder, name: b"\xff" * 100,
        lambda folder, name: b"\x00" * 900_000,
        lambda folder, name: Sealing("", folder / "other").ring.seal(record(), _about(name)),
        lambda folder, name: Sealing("", folder / "console").ring.seal(record(), _about("x" * 64)),
        lambda folder, name: Sealing("", folder / "console").ring.seal(b"[]", _about(name)),
        lambda folder, name: Sealing("", folder / "console").ring.seal(
            b'{"request":"r","at":"2026-01-01T00:00:00Z","media_type":"text/html"}', _about(name)
        ),
    ],
    ids=["clear", "empty", "noise", "huge", "other key", "other request", "no record", "html"],
)
async def test_a_forged_record_is_no_answer(
    site: Site, guarded: Guarded, tmp_path: Path, forge: Any
) -> None:
    caller = await guarded.bearer("read")
    await caller.post("/api/v1/views", json=VIEW, headers=KEY)
    [*_, last] = kept(site.bus, site)
    body = forge(tmp_path, last.subject.split(".")[3])
    await site.bus.append(Outgoing(last.subject, body))
    answer = await caller.post("/api/v1/views", json=VIEW, headers=KEY)
    assert answer.status_code == 409, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "idempotency-replayed" not in answer.headers


async def test_one_callers_record_is_no_answer_to_another(site: Site, guarded: Guarded) -> None:
    ada, bob = await guarded.bearer("read"), await guarded.bearer("read")
    first = await ada.post("/api/v1/views", json=VIEW, headers=KEY)
    second = await bob.post("/api/v1/views", json=VIEW, headers=KEY)
    assert first.json()["id"] != second.json()["id"]


@pytest.mark.parametrize("role", ROLES)
def test_only_the_consoles_key_stores_what_is_kept(role: str) -> None:
    publishes = ROLES[role].publishes
    may = any(one in publishes for one in ("console.*.*.*", "console.request.*.*"))
    assert may == (role == "console")


def _about(name: str) -> About:
    return About(purpose="answer", job=name, function="", queue="")
