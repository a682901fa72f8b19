"""Values for filters, checkpoints, and what problems mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person, dispatch

from penstock.jobs.running.checkpoints import Checkpoint, Checkpoints

API = "/api/v1"


@pytest.mark.parametrize(
    ("field", "prefix", "expected"),
    [
        ("function", "", ["mail.send", "shop.load", "shop.render"]),
        ("function", "shop.", ["shop.load", "shop.render"]),
        ("function", "shop.load", ["shop.load"]),
        ("function", "%", []),
        ("function", "zzz", []),
        ("queue", "re", ["reports"]),
        ("queue", "", ["imports", "reports"]),
        ("tag", "night", ["nightly"]),
        ("tag", "x", []),
    ],
)
async def test_values_of_a_field_are_suggested_by_how_they_begin(
    site: Site, field: str, prefix: str, expected: list[str]
) -> None:
    ada: Any = site.caller(Person())
    await dispatch(ada, function="shop.render", tags=["nightly", "big"])
    await dispatch(ada, function="shop.load", tags=["nightly"])
    await dispatch(ada, function="shop.load")
    await dispatch(ada, function="mail.send", queue="imports")
    answer = await ada.get(f"{API}/jobs/suggest", params={"field": field, "prefix": prefix})
    assert answer.json()["items"] == expected


async def test_a_checkpoint_is_shown_without_what_it_holds(site: Site) -> None:
    ada: Any = site.caller(Person())
    job_id = await dispatch(ada)
    path = f"{API}/jobs/{job_id}/checkpoints"
    assert (await ada.get(path)).json()["items"] == []
    data = msgspec.msgpack.encode({"secret": "s3cret"})
    saved = Checkpoint(token=7, data=msgspec.Raw(data))
    await Checkpoints(site.bus, site.subjects, 1_000).save(job_id, saved, 0)
    answer = await ada.get(path)
    [item] = answer.json()["items"]
    assert (item["token"], item["bytes"], item["has_more_work"]) == (7, len(data), True)
    assert "s3cret" not in answer.text
    assert (await ada.get(f"{API}/jobs/gone/checkpoints")).status_code == 404


async def test_each_status_of_a_problem_has_a_meaning(site: Site) -> None:
    items = (await site.client.get(f"{API}/problems")).json()["items"]
    titles = {item["status"]: item["title"] for item in items}
    missing = (await site.client.get(f"{API}/jobs/gone")).json()
    assert titles[missing["status"]] == missing["title"]
