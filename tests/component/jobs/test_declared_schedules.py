"""Schedules declared in code and settings: stored once, compared, changed, pruned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import msgspec
import pytest

from penstock.config.load import check
from penstock.events.envelope import utc_now
from penstock.jobs import BadArguments, Client, registry
from penstock.jobs import job as mark
from penstock.jobs import schedule as declare
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import BadSchedule
from penstock.jobs.payloads import payload
from penstock.jobs.schedules import declaration
from penstock.jobs.schedules.client import put
from penstock.jobs.schedules.declaration import Declaration, declared, in_settings
from penstock.jobs.schedules.drift import Difference, Drift, of_settings
from penstock.testing.memory.bus import MemoryBus


@mark(queue="reports", name="declared.rebuild")
def rebuild(table: str, day: date = date(2026, 1, 1)) -> None: ...


@mark(queue="reports", name="declared.tidy")
def tidy() -> None: ...


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    """Nothing is declared before a test or after it."""
    before = dict(declaration._in_code)
    declaration._in_code.clear()
    registry.REGISTRY.update({kind.name: kind for kind in (rebuild, tidy)})
    yield
    declaration._in_code.clear()
    declaration._in_code.update(before)


class Installation:
    def __init__(self) -> None:
        self.now = utc_now()
        self.bus = MemoryBus("p", now=lambda: self.now.timestamp())  # noqa: PLW0108 - it is moved
        self.client = Client(self.bus, prefix="p")
        self.schedules = self.client.schedules

    async def drifts(self, wanted: list[Declaration]) -> dict[str, Drift]:
        return {one.name: one.drift for one in await self.schedules.compare(wanted)}


@pytest.fixture
async def installation() -> Installation:
    return Installation()


def settings(**schedules: dict[str, Any]):
    return check({"schedules": schedules})


NIGHTLY = {"job": "declared.rebuild", "cron": "0 3 * * *", "arguments": {"table": "orders"}}


async def test_what_code_and_settings_declare_is_stored(installation: Installation) -> None:
    declare("hourly", rebuild(table="people"), "0 * * * *", zone="Europe/Berlin", tags=["own"])
    wanted = declared(settings(nightly={**NIGHTLY, "expires_seconds": 60}))
    outcomes = await installation.schedules.sync(wanted)
    assert [(one.name, one.drift, one.done) for one in outcomes] == [
        ("hourly", Drift.MISSING, True),
        ("nightly", Drift.MISSING, True),
    ]
    hourly, nightly = await installation.schedules.all()
    assert (hourly.origin, hourly.zone, hourly.tags) == ("code", "Europe/Berlin", ("own",))
    assert (nightly.origin, nightly.queue, nightly.expires_seconds) == ("settings", "reports", 60)
    job_id = await installation.schedules.run_now("nightly")
    stored = (await installation.client.job(job_id)).record
    arguments = rebuild.decode(payload.decode(stored.payload).arguments)
    assert arguments == {"table": "orders", "day": date(2026, 1, 1)}


async def test_syncing_again_changes_nothing(installation: Installation) -> None:
    wanted = declared(settings(nightly=NIGHTLY))
    await installation.schedules.sync(wanted)
    [before] = await installation.schedules.all()
    assert await installation.schedules.sync(wanted) == [
        Difference(name="nightly", drift=Drift.EQUAL, done=True)
    ]
    assert await installation.schedules.all() == [before]


async def test_two_that_sync_at_once_store_one(installation: Installation) -> None:
    wanted = declared(settings(nightly=NIGHTLY))
    clients = [Client(installation.bus, prefix="p").schedules for _ in range(5)]
    outcomes = await asyncio.gather(*(one.sync(wanted) for one in clients))
    assert all(one.done for [one] in outcomes)
    [stored] = await installation.schedules.all()
    assert stored.origin == "settings"
    assert await installation.drifts(wanted) == {"nightly": Drift.EQUAL}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cron": "0 4 * * *"}, "cron: 0 3 * * * -> 0 4 * * *"),
        ({"zone": "Europe/Berlin"}, "zone: UTC -> Europe/Berlin"),
        ({"queue": "others"}, "queue: reports -> others"),
        ({"arguments": {"table": "people"}}, "arguments"),
        ({"tags": ["x"]}, "tags: none -> x"),
        ({"missed": "skip"}, "missed: once -> skip"),
    ],
)
async def test_a_change_is_told_and_stored(installation: Installation, change, text) -> None:
    await installation.schedules.sync(declared(settings(nightly=NIGHTLY)))
    wanted = declared(settings(nightly=NIGHTLY | change))
    [difference] = await installation.schedules.compare(wanted)
    assert (difference.drift, difference.text) == (Drift.CHANGED, text)
    [outcome] = await installation.schedules.sync(wanted)
    assert outcome.done
    assert await installation.drifts(wanted) == {"nightly": Drift.EQUAL}


async def test_a_change_keeps_the_pause_and_makes_up_for_no_tick(
    installation: Installation,
) -> None:
    await installation.schedules.sync(declared(settings(nightly=NIGHTLY)))
    await installation.schedules.pause("nightly")
    installation.now += timedelta(days=3)
    await installation.schedules.sync(declared(settings(nightly=NIGHTLY | {"cron": "0 4 * * *"})))
    [stored] = await installation.schedules.all()
    assert (stored.paused, stored.cron) == (True, "0 4 * * *")
    assert stored.done_until == installation.now


async def test_a_tick_that_is_being_dispatched_comes_before_the_change(
    installation: Installation,
) -> None:
    """Else a tick would be dispatched by both declarations, or by none."""
    await installation.schedules.sync(declared(settings(nightly=NIGHTLY)))
    [stored] = await installation.schedules.all()
    subject = installation.bus.subjects.state("schedule", "nightly")
    message = await installation.bus.last(installation.bus.subjects.state_stream, subject)
    assert message
    firing = msgspec.structs.replace(stored, firing=installation.now)
    sequence = await put(installation.bus, installation.bus.subjects, firing, message.sequence)
    wanted = declared(settings(nightly=NIGHTLY | {"cron": "0 4 * * *"}))
    syncing = asyncio.create_task(installation.schedules.sync(wanted))
    await asyncio.sleep(0)
    fired = msgspec.structs.replace(stored, last_tick=installation.now, dispatched=1)
    await put(installation.bus, installation.bus.subjects, fired, sequence)
    await syncing
    [stored] = await installation.schedules.all()
    assert (stored.cron, stored.dispatched, stored.taken_over) == ("0 4 * * *", 1, 1)


async def test_a_client_s_schedule_is_left_alone(installation: Installation) -> None:
    await installation.schedules.add("nightly", tidy(), "0 5 * * *")
    await installation.schedules.add("other", tidy(), "0 5 * * *", terms=Terms(tags=("x",)))
    [outcome] = await installation.schedules.sync(declared(settings(nightly=NIGHTLY)), prune=True)
    assert (outcome.drift, outcome.done) == (Drift.CONFLICT, False)
    assert [one.cron for one in await installation.schedules.all()] == ["0 5 * * *"] * 2


async def test_what_is_not_declared_any_more_stays_until_it_is_pruned(
    installation: Installation,
) -> None:
    await installation.schedules.sync(declared(settings(nightly=NIGHTLY)))
    [outcome] = await installation.schedules.sync([])
    assert (outcome.drift, outcome.done) == (Drift.UNDECLARED, False)
    assert len(await installation.schedules.all()) == 1
    [outcome] = await installation.schedules.sync([], prune=True)
    assert outcome.done
    assert await installation.schedules.all() == []


async def test_nothing_is_stored_if_one_declaration_cannot_be(installation: Installation) -> None:
    wanted = declared(settings(a=NIGHTLY, b=NIGHTLY | {"arguments": {"tabel": "x"}}))
    with pytest.raises(BadSchedule, match=r"schedule 'b'.*tabel"):
        await installation.schedules.sync(wanted)
    unknown = declared(settings(b={"job": "declared.rebiuld", "cron": "0 3 * * *"}))
    with pytest.raises(BadSchedule, match=r"did you mean 'declared\.rebuild'"):
        await installation.schedules.sync(unknown)
    assert await installation.schedules.all() == []


async def test_a_process_without_the_jobs_modules_sees_drift_of_the_settings(
    installation: Installation,
) -> None:
    given = settings(nightly=NIGHTLY)

    async def seen(given: Any) -> list[tuple[str, Drift]]:
        stored = {one.name: one for one in await installation.schedules.all()}
        return [(one.name, one.drift) for one in of_settings(in_settings(given), stored)]

    declare("hourly", tidy(), "0 * * * *")
    assert await seen(given) == [("nightly", Drift.MISSING)]
    await installation.schedules.sync(declared(given))
    assert await seen(given) == []
    other = settings(nightly=NIGHTLY | {"arguments": {"table": "people"}})
    assert await seen(other) == [("nightly", Drift.CHANGED)]
    assert await seen(settings()) == [("nightly", Drift.UNDECLARED)]


def test_a_job_declares_its_own_schedule() -> None:
    @mark(name="declared.reports.sweep", schedule="*/5 * * * *")
    def sweep() -> None: ...

    [found] = declared(settings())
    assert (found.name, found.job, found.cron) == (
        "declared-reports-sweep",
        "declared.reports.sweep",
        "*/5 * * * *",
    )


def test_what_cannot_be_declared_is_refused_where_it_is_written() -> None:
    with pytest.raises(BadSchedule, match="no cron expression"):
        declare("bad", tidy(), "61 * * * *")
    with pytest.raises(BadArguments, match=r"calls it without arguments.*'table' is missing"):

        @mark(name="declared.needs", schedule="0 3 * * *")
        def needs(table: str) -> None: ...

    declare("one", tidy(), "0 3 * * *")
    declare("one", tidy(), "0 3 * * *")  # the same again: a module imported under two names
    with pytest.raises(BadSchedule, match="two schedules are called 'one'"):
        declare("one", rebuild(table="x"), "0 3 * * *")
    with pytest.raises(BadSchedule, match="declared twice"):
        declared(settings(one=NIGHTLY))


def test_a_table_that_cannot_be_is_named() -> None:
    with pytest.raises(BadSchedule, match=r"schedules\.nightly: .*cron expression"):
        declared(settings(nightly=NIGHTLY | {"cron": "often"}))
    with pytest.raises(BadSchedule, match=r"schedules\.nightly: no time zone"):
        declared(settings(nightly=NIGHTLY | {"zone": "Mars/Base"}))
