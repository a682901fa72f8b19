"""A console with accounts and tokens, and callers of every kind."""

from __future__ import annotations

from datetime import timedelta

import httpx
from tests.component.console.conftest import HOST, Site

from penstock.console.access.keyring import Keyring
from penstock.console.web.credentials import NoCredentials
from penstock.events.console import AuditRecorded, Role, TokenCreated
from penstock.events.envelope import new_id, utc_now
from penstock.operations.api_tokens import digest, new_token

PASSWORD = "correct horse battery"
OWN = {"Sec-Fetch-Site": "same-origin"}


class Guarded:
    """A console that lets only its own accounts and tokens in."""

    def __init__(self, site: Site) -> None:
        self.site, self.control = site, site.console.control

    def client(self) -> httpx.AsyncClient:
        """A caller without credentials, which keeps cookies."""
        return self.site.caller(Keyring(self.control, NoCredentials()))

    async def token(self, *scopes: str, days: int = 1, queues: tuple[str, ...] = ()) -> str:
        """A token; expired already where ``days`` is negative."""
        token, now = new_token(), utc_now()
        made = TokenCreated(
            token_id=new_id(),
            label="bot",
            digest=digest(token),
            scopes=scopes,
            queues=queues,
            expires_at=now + timedelta(days=days),
        )
        await self.control.directory.reached(await self.control.store.store(made))
        return token

    async def bearer(self, *scopes: str, **options: object) -> httpx.AsyncClient:
        client = self.client()
        token = await self.token(*scopes, **options)  # type: ignore[arg-type]
        client.headers["Authorization"] = f"Bearer {token}"
        return client

    async def account(self, name: str, role: Role) -> None:
        """An account whose password is set, as a person does by the link."""
        store = self.control.store
        await store.add_account(name, role)
        secret, _ = await store.make_setup_link(name)
        await self.control.directory.until(lambda: name in self.control.directory.accounts)
        answer = await self.client().post(
            f"/setup/{name}/{secret}",
            data={"password": PASSWORD, "again": PASSWORD},
            headers=OWN,
        )
        assert answer.status_code == 303, answer.text
        accounts = self.control.directory.accounts
        assert await self.control.directory.until(lambda: bool(accounts[name].password_hash))

    async def logged_in(self, name: str) -> httpx.AsyncClient:
        """A browser in which the person is logged in."""
        client = self.client()
        answer = await login(client, name)
        assert answer.status_code == 303, answer.text
        client.headers.update(OWN)
        return client

    async def entries(self, action: str) -> list[AuditRecorded]:
        """The audit log's entries of an action, newest first."""
        page, _ = await self.control.audit.newest(100, 0, lambda entry: entry.action == action)
        return page


async def login(
    client: httpx.AsyncClient, name: str, password: str = PASSWORD, path: str = "/"
) -> httpx.Response:
    form = {"account": name, "password": password, "next": path}
    return await client.post("/login", data=form, headers=OWN)


__all__ = ["HOST", "OWN", "PASSWORD", "Guarded", "login"]
