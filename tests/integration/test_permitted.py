"""Every service does its work with the permissions of its role, over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.guarded_site import SERVICES, Site, running_site
from tests.integration.sample_jobs import fail, note, send_note
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.cli.deploy.check import Activity, activity
from penstock.jobs import Client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("guarded")) as site:
        yield site


async def test_jobs_run_and_no_service_asks_for_what_it_may_not(site: Site, tmp_path: Path) -> None:
    diary = str(tmp_path / "diary")
    async with Client.connect(site.settings("dispatcher")) as client:
        ids = await client.dispatch_many(
            [note(diary, "one"), send_note(diary, "two"), fail(diary, "three", 1)]
        )
        poison = await client.dispatch(fail(diary, "dead", 9))
        late = await client.dispatch(note(diary, "late"), delay=600)
        await client.cancel(late)
        ended = await asyncio.gather(*(client.wait(each, 60) for each in [*ids, poison]))
        batch = await client.batches.create([note(diary, "b1"), note(diary, "b2")])
        await client.batches.wait(batch, 30)
    assert [view.state for view in ended] == [*(["completed"] * 3), "dead"], site.logs()
    async with Client.connect(site.settings("operator")) as client:
        await client.pause_queue("work", "a test")
        await client.resume_queue("work")
        await client.retry(poison)
    assert site.broker.violations() == []


@pytest.mark.parametrize("role", sorted(set(SERVICES)))
async def test_each_service_is_seen_to_work_with_its_own_key(site: Site, role: str) -> None:
    settings = site.settings(role)
    bus = await connect(settings)

    async def fine() -> bool:
        return (await activity(bus, settings, role)).is_recent

    await eventually(fine, 30, f"check of {role}")
    await bus.close()


async def test_a_host_that_never_spoke_is_not_fine(site: Site) -> None:
    settings = site.settings("executor")
    elsewhere = replace(settings, host=replace(settings.host, name="elsewhere"))
    bus = await connect(settings)
    found = await activity(bus, elsewhere, "executor")
    await bus.close()
    assert (found.is_recent, found.silent_seconds) == (False, None)


def test_a_service_that_fell_silent_is_not_fine() -> None:
    assert not Activity(role="metrics", silent_seconds=5.1, allowed_seconds=5.0).is_recent
