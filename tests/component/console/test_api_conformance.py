"""The API does what its description says, asked by schemathesis over a socket."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.component.console import conformance_checks
from tests.component.console.conftest import Site
from tests.component.console.served import served
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch, send

from penstock.console.access.keyring import Keyring
from penstock.console.web.credentials import NoCredentials
from penstock.console.web.rate_limits import RateLimits
from penstock.console.web.scopes import Scope

ENDLESS = "/stream$"
SEED = "1"
ROOT = str(Path(__file__).parents[3])
STAYS_DEAD = """
[[operations]]
include-path = "/api/v1/dead/{job_id}"
checks.use_after_free.enabled = false
"""
"""Of a dead job its letter is removed; the job is still dead, and is shown as that."""


async def seeded(site: Site) -> None:
    """Something of each kind, so that not every path ends in 404."""
    ada: Any = site.caller(Person())
    ids = [await dispatch(ada, tags=["nightly"]) for _ in range(3)]
    await die(site, ids[0])
    calls = [{"function": "shop.load", "queue": "reports"}]
    await send(ada, "POST", "/batches", {"calls": calls, "id": "b1"})
    step = {"name": "load", "function": "shop.load", "queue": "reports"}
    definition = {"name": "nightly", "steps": [step]}
    await send(ada, "POST", "/graphs", {"definition": definition, "id": "g1"})
    await send(ada, "PUT", "/schedules/nightly", {**calls[0], "cron": "0 1 * * *"})
    await send(ada, "POST", "/views", {"title": "dead", "path": "/jobs?q=state:dead"}, 201)
    await send(ada, "POST", "/alerts/channels", {"id": "log", "name": "log", "kind": "log"}, 201)
    matchers = [{"label": "pool", "glob": "reports"}]
    silence = {"matchers": matchers, "reason": "repair", "seconds": 3600}
    await send(ada, "POST", "/silences", silence, 201)
    await send(ada, "POST", "/accounts", {"name": "eve"}, 201)
    chosen = {"target": "jobs", "verb": "cancel", "filter": "state:waiting"}
    preview = await send(ada, "POST", "/bulk/preview", chosen, 200)
    confirmed = {**chosen, "confirm": preview["confirm"], "count": preview["count"]}
    await send(ada, "POST", "/bulk", confirmed)


async def conformance(site: Site, folder: Path, *options: str) -> str:
    """What schemathesis reports; empty where all answers are as described."""
    site.spawn(site.console.bulk.run)
    site.spawn(site.console.alerts.run)
    await seeded(site)
    (folder / "schemathesis.toml").write_text(STAYS_DEAD)
    scopes = [scope for scope in Scope if scope is not Scope.PUBLIC]
    token = await Guarded(site).token(*scopes)
    async with served(site, Keyring(site.console.control, NoCredentials())) as url:
        command = (
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json"),
            *("--exclude-path-regex", ENDLESS, "--header", f"Authorization: Bearer {token}"),
            *("--exclude-checks", "positive_data_acceptance", "--seed", SEED),
            *("--request-timeout", "20", "--continue-on-failure", "--no-color", *options),
        )
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": conformance_checks.__name__,
                "PYTHONPATH": ROOT,
            },
            cwd=folder,  # where it keeps what it has found
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    return output.decode() if process.returncode else ""


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RateLimits, "take", lambda *_: {})


@pytest.mark.usefixtures("unlimited")
async def test_every_endpoint_answers_as_described(site: Site, tmp_path: Path) -> None:
    """A few requests to each, half of them not of the form that the description asks for."""
    report = await conformance(site, tmp_path, "--phases", "fuzzing", "--max-examples", "3")
    assert report == ""


@pytest.mark.long
@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(
    "options",
    [
        ("--phases", "coverage"),
        ("--phases", "fuzzing", "--max-examples", "25"),
        ("--phases", "stateful", "--mode", "positive", "--max-examples", "100"),
    ],
    ids=["each limit of the description", "many requests", "requests that follow another"],
)
async def test_every_endpoint_answers_as_described_many_times(
    site: Site, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Thousands of requests: minutes, of which the console works for less than one."""
    assert await conformance(site, tmp_path, *options) == ""


async def test_the_description_says_what_a_body_may_be_and_how_errors_look(site: Site) -> None:
    described: Any = (await site.client.get("/api/v1/openapi.json")).json()
    schemas = described["components"]["schemas"]
    assert schemas["NewBatch"]["additionalProperties"] is False
    assert schemas["NewBatch"]["properties"]["calls"]["maxItems"] == 5_000
    operations = [one for path in described["paths"].values() for one in path.values()]
    answers = [one["responses"]["default"]["content"] for one in operations]
    assert {(*content,) for content in answers} == {("application/problem+json",)}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"dry_run": 0}, "/dry_run"),
        ({"dry_run": "true"}, "/dry_run"),
        ({"threshold": "0.5"}, "/threshold"),
        ({"other": 1}, "/"),
        ([], "/"),
    ],
)
async def test_a_body_of_other_types_is_refused_and_the_place_is_named(
    site: Site, body: Any, pointer: str
) -> None:
    ada: httpx.AsyncClient = site.caller(Person())
    answer = await ada.post("/api/v1/recover", json=body)
    assert answer.status_code == 400, answer.text
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 200_000, b"nul"])
async def test_a_body_that_is_no_json_is_refused(site: Site, body: bytes) -> None:
    ada: httpx.AsyncClient = site.caller(Person())
    headers = {"Content-Type": "application/json"}
    answer = await ada.post("/api/v1/recover", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
