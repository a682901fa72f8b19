"""Nobody fills the audit log, of which no key removes anything, with what costs nothing to send."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import OWN, Guarded, login

from penstock.bus.protocol import Extent
from penstock.console.access import recorder
from penstock.console.web import rate_limits
from penstock.console.web.rate_limits import READS_PER_MINUTE, SMALL_ACTS_PER_MINUTE

LONG = "/api/v1/me/sessions/" + "x" * 3_000
SENT = 200


@pytest.fixture
async def guarded(site: Site) -> Guarded:
    return Guarded(site)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All within one minute."""
    monkeypatch.setattr(rate_limits.time, "time", lambda: 1_800_000_000.0)


async def flood(caller: httpx.AsyncClient, *tokens: str) -> list[int]:
    headers = [{"Authorization": f"Bearer {token}"} for token in tokens] or [{}]
    answers = await asyncio.gather(
        *(caller.delete(LONG, headers=headers[number % len(headers)]) for number in range(SENT))
    )
    return sorted(answer.status_code for answer in answers)


async def test_a_reader_adds_few_entries_a_minute(site: Site, guarded: Guarded) -> None:
    viewer = await guarded.bearer("read")
    statuses = await flood(viewer)
    assert statuses == [404] * SMALL_ACTS_PER_MINUTE + [429] * (SENT - SMALL_ACTS_PER_MINUTE)
    entries = await guarded.entries("session.end")
    results = [one.result for one in entries]
    assert results.count("refused") == 1, "of those beyond the limit, the first"
    stored = site.bus.stored(site.subjects.console_stream, site.subjects.console("audit"))
    assert len(stored) == 2 * SMALL_ACTS_PER_MINUTE + 1
    assert max(len(one.body) for one in stored) < 1_500
    other = await guarded.bearer("read")
    assert (await other.delete(LONG)).status_code == 404, "others have limits of their own"


async def test_further_tokens_of_one_person_are_of_no_use(guarded: Guarded) -> None:
    await guarded.account("ada", "viewer")
    store = guarded.control.store
    known, tokens = guarded.control.directory.tokens, []
    for name in ("a", "b", "c"):
        token, made = await store.create_token(name, ["read"], owner="ada")
        await guarded.control.directory.until(lambda made=made: made.token_id in known)
        tokens.append(token)
    caller = guarded.client()
    statuses = await flood(caller, *tokens)
    assert statuses.count(404) == SMALL_ACTS_PER_MINUTE
    await login(caller, "ada")
    caller.headers.update(OWN)
    revoked = await caller.delete(f"/api/v1/tokens/{made.token_id}")
    assert revoked.status_code == 204, "the person in a browser can end them"


async def test_who_has_no_account_adds_few_entries_and_shares_no_view(
    site: Site, guarded: Guarded
) -> None:
    site.client.headers["Sec-Fetch-Site"] = "same-origin"
    view = {"title": "URGENT: requeue here", "path": "/jobs", "is_shared": True}
    answer = await site.client.post("/api/v1/views", json=view)
    assert (answer.status_code, "shared by who logged in" in answer.json()["detail"]) == (403, True)
    own = await site.client.post("/api/v1/views", json=view | {"is_shared": False})
    assert own.status_code == 201
    assert (await flood(site.client)).count(404) == SMALL_ACTS_PER_MINUTE - 2
    assert (await guarded.entries("session.end"))[0].actor == "local"


async def test_recorded_views_are_limited_before_they_are_recorded(guarded: Guarded) -> None:
    reader = await guarded.bearer("read", "payload")
    path = "/api/v1/jobs/gone/payload"
    for _ in range(READS_PER_MINUTE):
        assert (await reader.get(path)).status_code == 404
    assert (await reader.get(path)).status_code == 429
    entries, _ = await guarded.control.audit.newest(2 * READS_PER_MINUTE)
    assert [one.result for one in entries] == ["refused", *["shown"] * READS_PER_MINUTE]


async def test_refusals_that_were_not_recorded_are_counted_in_the_next_entry(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = await guarded.bearer("read")
    for _ in range(5):
        assert (await viewer.post("/api/v1/recover", json={})).status_code == 403
    monkeypatch.setattr(recorder, "_REFUSALS_EVERY_SECONDS", -1.0)
    assert (await viewer.post("/api/v1/recover", json={})).status_code == 403
    newest, oldest = await guarded.entries("stuck.recover")
    assert "4 more since the entry before" in newest.detail
    assert "more since" not in oldest.detail


async def test_the_last_tenth_of_a_bounded_stream_is_kept_for_operators(
    site: Site, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1_000_000
    held = Extent(first=1, last=9, messages=9, bytes=950_000, max_bytes=most, configured_bytes=most)

    async def extent(_: str) -> Extent:
        return held

    monkeypatch.setattr(site.bus, "extent", extent)
    await guarded.account("ada", "viewer")
    viewer, operator = await guarded.bearer("read"), await guarded.bearer("read", "jobs")
    audit = site.subjects.console_stream, site.subjects.console("audit")
    before = len(site.bus.stored(*audit))
    refused = await viewer.delete(LONG)
    assert (refused.status_code, "nearly full" in refused.json()["detail"]) == (503, True)
    assert (await viewer.post("/api/v1/recover", json={})).status_code == 403
    assert len(site.bus.stored(*audit)) == before, "neither is recorded"
    assert (await operator.post("/api/v1/jobs/gone/cancel", json={})).status_code == 404
    await guarded.logged_in("ada")
