"""A job with very many events is shown by both ends of its history; the middle when asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import get

from penstock.bus.protocol import Outgoing, Stored
from penstock.events.envelope import encode
from penstock.events.job import (
    JobDispatched,
    JobError,
    JobEvent,
    JobFailed,
    JobProgressed,
    JobRetrying,
    JobStarted,
)

_TRIES = 900


def progress(events: int) -> list[JobEvent]:
    return [
        JobDispatched(job_id="long", queue="reports", function="f", payload=b""),
        JobStarted(job_id="long", queue="reports", attempt=1, host="h1", worker="w1"),
        *(JobProgressed(job_id="long", done=n, total=events) for n in range(1, events + 1)),
    ]


def tries() -> list[JobEvent]:
    about = {"job_id": "long", "queue": "reports"}
    error = JobError(kind="OSError", message="no")
    events: list[JobEvent] = [JobDispatched(**about, function="f", payload=b"")]
    for number in range(1, _TRIES + 1):
        failed = JobFailed(**about, attempt=number, error=error, run_seconds=1.0)
        events += [
            JobStarted(**about, attempt=number, host="h1", worker="w1"),
            failed,
            JobRetrying(job_id="long", attempt=number + 1, due_at=failed.at),
        ]
    return events


class Reads:
    """Counts what is read of the broker.

    Attributes:
        requests: for histories.
        messages: that they returned.
    """

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = self.messages = 0
        self._history = site.bus.history
        monkeypatch.setattr(site.bus, "history", self.history)

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        self.requests += 1
        page = await self._history(stream, subject, limit, start)
        self.messages += len(page)
        return page


async def append(site: Site, events: Sequence[JobEvent]) -> None:
    await site.bus.append_many([Outgoing(site.subjects.event(one), encode(one)) for one in events])


async def walked(site: Site) -> list[int]:
    """Sequences of the first events, and then of all pages that follow them."""
    page = await get(site, "/jobs/long/events")
    sequences = [item["sequence"] for item in page["items"][:200]]
    while page["next"]:
        page = await get(site, f"/jobs/long/events?cursor={page['next']}")
        sequences += [item["sequence"] for item in page["items"]]
    return sequences


@pytest.mark.parametrize("number", [2_500, 12_500])
async def test_reading_does_not_grow_with_the_progress_of_a_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await append(site, progress(number))
    reads = Reads(site, monkeypatch)
    job = await get(site, "/jobs/long")
    assert reads.requests < 30
    assert reads.messages < 1_000
    assert (job["job"]["progress"], job["job"]["state"]) == (f"{number} of {number}", "running")
    assert (job["events"], job["fencing_token"], len(job["attempts"])) == (number + 2, 2, 1)
    events = await get(site, "/jobs/long/events")
    sequences = [item["sequence"] for item in events["items"]]
    last = number + 2
    assert sequences == [*range(1, 201), *range(last - 199, last + 1)]
    assert (events["total"], events["left_out"]) == (last, last - 400)
    page = await site.client.get("/jobs/long")
    assert f'?cursor={events["next"]}">' in page.text


async def test_a_job_of_very_many_tries_shows_the_first_and_the_last_ones(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(site, tries())
    reads = Reads(site, monkeypatch)
    job = await get(site, "/jobs/long")
    assert reads.messages < 3 * 1_000
    assert (job["job"]["state"], job["job"]["attempt"]) == ("retrying", _TRIES)
    numbers = [one["number"] for one in job["attempts"]]
    assert numbers[:66] == [*range(1, 67)]
    assert numbers[-66:] == [*range(_TRIES - 65, _TRIES + 1)]
    assert all(one["end"] == "JobRetrying" or one["end"] == "JobFailed" for one in job["attempts"])
    total = 3 * _TRIES + 1
    events = await get(site, "/jobs/long/events")
    sequences = [item["sequence"] for item in events["items"]]
    assert sequences == [*range(1, 201), *range(total - 199, total + 1)]


@pytest.mark.parametrize("events", [progress(1_700), tries()], ids=["progress", "tries"])
async def test_the_folded_middle_is_read_on_from_a_cursor(
    site: Site, events: list[JobEvent]
) -> None:
    await append(site, events)
    assert await walked(site) == [*range(1, len(events) + 1)]
    cursor = (await get(site, "/jobs/long/events"))["next"]
    page = await site.client.get(f"/jobs/long?cursor={cursor}")
    assert "further events" in page.text
    refused = await site.client.get("/api/v1/jobs/other/events?cursor=" + cursor)
    assert refused.status_code == 400
