"""A token that a token made reaches no further than its maker, and the person behind it, now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, dispatch

from penstock.events.console import (
    AccountAdded,
    AccountRemoved,
    TokenCreated,
    TokenRevoked,
)
from penstock.events.envelope import new_id, utc_now
from penstock.operations.api_tokens import digest, new_token
from penstock.operations.console_access import AccessRefused
from penstock.operations.console_directory import Directory, Token

ALL = ["read", "payload", "jobs", "queues", "schedules", "alerts", "admin"]


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


async def make(caller: httpx.AsyncClient, guarded: Guarded, days: int) -> httpx.AsyncClient:
    """A token with every scope, by the API."""
    body = {"name": "t", "scopes": ALL, "days": days}
    answer = await caller.post("/api/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    made = guarded.client()
    made.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    return made


async def may(caller: httpx.AsyncClient) -> list[str]:
    answer = await caller.get("/api/v1/me")
    return answer.json()["scopes"] if answer.status_code == 200 else []


async def test_a_token_of_a_token_ends_with_the_person_and_has_the_persons_role(
    guarded: Guarded,
) -> None:
    await guarded.account("ada", "admin")
    await guarded.account("mal", "admin")
    ada, mal = await guarded.logged_in("ada"), await guarded.logged_in("mal")
    first = await make(mal, guarded, 1)
    second = await make(first, guarded, 3650)
    third = await make(second, guarded, 3650)
    tokens = (await third.get("/api/v1/tokens")).json()
    assert {one["owner"] for one in tokens} == {"mal"}
    assert len({one["expires_at"] for one in tokens}) == 1, "no longer than the first"
    await ada.put("/api/v1/accounts/mal", json={"role": "viewer"})
    assert [await may(one) for one in (first, second, third)] == [["read"]] * 3
    await ada.delete("/api/v1/accounts/mal")
    assert [await may(one) for one in (first, second, third)] == [[]] * 3
    await ada.post("/api/v1/accounts", json={"name": "mal", "role": "admin"})
    assert [await may(one) for one in (first, second, third)] == [[]] * 3


async def test_a_token_ends_with_the_token_that_made_it(guarded: Guarded) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    first = await make(ada, guarded, 1)
    second = await make(first, guarded, 1)
    [*_, oldest] = (await ada.get("/api/v1/tokens")).json()
    await ada.delete(f"/api/v1/tokens/{oldest['id']}")
    assert (await may(first), await may(second)) == ([], [])


async def test_a_token_without_the_scope_admin_ends_no_other_of_its_person(
    guarded: Guarded,
) -> None:
    await guarded.account("ada", "admin")
    ada = await guarded.logged_in("ada")
    await make(ada, guarded, 1)
    made = await ada.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"]})
    bot = guarded.client()
    bot.headers["Authorization"] = f"Bearer {made.json()['token']}"
    assert (await bot.get("/api/v1/tokens")).json() == []
    for one in (await ada.get("/api/v1/tokens")).json():
        assert (await bot.delete(f"/api/v1/tokens/{one['id']}")).status_code == 404


NOW = utc_now()


def created(token_id: str, owner: str, **fields: Any) -> TokenCreated:
    made: dict[str, Any] = {
        "scopes": ("read", "admin"),
        "expires_at": NOW + timedelta(days=3650),
        "label": "t",
        "digest": token_id,
        "at": NOW,
    }
    return TokenCreated(token_id=token_id, owner=owner, **made | fields)


def folded(*events: Any) -> dict[str, Token]:
    directory = Directory()
    for event in events:
        directory.apply(event)
    return directory.tokens


FIRST = new_id()
FORMER_OWNER = f"token:t#{FIRST[-12:]}"
ADDED = AccountAdded(account="mal", role="admin")


def test_a_token_of_a_former_version_belongs_to_the_account_behind_its_maker() -> None:
    end = NOW + timedelta(days=1)
    first = created(FIRST, "mal", expires_at=end, scopes=("read",))
    token = folded(ADDED, first, created("b", FORMER_OWNER))["b"]
    assert (token.owner, token.maker, token.expires_at) == ("mal", FIRST, end)
    assert token.scopes == ("read",)
    removed = folded(ADDED, first, created("b", FORMER_OWNER), AccountRemoved(account="mal"))
    assert removed["b"].state(NOW) == "revoked"
    revoked = folded(ADDED, first, created("b", FORMER_OWNER), TokenRevoked(token_id=FIRST))
    assert revoked["b"].state(NOW) == "revoked"


@pytest.mark.parametrize(
    "events",
    [
        (created("b", FORMER_OWNER),),
        (created("b", "ada", maker="gone"),),
        (created(FIRST, "mal"), TokenRevoked(token_id=FIRST), created("b", FORMER_OWNER)),
        (ADDED, AccountRemoved(account="mal"), created("b", "mal")),
    ],
    ids=["maker unknown", "maker gone", "maker revoked", "made after the account ended"],
)
def test_a_token_that_nobody_answers_for_is_refused(events: tuple[Any, ...]) -> None:
    assert folded(*events)["b"].state(NOW) == "revoked"


def test_a_token_for_whom_a_provider_vouches_ends_within_a_week() -> None:
    def end(token: TokenCreated) -> datetime:
        return folded(token)[token.token_id].expires_at

    assert end(created("b", "oidc:ada@example.org#9f86d081884c7d65")) == NOW + timedelta(days=7)
    assert end(created("b", "cli/ada")) == NOW + timedelta(days=3650)


async def test_a_limited_token_reads_payloads_of_its_queues_alone(
    site: Site, guarded: Guarded
) -> None:
    ada: Any = site.caller(Person())
    secret = await dispatch(ada, arguments={"iban": "DE00"})
    own = await dispatch(ada, arguments={"iban": "DE01"}, queue="imports")
    bot = await guarded.bearer("read", "payload", queues=("imports",))
    for path in ("/api/v1/jobs/{}/payload", "/jobs/{}/payload"):
        refused, shown = await bot.get(path.format(secret)), await bot.get(path.format(own))
        assert (refused.status_code, "DE00" in refused.text) == (403, False)
        assert (shown.status_code, "DE01" in shown.text) == (200, True)


async def test_a_limited_token_is_no_administrator(guarded: Guarded) -> None:
    """Also one that a former version made."""
    with pytest.raises(AccessRefused, match="cannot be limited"):
        await guarded.control.store.create_token(
            "t", ["read", "admin"], owner="ada", queues=["imports"]
        )
    admin = await guarded.bearer("read", "admin")
    body = {"name": "t", "scopes": ["read", "admin"], "queues": ["imports"]}
    answer = await admin.post("/api/v1/tokens", json=body)
    assert (answer.status_code, "cannot be limited" in answer.json()["detail"]) == (400, True)
    former = await guarded.bearer("read", "admin", queues=("imports",))
    assert await may(former) == ["read"]
    for path in ("accounts", "audit", "audit/export"):
        assert (await former.get(f"/api/v1/{path}")).status_code == 403
    assert (await former.get("/api/v1/tokens")).json() == []


async def test_a_token_of_a_former_version_does_what_its_person_may_now(guarded: Guarded) -> None:
    await guarded.account("mal", "operator")
    store, text = guarded.control.store, new_token()
    _, first = await store.create_token("t", ["read", "admin"], owner="mal")
    made = created("b", f"token:t#{first.token_id[-12:]}", digest=digest(text))
    await guarded.control.directory.reached(await store.store(made))
    bot = guarded.client()
    bot.headers["Authorization"] = f"Bearer {text}"
    assert await may(bot) == ["read"]
