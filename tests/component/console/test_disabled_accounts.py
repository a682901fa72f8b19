"""A disabled account: nobody is let in by it, from one moment to the next, until it is enabled."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.served import served
from tests.component.console.signing_in import Guarded, login

from penstock.bus.protocol import Outgoing, WrongSequence
from penstock.console.access.keyring import Keyring
from penstock.console.web.credentials import NoCredentials
from penstock.events.console import (
    AccountAdded,
    AccountRemoved,
    Role,
    SessionStarted,
    TokenCreated,
)
from penstock.events.envelope import new_id, utc_now
from penstock.operations.api_tokens import digest
from penstock.operations.console_access import AccessRefused
from penstock.operations.console_directory import VOUCHED, Directory


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    guarded = Guarded(site)
    await guarded.account("ada", "admin")
    await guarded.account("bob", "operator")
    return guarded


async def status(caller: httpx.AsyncClient) -> int:
    return (await caller.get("/api/v1/me")).status_code


async def bearer(guarded: Guarded, person: httpx.AsyncClient) -> httpx.AsyncClient:
    """A program with a token that the person makes."""
    answer = await person.post("/api/v1/tokens", json={"name": "bot", "scopes": ["read"]})
    client = guarded.client()
    client.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    return client


async def test_sessions_and_tokens_end_at_once_and_no_login_is_let_in(guarded: Guarded) -> None:
    ada, bob = await guarded.logged_in("ada"), await guarded.logged_in("bob")
    bot = await bearer(guarded, bob)
    assert [await status(one) for one in (bob, bot)] == [200, 200]
    answer = await ada.put("/api/v1/accounts/bob", json={"disabled": True})
    assert (answer.status_code, answer.json()["disabled"]) == (200, True)
    assert [await status(one) for one in (bob, bot)] == [401, 401]
    assert (await login(guarded.client(), "bob")).status_code == 403
    logins = await guarded.entries("session.login")
    [refused] = [entry for entry in logins if entry.result == "refused"]
    assert (refused.actor, refused.detail) == ("bob", "the account is disabled")


async def test_an_enabled_account_logs_in_again_but_what_ended_stays_so(guarded: Guarded) -> None:
    ada, bob = await guarded.logged_in("ada"), await guarded.logged_in("bob")
    bot = await bearer(guarded, bob)
    await ada.put("/api/v1/accounts/bob", json={"disabled": True})
    answer = await ada.put("/api/v1/accounts/bob", json={"disabled": False, "role": "viewer"})
    assert (answer.json()["role"], answer.json()["disabled"]) == ("viewer", False)
    assert [await status(one) for one in (bob, bot)] == [401, 401]
    again = await guarded.logged_in("bob")
    later_bot = await bearer(guarded, again)
    assert [await status(one) for one in (again, later_bot)] == [200, 200]
    tokens = (await guarded.control.store.directory()).tokens.values()
    assert [one.state(utc_now()) for one in tokens] == ["revoked", "valid"], "as the command reads"


async def test_the_act_stands_in_the_audit_log(guarded: Guarded) -> None:
    ada = await guarded.logged_in("ada")
    await ada.put("/api/v1/accounts/bob", json={"disabled": True})
    done, begun = await guarded.entries("account.change")
    assert (begun.result, done.result, done.target) == ("begun", "done", "account:bob")
    assert (done.actor, done.before, done.after) == (
        "ada",
        {"disabled": "false"},
        {"disabled": "true"},
    )


@pytest.mark.parametrize("change", [{"disabled": True}, {"role": "viewer"}])
async def test_the_last_administrator_stays_one(
    guarded: Guarded, change: dict[str, object]
) -> None:
    ada = await guarded.logged_in("ada")
    await guarded.control.store.add_account("eve", "admin")  # without a password: no way in
    for answer in (
        await ada.put("/api/v1/accounts/ada", json=change),
        await ada.delete("/api/v1/accounts/ada"),
    ):
        assert answer.status_code == 400
        assert "only administrator who can log in" in answer.json()["detail"]
    assert await status(ada) == 200
    await guarded.account("mal", "admin")
    assert (await ada.put("/api/v1/accounts/ada", json=change)).status_code == 200
    with pytest.raises(AccessRefused, match="only administrator"):
        await guarded.control.store.disable_account("mal")


async def test_the_last_administrator_is_removed_where_that_is_meant(guarded: Guarded) -> None:
    store = guarded.control.store
    with pytest.raises(AccessRefused, match="only administrator"):
        await store.remove_account("ada")
    await store.remove_account("ada", may_be_last=True)
    assert [*(await store.directory()).accounts] == ["bob"]


async def test_two_administrators_do_not_disable_each_other(guarded: Guarded) -> None:
    await guarded.account("mal", "admin")
    store = guarded.control.store
    answers = await asyncio.gather(
        store.disable_account("ada"), store.disable_account("mal"), return_exceptions=True
    )
    assert sum(isinstance(one, AccessRefused) for one in answers) == 1
    accounts = (await store.directory()).accounts.values()
    assert [one.is_admin for one in accounts].count(True) == 1


async def test_the_loser_of_two_changes_at_once_is_told_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(message: Outgoing) -> int:
        raise WrongSequence(message.subject, 1)

    monkeypatch.setattr(site.bus, "append", overtaken)
    with pytest.raises(AccessRefused, match="accounts were changed at the same time"):
        await site.console.control.store.add_account("eve", "viewer")


async def test_what_was_under_way_lets_nobody_in(guarded: Guarded) -> None:
    """A login and a token that were stored just after the account was disabled."""
    store, directory, now = guarded.control.store, guarded.control.directory, utc_now()
    secret, _ = await store.make_setup_link("bob")
    await store.disable_account("bob")
    token = TokenCreated(
        token_id=new_id(),
        label="t",
        owner="bob",
        digest="d",
        scopes=("read",),
        expires_at=now + VOUCHED,
    )
    await store.store(token)
    session = SessionStarted(
        session_id=new_id(), digest="s", account="bob", expires_at=now + VOUCHED
    )
    await directory.reached(await store.store(session))
    assert directory.tokens[token.token_id].state(now) == "revoked"
    assert directory.session("s") is None
    with pytest.raises(AccessRefused, match="expired or was used"):
        await store.set_password("bob", digest(secret), "hash")
    with pytest.raises(AccessRefused, match="is disabled"):
        await store.make_setup_link("bob")


async def test_a_page_disables_and_enables(guarded: Guarded) -> None:
    ada, bob = await guarded.logged_in("ada"), await guarded.logged_in("bob")
    assert 'action="/accounts/bob/disable"' in (await ada.get("/accounts")).text
    assert (await ada.post("/accounts/bob/disable")).status_code == 303
    assert await status(bob) == 401
    page = (await ada.get("/accounts")).text
    assert "<strong>disabled</strong>" in page
    assert 'action="/accounts/bob/disable"' not in page
    assert (await ada.post("/accounts/bob/enable")).status_code == 303
    assert await status(await guarded.logged_in("bob")) == 200
    refused = await ada.post("/accounts/ada/disable")
    assert (refused.status_code, "only administrator" in refused.text) == (400, True)


@pytest.mark.parametrize(("role", "is_kept"), [(None, False), ("viewer", True)])
def test_a_login_under_way_is_none_of_the_next_account_of_that_name(
    role: Role | None, is_kept: bool
) -> None:
    directory = Directory()
    started = SessionStarted(
        session_id="s", digest="d", account="eve", role=role, expires_at=utc_now() + VOUCHED
    )
    added = AccountAdded(account="eve", role="admin")
    for event in (added, AccountRemoved(account="eve"), started, added):
        directory.apply(event)
    assert (directory.session("d") is not None) == is_kept, "of others a provider vouches"


@pytest.mark.parametrize("body", [{}, {"disabled": 1}, {"disabled": None}, {"role": "root"}])
async def test_a_change_is_named_exactly(guarded: Guarded, body: dict[str, object]) -> None:
    ada = await guarded.logged_in("ada")
    assert (await ada.put("/api/v1/accounts/bob", json=body)).status_code == 400


async def test_of_an_account_that_there_is_not_nothing_is_disabled(guarded: Guarded) -> None:
    with pytest.raises(AccessRefused, match="no account"):
        await guarded.control.store.disable_account("eve")


@pytest.mark.parametrize("path", ["/live?t=overview", "/api/v1/events/stream"])
async def test_streams_that_are_open_end(guarded: Guarded, path: str) -> None:
    bob = await guarded.logged_in("bob")
    authenticator = Keyring(guarded.control, NoCredentials())
    cookies = "; ".join(f"{name}={value}" for name, value in bob.cookies.items())
    async with (
        served(guarded.site, authenticator) as url,
        httpx.AsyncClient(base_url=url, headers={"cookie": cookies}, timeout=30) as client,
        client.stream("GET", path) as answer,
    ):
        assert answer.status_code == 200
        parts = answer.aiter_bytes()
        assert await anext(parts)
        await guarded.control.store.disable_account("bob")
        async for _ in parts:
            pass  # what was on its way; the end of the stream ends this
        assert (await client.get(path)).status_code == 401
