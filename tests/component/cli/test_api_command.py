"""`penstock api`: tokens, accounts and the audit log, without a console."""

from __future__ import annotations

import json

import pytest
from tests.component.cli.in_memory import InMemory

from penstock.bus.protocol import Bus, BusUnavailable, Outgoing
from penstock.cli.api.recorded import access, acted
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.console import AuditRecorded
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.operations.api_tokens import digest, is_token
from penstock.operations.audit_log import AuditLog
from penstock.operations.console_access import ConsoleAccess
from penstock.runtime import console_place


@pytest.fixture
def session() -> InMemory:
    session = InMemory()
    session.as_json = False
    return session


def test_a_token_is_made_listed_and_revoked(session: InMemory) -> None:
    made = session.call("api", "token", "create", "ci", "--scope", "jobs", "--queue", "reports")
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert is_token(token)
    session.as_json = True
    [listed] = json.loads(session.call("api", "token", "ls").stdout)
    assert (listed["name"], listed["scopes"], listed["queues"]) == ("ci", ["jobs"], ["reports"])
    assert "digest" not in listed
    session.as_json = False
    revoked = session.call("api", "token", "revoke", listed["id"])
    assert revoked.stdout == "token ci is revoked\n"
    assert "revoked" in session.call("api", "token", "ls").stdout
    checked = session.call("api", "audit", "verify")
    assert checked.stdout.startswith("4 entries, 1 to 4: each holds the hash of the one before")
    assert token not in session.call("api", "token", "ls").stdout


def test_a_function_is_muted_listed_and_unmuted(session: InMemory) -> None:
    muted = session.call("api", "mute", "shop.load", "--reason", "known, #4711")
    assert muted.stdout == "function shop.load is muted\n"
    assert "known, #4711" in session.call("api", "muted").stdout
    session.as_json = True
    [listed] = json.loads(session.call("api", "muted").stdout)
    assert (listed["function"], listed["reason"]) == ("shop.load", "known, #4711")
    session.as_json = False
    for _ in range(2):
        unmuted = session.call("api", "unmute", "shop.load")
        assert unmuted.stdout == "function shop.load is not muted\n"
    assert "no function is muted" in session.call("api", "muted").stderr
    refused = session.call("api", "mute", "a b")
    assert (refused.exit_code, "expected a registered name" in refused.stderr) == (2, True)
    assert session.call("api", "audit", "verify").stdout.startswith("8 entries")


def test_what_is_wrong_is_refused_and_stands_in_the_log(session: InMemory) -> None:
    refused = session.call("api", "token", "revoke", "019a")
    assert (refused.exit_code, "'019a' is no token" in refused.stderr) == (2, True)
    assert session.call("api", "account", "add", "ada").exit_code == 0
    twice = session.call("api", "account", "add", "ada")
    assert (twice.exit_code, "there is an account 'ada' already" in twice.stderr) == (2, True)
    assert session.call("api", "account", "role", "eve").exit_code == 2
    assert session.call("api", "token", "create", "x", "--days", "9999").exit_code == 2
    checked = session.call("api", "audit", "verify")
    assert checked.stdout.startswith("8 entries")


def test_an_account_is_added_changed_and_removed(session: InMemory) -> None:
    added = session.call("api", "account", "add", "ada", "--role", "operator")
    assert added.stdout.startswith("http://127.0.0.1:9470/setup/ada/")
    assert session.call("api", "account", "link", "ada").stdout != added.stdout
    assert session.call("api", "account", "role", "ada", "--role", "admin").exit_code == 0
    listed = session.call("api", "account", "ls").stdout
    assert "admin" in listed
    assert "not yet" in listed
    assert session.call("api", "account", "rm", "ada").stdout == "account ada is removed\n"
    assert "no account" in session.call("api", "account", "ls").stderr


def test_the_last_administrator_is_removed_only_where_that_is_said(session: InMemory) -> None:
    async def has_password(bus: Bus, settings: Settings) -> None:
        store = access(bus, settings)
        secret, _ = await store.make_setup_link("ada")
        await store.set_password("ada", digest(secret), "hash")

    session.call("api", "account", "add", "ada", "--role", "admin")
    session.run(has_password)
    refused = session.call("api", "account", "rm", "ada")
    assert (refused.exit_code, "is the only administrator" in refused.stderr) == (2, True)
    removed = session.call("api", "account", "rm", "ada", "--last")
    assert removed.stdout == "account ada is removed\n"


