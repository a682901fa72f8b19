"""A bulk action is carried on after its console was killed, and does nothing twice."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.integration.test_console import Running, bus  # noqa: F401
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client

JOBS, PER_SECOND = 120, 40
TOKEN = "a token of the operator"


class Operator:
    """Sends requests that act."""

    def __init__(self, console: Running) -> None:
        self._url = f"{console.url}/api/v1"

    def send(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = Request(f"{self._url}{path}", json.dumps(body).encode(), headers)
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        """The answer; None while no server listens, or it has not read so far."""
        request = Request(f"{self._url}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None


@pytest.fixture
def tokens_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ops read,jobs {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    monkeypatch.setenv("PENSTOCK_CONSOLE__TOKENS_FILE", str(file))


async def dead_jobs(client: Client, bus: NatsBus, subjects: Subjects) -> list[str]:  # noqa: F811
    error = JobError(kind="builtins.ValueError", message="no")
    ids = [await client.dispatch_named("shop.load", queue="reports") for _ in range(JOBS)]
    for job_id in ids:
        about: dict[str, Any] = {"job_id": job_id, "queue": "reports", "attempt": 1}
        for event in (
            JobStarted(**about, host="h", worker="w"),
            JobDead(**about, error=error, function="shop.load"),
        ):
            await bus.append(Outgoing(subjects.event(event), encode(event)))
    return ids


@pytest.mark.usefixtures("tokens_file")
async def test_a_bulk_action_survives_the_kill_of_its_console(
    settings: MakeSettings,
    bus: NatsBus,  # noqa: F811
    tmp_path: Path,
) -> None:
    subjects = Subjects(settings.prefix)
    client = Client.over(bus, settings())
    ids = await dead_jobs(client, bus, subjects)
    console = Running(settings(), tmp_path)
    operator = Operator(console)
    try:
        what = {"verb": "retry", "filter": "state:dead"}
        stats = await eventually(
            lambda: (now := operator.get("/jobs/stats")) and now["dead"] == JOBS and now, 60
        )
        assert stats["dead"] == JOBS
        preview = operator.send("/bulk/preview", what)
        confirmed = {**what, "confirm": preview["confirm"], "count": JOBS}
        action = operator.send("/bulk", {**confirmed, "per_second": PER_SECOND})
        path = f"/bulk/{action['id']}"
        await eventually(lambda: (now := operator.get(path)) and now["done"] > 0, 30)
        console.child.signal(signal.SIGKILL)
        await console.child.ended()
        console.restart()
        end = await eventually(
            lambda: (now := operator.get(path)) and now["state"] == "done" and now, 60
        )
        assert (end["done"], end["refused"], end["changed"]) == (JOBS, 0, 0)
    finally:
        console.child.end(10.0)
    views = [await client.job(job_id) for job_id in ids]
    assert {(view.state.value, view.record.life) for view in views} == {("waiting", 2)}
    revivals = await bus.history(subjects.events_stream, subjects.events("job", "*", "JobRevived"))
    assert len(revivals) == JOBS
