"""The page says how a subscriber without Penstock reads calls and results; its code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from tests.component.worker.given import QUEUE, Stage, settings

from penstock.jobs import job
from penstock.jobs.payloads.payload import Payload

PAGE = (Path(__file__).parents[3] / "docs/jobs.md").read_text("utf-8")
SECTION = PAGE.partition("## Reading events without Penstock")[2].partition("\n## ")[0]


@job(name="subscriber-test.charge", queue=QUEUE)
def charge(amount: int, to: str) -> dict[str, int]:
    return {"charged": amount}


async def test_the_code_of_the_page_decodes_calls_and_results() -> None:
    stage = Stage(settings())
    async with stage.worker():
        job_id = await stage.client.dispatch(charge(amount=3, to="ann"))
        await stage.ended(job_id)
    bodies = {
        stored.subject.rpartition(".")[2]: stored.body
        for stored in stage.bus.stored(stage.subjects.events_stream, stage.subjects.job(job_id))
    }
    code: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1], code)
    call = code["call_of"](bodies["JobDispatched"])
    assert call["arguments"] == {"amount": 3, "to": "ann"}
    assert (call["type"], call["id"]) == ("penstock.job.1", job_id)
    assert code["result_of"](bodies["JobCompleted"]) == {"charged": 3}


def test_the_page_names_each_field_of_a_call() -> None:
    fields = {field.name for field in msgspec.structs.fields(Payload)}
    assert [name for name in fields if f"`{name}`" not in SECTION] == []
