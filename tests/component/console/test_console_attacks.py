"""Forged cursors and filters, paths that lead elsewhere, and more streams than a console serves."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.served import served
from tests.component.console.test_api_acting import Person, die, dispatch
from tests.waiting import eventually

from penstock.console.live.hub import MOST_CLIENTS
from penstock.console.web.credentials import Principal

API = "/api/v1"
SECRET = "root:"
TEXTS = (
    "' OR '1'='1",
    '" OR 1=1 --',
    "x'; DROP TABLE jobs; --",
    "%",
    "*",
    "\x00",
    "\ud7ff\U0001f600",
    "a" * 5_000,
    "state:dead state:waiting",
    "__class__:x",
    '"',
)
PATHS = (
    "/static/../../../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/static/..%5c..%5cetc%5cpasswd",
    "/static//etc/passwd",
    "/static/%00",
    f"{API}/jobs/..%2f..%2fetc%2fpasswd",
    f"{API}/jobs/%00",
    f"{API}/batches/*",
    f"{API}/graphs/%3E",
    f"{API}/schedules/..%2f..%2f",
    f"{API}/pools/%2e%2e/series",
)


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def lists(ada: httpx.AsyncClient, parameter: str) -> list[str]:
    """Paths of lists that take a query parameter, by the description of the API."""
    described: Any = (await ada.get(f"{API}/openapi.json")).json()
    return [
        path.replace("{", "").replace("}", "")
        for path, methods in described["paths"].items()
        if any(one["name"] == parameter for one in methods.get("get", {}).get("parameters", ()))
    ]


def forged(cursor: str) -> Iterator[str]:
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for place in (0, 11, 12, len(raw) - 1):
        changed = bytearray(raw)
        changed[place] ^= 1
        yield base64.urlsafe_b64encode(changed).decode().rstrip("=")
    yield from (cursor[:-2], cursor + "AA", "A" * 40, "[]", "%00", "ä", cursor.swapcase())


async def test_a_cursor_that_was_changed_or_is_of_another_list_is_refused(
    site: Site, ada: httpx.AsyncClient
) -> None:
    for job_id in [await dispatch(ada) for _ in range(3)]:
        await die(site, job_id)
    cursor = (await ada.get(f"{API}/jobs?limit=1")).json()["next"]
    assert (await ada.get(f"{API}/jobs", params={"limit": 1, "cursor": cursor})).is_success
    accepted = []
    paths = await lists(ada, "cursor")
    assert len(paths) >= 6
    for path in paths:
        others = (cursor,) if path != f"{API}/jobs" else ()
        for text in (*forged(cursor), *others):
            answer = await ada.get(path, params={"cursor": text})
            if answer.status_code not in (400, 404):
                accepted.append((path, text, answer.status_code))
    assert accepted == []
    other_filter = {"cursor": cursor, "q": "state:dead", "limit": 1}
    assert (await ada.get(f"{API}/jobs", params=other_filter)).status_code == 400


@pytest.mark.parametrize("text", TEXTS, ids=[repr(text[:12]) for text in TEXTS])
async def test_a_filter_is_data_and_never_a_query(
    site: Site, ada: httpx.AsyncClient, text: str
) -> None:
    await dispatch(ada)
    names = ("q", "queue", "function", "host", "tag", "batch", "error", "state", "fingerprint")
    for path in (f"{API}/jobs", f"{API}/dead", f"{API}/workflows", f"{API}/batches"):
        for name in names:
            answer = await ada.get(path, params={name: text})
            assert answer.status_code in (200, 400), (path, name, answer.text)
            if path == f"{API}/jobs" and name in ("queue", "function", "error"):
                assert answer.status_code == 400 or answer.json()["items"] == []
    preview = {"verb": "cancel", "filter": f"queue:{text}"}
    answer = await ada.post(f"{API}/bulk/preview", json=preview)
    assert answer.status_code == 400 or answer.json()["count"] == 0, answer.text
    assert len((await ada.get(f"{API}/jobs")).json()["items"]) == 1, "nothing was removed"


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_leads_to_a_file_or_a_subject_of_another_kind(site: Site, path: str) -> None:
    """As it is sent: a client would make `..` plain first."""
    async with served(site, Person()) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode("latin-1")
        writer.close()
    assert answer.split()[1] in ("400", "404"), answer[:300]
    assert SECRET not in answer


class Crowd:
    """Lets everybody in under the name of a header."""

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        return Person(name=headers.get("x-name", "ada")).principal(headers)


async def test_two_thousand_streams_leave_a_console_that_answers(site: Site) -> None:
    """Half of the places are for one person; those of others are served, up to so many pages.

    All are free again later.
    """
    request = "GET /live?t=overview HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Name: {}\r\n\r\n"
    async with served(site, Crowd()) as url:
        host, port = url.removeprefix("http://").split(":")
        statuses: list[bytes] = []
        writers: list[asyncio.StreamWriter] = []
        for round_number in range(20):
            opened = await asyncio.gather(
                *(asyncio.open_connection(host, int(port)) for _ in range(100))
            )
            for number, (_, writer) in enumerate(opened):
                name = "greedy" if round_number < 10 else f"person-{number}"
                writer.write(request.format(name).encode())
            writers += [writer for _, writer in opened]
            lines = await asyncio.gather(*(reader.readline() for reader, _ in opened))
            statuses += [line.split()[1] if line else b"closed" for line in lines]
        assert statuses[:1_000].count(b"200") == MOST_CLIENTS // 2
        assert set(statuses) == {b"200", b"429"}
        assert statuses.count(b"200") == MOST_CLIENTS
        assert site.console.hub.clients == MOST_CLIENTS
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get(f"{API}/version", timeout=10)).is_success
            refused = await client.get("/live?t=overview", headers={"X-Name": "greedy"})
            assert refused.json()["title"] == "Too many requests"
            assert int(refused.headers["retry-after"]) > 0
            for writer in writers:
                writer.close()
            await eventually(lambda: site.console.hub.clients == 0, 20, "all to be gone")
            async with client.stream("GET", "/live?t=overview") as answer:
                assert answer.status_code == 200


async def test_what_the_framework_refuses_is_said_in_a_sentence(ada: httpx.AsyncClient) -> None:
    missing = await ada.get(f"{API}/nothing")
    expected = f"no endpoint has this path; {API}/openapi.json describes them all"
    assert missing.json()["detail"] == expected
    refused = await ada.delete(f"{API}/pools")
    assert refused.json()["detail"] == f"found DELETE, expected one of {refused.headers['allow']}"
    large = await ada.post(f"{API}/jobs", content=b"a" * 1_100_000)
    assert (large.status_code, large.json()["detail"]) == (413, "expected at most 1,048,576 bytes")
    page = await ada.get("/nothing", headers={"Accept": "text/html"})
    assert "There is no such page." in page.text