def test_an_account_is_disabled_and_enabled(session: InMemory) -> None:
    session.call("api", "account", "add", "ada")
    assert session.call("api", "account", "disable", "ada").stdout == "account ada is disabled\n"
    assert "disabled" in session.call("api", "account", "ls").stdout
    assert session.call("api", "account", "link", "ada").exit_code == 2
    enabled = session.call("--json", "api", "account", "enable", "ada")
    assert json.loads(enabled.stdout) == {"account": "ada", "state": "enabled"}
    assert session.call("api", "account", "disable", "eve").exit_code == 2


def test_the_link_is_whole(session: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def links_to(start: str, **console: object) -> None:
        monkeypatch.setattr(session, "settings", lambda: check({"console": console}))
        session.as_json = True
        made = json.loads(session.call("api", "account", "link", "ada").stdout)
        assert made["link"] == f"{start}{made['path']}"

    session.call("api", "account", "add", "ada")
    certificate = {"tls_certificate_file": "a.pem", "tls_key_file": "b.pem"}
    links_to("https://127.0.0.1:9471", address="0.0.0.0", port=9471, **certificate)
    links_to("https://jobs.example.org", public_url="https://jobs.example.org/")


def test_the_link_leads_to_the_console_that_runs_here(
    session: InMemory, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    settings = check({"host": {"run_dir": str(tmp_path / "run")}})
    monkeypatch.setattr(session, "settings", lambda: settings)
    console_place.remember(settings, "http://127.0.0.1:41234")
    assert console_place.find(settings) == "http://127.0.0.1:41234"
    added = session.call("api", "account", "add", "ada")
    assert added.stdout.startswith("http://127.0.0.1:41234/setup/ada/")
    monkeypatch.setattr(console_place.os, "kill", _ended)
    assert console_place.find(settings) == ""


def _ended(*_: int) -> None:
    raise ProcessLookupError


@pytest.mark.parametrize("error", [BusUnavailable("no answer"), ValueError("a mistake")])
def test_every_act_has_two_entries_whatever_is_raised(session: InMemory, error: Exception) -> None:
    refused = session.call("api", "account", "add", "a b")
    assert (refused.exit_code, "a b" in refused.stderr) == (2, True)

    async def fail(_: ConsoleAccess) -> None:
        raise error

    with pytest.raises(type(error)):
        session.run(lambda bus, settings: acted(bus, settings, "x", "y", fail))

    bench = session.bench
    log = AuditLog(bench.bus, bench.bus.subjects, "x")
    entries, _ = session.loop.run_until_complete(log.newest(50))
    assert [one.result for one in reversed(entries)] == ["begun", "refused", "begun", "failed"]


def test_a_head_that_was_noted_in_short_is_found(session: InMemory) -> None:
    session.call("api", "account", "add", "ada")
    head = session.call("api", "audit", "verify").stdout.split()[-1]
    for noted in (head, head[:8], f"{head[:8]}…", f"{head[:8]}..."):
        assert session.call("api", "audit", "verify", "--head", noted).exit_code == 0
    assert session.call("api", "audit", "verify", "--head", "0" * 8).exit_code == 1
    assert session.call("api", "audit", "verify", "--head", head[:3]).exit_code == 2


def test_a_check_names_each_forgery_and_the_head_of_the_chain(session: InMemory) -> None:
    assert session.call("api", "account", "add", "ada").exit_code == 0
    head = session.call("api", "audit", "verify").stdout.split()[-1]
    forged = AuditRecorded(source="x", block=0, number=1, actor="mal", action="x", result="done")

    async def forge(bus: Bus, settings: Settings) -> None:
        subject = Subjects(settings.prefix).console_event(forged)
        for _ in range(2):
            await bus.append(Outgoing(subject, encode(forged)))

    session.run(forge)
    refused = session.call("api", "audit", "verify")
    assert (refused.exit_code, head in refused.stderr) == (1, True)
    assert "2 faults in the audit log; 2 entries are part of the chain" in refused.stderr
    assert refused.stderr.count("claims to be entry 1 but is not part of the chain") == 2
