"""`penstock api rows`: the command asks a console that is served over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.component.console.conftest import Site
from tests.component.console.served import served
from tests.component.console.test_console_api import dispatched
from tests.waiting import eventually

from penstock.bus.protocol import Bus
from penstock.cli.api import rows
from penstock.cli.main import cli
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.console.access.keyring import Keyring
from penstock.console.web.credentials import Authenticator, Local, NoCredentials
from penstock.events.envelope import utc_now
from penstock.operations.audit_log import AuditLog
from penstock.operations.settings_in_force import Announcer
from penstock.runtime.paths import free_port


class Elsewhere(Session):
    """Commands in a thread of their own, with the broker of the console under test."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site, self._loop = site, asyncio.get_running_loop()

    def settings(self) -> Settings:
        return self._site.settings

    def run(self, request: Callable[[Bus, Settings], Awaitable[Any]]) -> Any:
        async def requested() -> Any:
            return await request(self._site.bus, self._site.settings)

        return asyncio.run_coroutine_threadsafe(requested(), self._loop).result(30)

    async def call(self, *arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, cli, arguments, obj=self)


def keyring(site: Site, others: Authenticator) -> Keyring:
    return Keyring(site.console.control, others)


@pytest.fixture
async def closed(site: Site) -> AsyncIterator[str]:
    """The address of a console that lets no caller in without a token."""
    await site.store(*(dispatched(number) for number in range(3)))
    async with served(site, keyring(site, NoCredentials())) as url:
        yield url


async def test_the_state_is_shown_without_a_token_where_the_console_asks_for_none(
    site: Site,
) -> None:
    await site.store(*(dispatched(number) for number in range(3)))
    session = Elsewhere(site)
    async with served(site, keyring(site, Local())) as url:
        shown = await session.call("api", "rows", "show", "--url", url)
    assert shown.exit_code == 0, shown.output
    lines = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines() if "  " in line)
    assert lines["rows"].startswith("current, up to event 3 of 20")
    assert lines["missing"] == "nothing"
    assert lines["size"].endswith(" MiB")
    assert not site.console.control.directory.tokens


async def test_rows_are_made_anew_with_a_token_that_ends_with_the_call(
    site: Site, closed: str
) -> None:
    session = Elsewhere(site)
    begun = await session.call("api", "rows", "rebuild", "--url", closed, "--reason", "a test")
    assert begun.exit_code == 0, begun.output
    assert "a test" in begun.stdout
    await eventually(lambda: site.console.store.generation == 1, 10, "the new rows")
    [token] = site.console.control.directory.tokens.values()
    assert token.scopes == ("admin",)
    await eventually(lambda: token.id and not _is_valid(site), 10, "the end of the token")
    entries, _ = await AuditLog(site.bus, site.subjects, "x").newest(50, 0, lambda _: True)
    assert [(one.action, one.result) for one in reversed(entries)] == [
        (action, result)
        for action in ("token.create", "console.rebuild", "token.revoke")
        for result in ("begun", "done")
    ]


async def test_a_token_of_a_file_is_used(site: Site, closed: str, tmp_path: Path) -> None:
    session, file = Elsewhere(site), tmp_path / "token"
    made = await session.call("api", "token", "create", "ops", "--scope", "read")
    file.write_text(made.stdout)
    await eventually(lambda: site.console.control.directory.tokens, 10, "the token")
    session.as_json = True
    where = ("--url", closed, "--token-file", str(file))
    shown = await session.call("api", "rows", "show", *where)
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.stdout)
    assert (answer["url"], answer["state"]) == (closed, "current")
    assert (answer["standing"]["position"], answer["database_bytes"] > 0) == (3, True)
    refused = await session.call("api", "rows", "rebuild", *where)
    assert (refused.exit_code, "this needs admin" in refused.stderr) == (1, True)
    file.write_text("pst_of_another_installation")
    unknown = await session.call("api", "rows", "show", *where)
    assert (unknown.exit_code, "does not know the token in" in unknown.stderr) == (1, True)
    file.write_text("two words")
    assert (await session.call("api", "rows", "show", *where)).exit_code == 2


async def test_a_console_of_another_installation_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Elsewhere(site)
    async with served(site, keyring(site, Local())) as url:
        monkeypatch.setattr(rows, "as_configured", lambda _: url)
        foreign = await session.call("api", "rows", "show")
        assert (foreign.exit_code, foreign.stdout) == (2, "")
        assert f"the console at {url} is of another installation" in foreign.stderr
        await Announcer(site.bus, "console", site.settings).publish()
        own = await session.call("api", "rows", "show")
        assert own.exit_code == 0, own.output


async def test_a_wrong_address_is_named_and_a_token_crosses_no_network_in_clear(
    site: Site, tmp_path: Path
) -> None:
    session, file = Elsewhere(site), tmp_path / "token"
    file.write_text("pst_x")
    away = await session.call("api", "rows", "show", "--url", f"http://127.0.0.1:{free_port()}")
    assert (away.exit_code, "no console answers at" in away.stderr) == (1, True)
    for url in ("ftp://127.0.0.1", "console.example.org", "http://[", "http://127.0.0.1/x"):
        assert (await session.call("api", "rows", "show", "--url", url)).exit_code == 2, url
    where = ("--url", "http://console.example.org", "--token-file", str(file))
    clear = await session.call("api", "rows", "show", *where)
    assert (clear.exit_code, "by https alone" in clear.stderr) == (2, True)


def _is_valid(site: Site) -> bool:
    tokens = site.console.control.directory.tokens.values()
    return any(token.state(utc_now()) == "valid" for token in tokens)
