"""A copy of the broker's folder, taken while it is stopped, is all that is needed to go on."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.sample_jobs import QUEUE, note
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.lifecycle import State
from penstock.runtime.broker import Broker


async def test_what_was_dispatched_before_the_backup_is_there_after_the_restore(
    tmp_path: Path,
) -> None:
    store, backup = tmp_path / "store", tmp_path / "backup"
    with Broker(store=store) as broker:
        settings = MakeSettings(lambda: broker.url, str(tmp_path / "run"))()
        before = [await _dispatch(settings) for _ in range(5)]
        broker.stop()
        shutil.copytree(store, backup)
        broker.start()
        after = await _dispatch(settings)
        broker.stop()
        shutil.rmtree(store)
        shutil.copytree(backup, store)
        broker.start()
        assert await _waiting(settings, [*before, after]) == before
        again = await _dispatch(settings)
        assert await _waiting(settings, [*before, again]) == [*before, again]


async def _dispatch(settings: Settings) -> str:
    async with Client.connect(settings) as client:
        return await client.dispatch(note("unused", "x"))


async def _waiting(settings: Settings, asked: list[str]) -> list[str]:
    """Those that are in the log as waiting; the queue holds as many."""
    subjects, bus = Subjects(settings.prefix), await connect(settings)
    known = await bus.count(subjects.events_stream, subjects.events("job"))
    found = [each for each in asked if any(f".{each}." in subject for subject in known)]
    line = await bus.count(subjects.jobs_stream, subjects.queue(QUEUE))
    client = Client.over(bus, settings)
    assert {(await client.job(each)).state for each in found} == {State.WAITING}
    assert sum(line.values()) == len(found)
    await bus.close()
    return found
