"""Accounts and audit log of the console on a real broker, with the keys of its roles."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.integration.guarded import GuardedBroker
from tests.integration.test_console import Running, died, store
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus, connect
from penstock.console.access.rights import BY_KEY, BY_SETTING, NOT_READABLE
from penstock.console.web.scopes import Scope
from penstock.events.subjects import Subjects
from penstock.operations.audit_log import KEPT_DAYS, AuditLog
from penstock.operations.console_access import ConsoleAccess

SUBJECTS = Subjects("penstock")
COMPUTE, COMPUTES = "/api/v1/simulations", ("/recompute", "/what-if")
"""What changes nothing, although its method is not a safe one."""
NOT_READ = {"/api/v1/jobs/{job_id}/checkpoints", "/api/v1/stuck"}
"""What the reader's key does not read; the answer says so."""
PAGES = (
    *("/", "/pools", "/pools/reports", "/queues", "/decisions", "/jobs", "/jobs/job-1"),
    *("/jobs?q=state:dead", "/failures", "/workflows", "/batches", "/bulk", "/tags", "/stuck"),
    *("/schedules", "/capacity", "/alerts", "/alerts/history", "/alerts/rules"),
    *("/alerts/rules/burn-fast", "/alerts/channels", "/alerts/silences", "/system", "/events"),
    *("/settings", "/account", "/accounts", "/audit"),
)


async def test_who_may_write_accounts_and_the_audit_log(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    settings.prefix = "penstock"
    buses: dict[str, NatsBus] = {}
    for role in ("orchestrator", "console", "console-reader", "dispatcher"):
        buses[role] = await connect(guarded.settings(settings, role))
    console = ConsoleAccess(buses["console"], SUBJECTS, "console")
    token, made = await console.create_token("ci", ["read"], owner="ada")
    for role in ("console-reader", "dispatcher", "orchestrator"):
        with pytest.raises(NotPermitted):
            await ConsoleAccess(buses[role], SUBJECTS, role).create_token(
                "x", ["read"], owner="eve"
            )
    for role in ("console", "console-reader"):
        await AuditLog(buses[role], SUBJECTS, role).record("ada", "job.cancel", "done")
    with pytest.raises(NotPermitted):
        await AuditLog(buses["dispatcher"], SUBJECTS, "x").record("eve", "job.cancel", "done")
    reader = ConsoleAccess(buses["console-reader"], SUBJECTS, "x")
    assert [*(await reader.directory()).tokens] == [made.token_id]
    checked = await AuditLog(buses["console"], SUBJECTS, "x").verify()
    assert (checked.problem, checked.entries) == ("", 2)
    request = {"last_by_subj": SUBJECTS.console("audit")}
    stored = (await buses["console"]._api("STREAM.MSG.GET.CONSOLE", request))["message"]
    assert f"Nats-TTL: {KEPT_DAYS * 86_400}s" in base64.b64decode(stored["hdrs"]).decode()
    kept = await buses["console"].history(SUBJECTS.console_stream, SUBJECTS.console())
    assert len(kept) == 3
    assert not [message for message in kept if token.encode() in message.body]
    for bus in buses.values():
        await bus.close()


def reading_console(
    guarded: GuardedBroker, settings: MakeSettings, folder: Path, read_only: bool
) -> Running:
    """A console process with the key of ``console-reader``."""
    own = guarded.settings(settings, "console-reader")
    return Running(
        own,
        folder,
        PENSTOCK_NATS__NKEY_FILE=own.nats.nkey_file,
        PENSTOCK_NATS__CA_FILE=own.nats.ca_file,
        PENSTOCK_CONSOLE__LOGIN_REQUIRED="true",
        PENSTOCK_CONSOLE__READ_ONLY=str(read_only).lower(),
    )


async def ask_everything(client: httpx.AsyncClient) -> tuple[int, list[object]]:
    """Asks each endpoint once; how many act, and which did not answer as a reader's must."""
    described = (await client.get("/api/v1/openapi.json")).json()["paths"]
    acts, failed = 0, []
    for path, methods in described.items():
        address = path.replace("{job_id}", "job-1").replace("{", "").replace("}", "")
        for method in methods:
            if method == "get":
                if "stream" in path.split("/")[-1:]:
                    continue  # it does not end
                answer = await client.get(address)
                if path in NOT_READ:
                    is_right = answer.json().get("detail") == NOT_READABLE
                else:
                    is_right = answer.status_code not in (403, 500, 503)
            elif path.startswith(COMPUTE) or path.endswith(COMPUTES):
                answer = await client.request(method, address, json={})
                is_right = answer.status_code in (400, 404)  # it is not given what to compute
            else:
                acts += 1
                answer = await client.request(method, address, json={})
                reason = answer.json().get("detail", "")
                is_refused = answer.status_code == 403 and "changes nothing" in reason
                is_of_sessions = path.startswith(("/api/v1/session/", "/api/v1/me/sessions"))
                is_right = is_refused or is_of_sessions
            if not is_right:
                failed.append((method, path, answer.status_code))
    return acts, failed


@pytest.mark.parametrize(
    ("read_only", "because"), [(True, BY_SETTING), (False, BY_KEY)], ids=["setting", "key"]
)
async def test_a_console_with_the_readers_key_shows_all_and_does_nothing(
    guarded: GuardedBroker,
    settings: MakeSettings,
    tmp_path: Path,
    read_only: bool,
    because: str,
) -> None:
    settings.prefix = "penstock"
    owner = await connect(guarded.settings(settings, "orchestrator"), makes_streams=True)
    bus = await connect(guarded.settings(settings, "console"))
    token, _ = await ConsoleAccess(bus, SUBJECTS, "test").create_token(
        "admin", [str(scope) for scope in Scope if scope is not Scope.PUBLIC], owner="test"
    )
    sequence = await store(owner, SUBJECTS, *died("job-1"))
    before = len(guarded.violations())
    running = reading_console(guarded, settings, tmp_path, read_only)
    headers = {"Authorization": f"Bearer {token}"}
    client = httpx.AsyncClient(base_url=running.url, headers=headers, timeout=20)
    try:

        async def is_current() -> bool:
            with suppress(httpx.HTTPError):
                answer = await client.get("/api/v1/health")
                return answer.status_code == 200 and (
                    answer.json()["standing"]["position"] >= sequence
                )
            return False

        await eventually(is_current, 30, "the console")
        for _ in range(2):  # what is refused is refused again, and not logged again
            acts, failed = await ask_everything(client)
            assert failed == []
            assert acts > 50
            for path in PAGES:
                page = await client.get(path)
                assert page.status_code == 200, path
                assert 'href="/acts/' not in page.text, path
        assert because in (await client.get("/acts/job.retry/job-1")).text
        assert NOT_READABLE in (await client.get("/api/v1/streams")).text
        refused = Counter(guarded.violations()[before:])
        assert max(refused.values()) == 1, "what was refused was asked for again"
        assert not [one for one in refused if "Subscription" in one]
        lines = [line.split(maxsplit=2)[-1] for line in running.log.read_text().splitlines()]
        again = {line for line in lines if lines.count(line) > 1}
        assert not again, again
    finally:
        await client.aclose()
        running.child.end(10.0)
        await bus.close()
        await owner.close()
