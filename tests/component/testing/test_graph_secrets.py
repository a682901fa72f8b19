"""What is encrypted or masked is not shown, and not stored, by way of a graph's context."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.protocol import broker_time
from penstock.config.load import check
from penstock.jobs import BadGraph, JobRefused, job, registry
from penstock.jobs.payloads import redaction
from penstock.jobs.workflows.declared.reading import from_values
from penstock.testing import Bench
from penstock.views.graph_board import graph_detail

SECRET = "4111-1111-1111-1111"
CHARGE = {"name": "pay", "function": "secret.charge", "takes": {"card": "context.card"}}
WORKFLOW = from_values({"name": "w", "required": ["card", "api_key"], "steps": [CHARGE]})


@job(name="secret.charge", queue="cards", masked=["card"])
def charge(card: str) -> str:
    return "paid"


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[charge.name] = charge
    yield
    registry.REGISTRY.pop(charge.name)


@pytest.fixture
def strict(tmp_path: Path) -> Bench:
    keys = tmp_path / "keys"
    keys.write_text(f"one {b64encode(bytes(32)).decode()}\n")
    keys.chmod(0o600)
    return Bench(check({"encryption": {"key_file": str(keys), "every_job": True}}))


async def test_a_context_is_shown_without_what_a_step_masks(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph_id = await penstock.client.definitions.run(WORKFLOW, {"card": SECRET, "api_key": "k1"})
    graph = await graphs.show(graph_id)
    shown = graph_detail(graph, await graphs.jobs(graph), broker_time(penstock.bus))
    assert shown.arguments == {"card": "***", "api_key": "***"}


def test_an_event_is_shown_without_its_context() -> None:
    tree: dict[str, Any] = {"type": "GraphStarted", "context": "gaRjYXJkpDQxMTE="}
    assert redaction.event(tree)["context"] == "(11 bytes; see 'penstock workflow show')"


async def test_where_every_job_is_encrypted_no_context_is_stored(strict: Bench) -> None:
    with pytest.raises(BadGraph, match=r"every_job is set.*give the values to the steps"):
        await strict.client.definitions.run(WORKFLOW, {"card": SECRET, "api_key": "k1"})
    steps = [{"name": "ok", "approval": {}}, {"name": "why", "wait": {}}]
    graph_id = await strict.client.definitions.run(from_values({"name": "w", "steps": steps}))
    with pytest.raises(JobRefused, match="send true, false or none"):
        await strict.client.graphs.signal(graph_id, "why", SECRET)
    await strict.client.graphs.signal(graph_id, "ok", True)
    stored = strict.bus.stored(strict.bus.subjects.events_stream, strict.bus.subjects.events())
    assert not any(SECRET.encode() in message.body for message in stored)
