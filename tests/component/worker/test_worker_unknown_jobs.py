"""Two versions of the job code on one queue: what one does not know, the other runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest
from tests.component.worker.given import QUEUE, Stage, once, settings

from penstock.bus.protocol import Outgoing
from penstock.cli.jobs.job_view import COLUMNS, description
from penstock.config.topology import pools
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.jobs import Client, job, registry
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.reading.handed_on import of_headers
from penstock.testing.memory import broker
from penstock.testing.memory.bus import MemoryBus
from penstock.views.job_history import job_row
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.claiming.live_builds import LiveBuilds
from penstock.worker.claiming.unknown_jobs import (
    GIVES_WAY,
    REST_SECONDS,
    pause_seconds,
)
from penstock.worker.core.company import Company
from penstock.worker.running.outcome import Outcome
from penstock.worker.running.recording import FinishedJob, Recorder

AFTER = 300.0


@job(queue=QUEUE, name="shop.resize-1")
def resize(width: int) -> None: ...


@job(queue=QUEUE, name="shop.resize-2")
def resize_with_colour(width: int, colour: str) -> None: ...


@job(queue=QUEUE, name="shop.resize-3")
def resize_by_text(width: str) -> None: ...


@job(queue=QUEUE, name="shop.other")
def other() -> None: ...


for kind in (resize, resize_with_colour, resize_by_text, other):
    del registry.REGISTRY[kind.name]
for kind in (resize, resize_with_colour, resize_by_text):
    kind.name = "shop.resize"

VERSIONS = {
    "new": {resize.name: resize_with_colour, other.name: other},
    "old": {resize.name: resize, other.name: other},
    "text": {resize.name: resize_by_text, other.name: other},
    "none": {other.name: other},
}


@contextmanager
def code(version: str) -> Iterator[None]:
    """This process has a version of the job code while the block runs."""
    before = dict(registry.REGISTRY)
    registry.REGISTRY.update(VERSIONS[version])
    yield
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


class Site:
    """A broker whose clock the test moves, and workers with different versions of the code."""

    def __init__(self) -> None:
        self.now = utc_now().timestamp()
        self.settings = settings(unknown_after_seconds=AFTER)
        self.bus = MemoryBus(settings=self.settings, now=lambda: self.now)
        self.subjects = self.bus.subjects
        self.client = Client(self.bus.client(), prefix="p")
        self.gave_way: list[str] = []

    async def live(self, *builds: str) -> None:
        """A host reports live workers with these builds."""
        workers = PoolWorkers(planned=1, started=1, ready=1, builds=builds)
        snapshot = HostSnapshot(
            source="executor/h", host="h", cpu_cores=1, memory_bytes=1, pools={QUEUE: workers}
        )
        await self.bus.append(Outgoing(self.subjects.host_snapshot("h"), encode(snapshot)))

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.bus.tick()

    async def worker(self, version: str, exclusive: bool = False) -> Worker:
        return Worker(self, version, exclusive)

    async def view(self, job_id: str) -> JobView:
        return await self.client.job(job_id)

    async def story(self, job_id: str) -> list[str]:
        events = (await self.view(job_id)).events
        return [event.name if isinstance(event, Event) else "?" for _, event in events]


class Worker:
    def __init__(self, site: Site, version: str, exclusive: bool) -> None:
        self.site, self.version = site, version
        self.bus = site.bus.client()
        self.claims = Claims(
            self.bus,
            site.settings,
            pools(site.settings)[QUEUE].profile,
            "h",
            f"worker-{version}",
            builds=LiveBuilds(self.bus, site.subjects, QUEUE, version),
            give_way=site.gave_way.append if exclusive else None,
        )

    async def win(self, most: int = 10) -> list[ClaimedJob]:
        with code(self.version):
            deliveries = await self.bus.puller(QUEUE).fetch(most, 0)
            return await self.claims.win(deliveries, Company(runs_one=True))

    async def complete(self, held: ClaimedJob) -> None:
        recorder = Recorder(self.bus, self.claims, 1_000_000)
        await recorder.record([FinishedJob(held, Outcome(result=b"\xc0"))])


@pytest.fixture
async def site() -> Site:
    return Site()


async def test_an_unknown_function_is_handed_on_behind_others(site: Site) -> None:
    await site.live("none", "old")
    unaware, aware = await site.worker("none"), await site.worker("old")
    job_id = await site.client.dispatch(resize(width=1))
    known = await site.client.dispatch(other())
    site.pass_seconds(0.1)
    assert await unaware.win(most=1) == []
    first, held = await aware.win()  # at once, and not at the head of the line again
    assert (first.id, held.id, held.attempt) == (known, job_id, 1)
    assert await site.story(job_id) == ["JobDispatched", "JobStarted"]
    assert held.pickup_seconds >= 0.09  # since its dispatch, not since it was handed on


async def test_one_that_the_workers_of_the_other_build_did_not_take_comes_ever_less_often(
    site: Site,
) -> None:
    await site.live("none", "old")
    unaware = await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    assert await unaware.win() == []
    site.pass_seconds(0.5)
    assert await unaware.win() == []
    schedule = site.subjects.schedule(QUEUE, job_id)
    assert await site.bus.last(site.subjects.jobs_stream, schedule) is not None
    assert await unaware.win() == []
    site.pass_seconds(0.25)
    [held] = await (await site.worker("old")).win()
    assert held.id == job_id


async def test_a_worker_that_handed_a_job_on_leaves_the_next_message_to_others() -> None:
    """Else it is the first to ask for the copy, again and again."""
    stage = Stage(settings(unknown_after_seconds=AFTER))
    workers = PoolWorkers(planned=1, started=1, ready=1, builds=("another",))
    snapshot = HostSnapshot(
        source="executor/h", host="h", cpu_cores=1, memory_bytes=1, pools={QUEUE: workers}
    )
    await stage.bus.append(Outgoing(stage.subjects.host_snapshot("h"), encode(snapshot)))
    copies: list[float] = []
    await stage.bus.listen(stage.subjects.queue(QUEUE), lambda *_: copies.append(time.monotonic()))
    async with stage.worker():
        await stage.client.dispatch(resize(width=1))
        await once(lambda: len(copies) >= 4)
    pauses = [after - before for before, after in pairwise(copies[1:])]
    assert min(pauses) >= REST_SECONDS * 0.9


@pytest.mark.parametrize(
    ("dispatched", "version"),
    [("new", "old"), ("old", "new")],
    ids=["an argument that is not known", "an argument that is missing"],
)
async def test_another_signature_is_handed_on(site: Site, dispatched: str, version: str) -> None:
    await site.live("old", "new")
    call = resize_with_colour(width=1, colour="red") if dispatched == "new" else resize(width=1)
    job_id = await site.client.dispatch(call)
    assert await (await site.worker(version)).win() == []
    assert (await site.view(job_id)).state is State.WAITING
    site.pass_seconds(0.1)
    [held] = await (await site.worker(dispatched)).win()
    assert held.id == job_id


async def test_it_is_dead_once_no_live_worker_knows_it_for_the_time(site: Site) -> None:
    await site.live("none")
    unaware = await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    began = site.now
    while (await site.view(job_id)).state is State.WAITING:
        assert await unaware.win() == []
        site.pass_seconds(1.0)
    error = (await site.view(job_id)).error
    assert error is not None
    assert error.kind == "unknown-job"
    assert "no job is called 'shop.resize'" in error.message
    assert "build none (worker h.worker-none)" in error.message
    assert "jobs.unknown_after_seconds" in error.message
    assert (await site.view(job_id)).attempts == 0
    assert AFTER <= site.now - began < AFTER + 62


async def test_it_lives_while_a_live_worker_has_a_build_that_was_not_asked(site: Site) -> None:
    unaware, other_version = await site.worker("none"), await site.worker("new")
    job_id = await site.client.dispatch(resize(width=1))
    for _ in range(8):
        await site.live("none", "new")
        assert await unaware.win() == []
        site.pass_seconds(AFTER / 2)
    assert (await site.view(job_id)).state is State.WAITING
    await site.live("none", "new")
    assert await other_version.win() == []  # asked now, and it has another signature
    view = await site.view(job_id)
    assert view.state is State.DEAD
    assert "build none" in view.error.message
    assert "build new" in view.error.message


async def test_after_a_day_it_is_dead_whatever_builds_hosts_report(site: Site) -> None:
    unaware = await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    began = site.now
    while (await site.view(job_id)).state is State.WAITING and site.now - began < 30 * 3600:
        await site.live("none", "invented")
        assert await unaware.win() == []
        site.pass_seconds(3600.0)
    assert 24 * 3600 < site.now - began <= 26 * 3600
    error = (await site.view(job_id)).error
    assert error is not None
    assert "no worker with build invented took it" in error.message


async def test_a_value_that_does_not_fit_is_dead_at_once_where_all_builds_are_equal(
    site: Site,
) -> None:
    await site.live("old")
    job_id = await site.client.dispatch(resize_by_text(width="wide"))
    assert await (await site.worker("old")).win() == []
    view = await site.view(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "bad-arguments")


async def test_a_value_that_does_not_fit_is_handed_on_where_another_build_lives(site: Site) -> None:
    await site.live("old", "text")
    job_id = await site.client.dispatch(resize_by_text(width="wide"))
    assert await (await site.worker("old")).win() == []
    site.pass_seconds(0.1)
    [held] = await (await site.worker("text")).win()
    assert held.id == job_id


async def test_one_that_is_too_large_to_be_handed_on_is_dead_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.live("none")
    job_id = await site.client.dispatch(resize_by_text(width="x" * 50_000))
    [message] = await site.bus.history(site.subjects.jobs_stream, site.subjects.queue(QUEUE))
    monkeypatch.setattr(broker, "MAX_PAYLOAD_BYTES", len(message.body) + 100)
    assert await (await site.worker("none")).win() == []
    view = await site.view(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "unknown-job")
    assert "too large to be handed on" in view.error.message
    [letter] = await site.bus.history(site.subjects.dead_stream, site.subjects.dead("*", "*"))
    assert "too large for a dead letter" in letter.body.decode()
    assert not await site.bus.history(site.subjects.jobs_stream, site.subjects.queue(QUEUE))


async def test_a_job_that_another_build_gave_back_goes_on_from_its_last_event(site: Site) -> None:
    """Its message may have been acknowledged by the other: no copy of it is started from."""
    await site.live("none", "old")
    aware, unaware = await site.worker("old"), await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    [held] = await aware.win()
    await aware.claims.release([held], "asked to end")
    assert await unaware.win() == []
    assert (await site.view(job_id)).state is State.WAITING
    site.pass_seconds(0.1)
    [again] = await aware.win()
    await aware.complete(again)
    view = await site.view(job_id)
    assert (view.state, view.record.attempt, view.record.lost_workers) == (State.COMPLETED, 1, 0)
    story = ["JobDispatched", "JobStarted", "JobReleased", "JobStarted", "JobCompleted"]
    assert await site.story(job_id) == story


async def test_a_copy_that_was_started_from_is_not_copied_once_more(site: Site) -> None:
    await site.live("none", "old")
    aware, unaware = await site.worker("old"), await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    assert await unaware.win() == []
    site.pass_seconds(0.1)
    [held] = await aware.win()
    await aware.claims.release([held], "asked to end")
    assert await unaware.win() == []
    site.pass_seconds(1.0)
    [again] = await aware.win()
    await aware.complete(again)
    assert (await site.view(job_id)).state is State.COMPLETED


async def test_a_job_whose_worker_was_lost_is_recovered_by_one_that_does_not_know_it(
    site: Site,
) -> None:
    await site.live("none", "old")
    aware, unaware = await site.worker("old"), await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    assert len(await aware.win()) == 1
    site.pass_seconds(2.0)  # the claim lapses
    await site.live("none", "old")
    assert await unaware.win() == []
    view = await site.view(job_id)
    assert (view.state, view.record.lost_workers) == (State.RETRYING, 1)
    site.pass_seconds(1.0)
    [again] = await aware.win()
    assert again.id == job_id


async def test_a_message_that_was_handed_on_and_not_acknowledged_runs_once(site: Site) -> None:
    """The worker was killed between the two: the message and its copy are both delivered."""
    await site.live("none", "old")
    aware, unaware = await site.worker("old"), await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))

    async def killed(_: object) -> None:
        raise ConnectionError

    unaware.bus.ack = killed  # type: ignore[method-assign,assignment]
    with pytest.raises(ConnectionError):
        await unaware.win()
    site.pass_seconds(2.0)
    won = await aware.win()
    assert [held.id for held in won] == [job_id]
    await aware.complete(won[0])
    assert (await site.bus.depths())[QUEUE].waiting == 0
    assert (await site.story(job_id)).count("JobStarted") == 1


async def test_the_holder_of_an_exclusive_queue_gives_way_to_another_build(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.live("none", "old")
    holder = await site.worker("none", exclusive=True)
    await site.client.dispatch(resize(width=1))
    assert await holder.win() == []
    assert site.gave_way == []  # it has only just begun
    monkeypatch.setattr("penstock.worker.claiming.unknown_jobs._LEAST_HELD_SECONDS", 0.0)
    site.pass_seconds(0.1)
    assert await holder.win() == []
    assert site.gave_way == [GIVES_WAY]


async def test_a_job_that_is_handed_on_says_why_it_waits(site: Site) -> None:
    await site.live("none")
    unaware = await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    assert (await site.view(job_id)).handed_on is None  # no worker has refused it
    assert await unaware.win() == []
    waits = (await site.view(job_id)).handed_on
    assert waits is not None
    assert waits.reason.startswith("no job is called 'shop.resize'")
    assert waits.builds == {"none": "h.worker-none"}
    assert waits.dead_at is not None
    assert waits.dead_at.timestamp() == pytest.approx(waits.since.timestamp() + AFTER, abs=0.01)
    said = re.escape(f"job {job_id} has not ended within 0 s; it is waiting, attempt 0; {waits}")
    with pytest.raises(TimeoutError, match=said):
        await site.client.wait(job_id, timeout_seconds=0)
    shown = "\n".join(description(await site.view(job_id)))
    assert f"waits      {waits}" in shown
    assert "build none (worker h.worker-none)" in shown
    other = await site.client.dispatch(resize(width=2))
    listed = {view.id: job_row(view).waits for view in await site.client.jobs.list()}
    assert listed == {job_id: str(waits), other: ""}
    note = next(column for column in COLUMNS if column.title == "note")
    assert note.cell(job_row(await site.view(job_id))) == str(waits)


async def test_waiting_in_vain_for_a_job_that_nobody_refused_says_how_it_is(site: Site) -> None:
    job_id = await site.client.dispatch(resize(width=1))
    with pytest.raises(TimeoutError, match=f"job {job_id} has not ended .* is waiting, attempt 0$"):
        await site.client.wait(job_id, timeout_seconds=0)


async def test_forged_headers_are_bounded(site: Site) -> None:
    await site.live("none")
    unaware = await site.worker("none")
    job_id = await site.client.dispatch(resize(width=1))
    [delivery] = await unaware.bus.puller(QUEUE).fetch(1, 0)
    forged = {
        **delivery.headers,
        "Penstock-Unknown-To": ",".join(["x" * 5000, *(f"b{n}=w" for n in range(100))]),
        "Penstock-Unknown-Since": "nan",
        "Penstock-Available": "-1e300",
        "Penstock-Dead-At": "1e300",
    }
    with code("none"):
        message = msgspec.structs.replace(delivery, headers=forged)
        assert await unaware.claims.win([message], Company(runs_one=True)) == []
    schedule = await site.bus.last(site.subjects.jobs_stream, site.subjects.schedule(QUEUE, job_id))
    assert schedule is not None
    assert len(schedule.headers["Penstock-Unknown-To"].split(",")) <= 17
    assert of_headers(forged) is None
    assert of_headers({**forged, "Penstock-Unknown-Since": "1", "Penstock-Reason": "x" * 9000})


@pytest.mark.parametrize(
    ("waited", "is_untried", "least", "most"),
    [
        (0, True, 0, 0),
        (0.24, True, 0, 0),
        (1, True, 0.2, 0.4),
        (60, True, 0.5, 1),
        (600, True, 30, 60),
        (0, False, 0.5, 1),
        (10, False, 2.5, 5),
        (600, False, 30, 60),
    ],
)
def test_pauses_grow(waited: float, is_untried: bool, least: float, most: float) -> None:
    assert pause_seconds(waited, is_untried, 0.0) == least
    assert pause_seconds(waited, is_untried, 0.999999) == pytest.approx(most, rel=1e-5)


def test_builds_are_equal_where_all_signatures_are() -> None:
    builds: dict[str, str] = {}
    for version in VERSIONS:
        with code(version):
            builds[version] = registry.build()
            assert registry.build() == builds[version]
            assert registry.build("v7") == f"v7-{builds[version]}"
    assert len(set(builds.values())) == len(VERSIONS)
