"""New job code on a running host: its workers are replaced, in order, or the old ones go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.cli.scaling.reload import reload_hosts
from penstock.events.envelope import new_id
from penstock.events.reloading import ReloadReported, ReloadRequested
from penstock.events.worker import WorkerReady, WorkerStarted, WorkerStopped
from penstock.jobs import Client
from penstock.jobs.job_type import NamedJob
from penstock.jobs.lifecycle import State

CODE = """
import time
from pathlib import Path
from penstock.jobs import job

@job(queue="mail")
def version() -> str:
    return "{version}"

@job(queue="mail")
def linger(gate: str) -> str:
    while not Path(gate).exists():
        time.sleep(0.02)
    return "{version}"
"""
PATIENCE = 60.0


class Site:
    """A host whose job code the test writes."""

    def __init__(self, host: Stage, module: Path) -> None:
        self.host, self._module = host, module
        self.gate = module.with_name("gate")
        self.client = Client(host.bus, prefix=host.settings.prefix)

    def write(self, version: str) -> None:
        """``broken`` cannot be imported."""
        text = "import nothing_of_this_name" if version == "broken" else CODE
        self._module.write_text(text.format(version=version), "utf-8")

    async def dispatch(self, function: str, **arguments: str) -> str:
        call = NamedJob(f"versioned_jobs.{function}", queue="mail")
        return await self.client.dispatch(call(**arguments))

    async def result(self, job_id: str) -> object:
        view = await self.client.wait(job_id, PATIENCE)
        assert view.state is State.COMPLETED, view.error
        return view.result

    async def reload(self, request_id: str = "") -> ReloadReported:
        order = ReloadRequested(id=request_id or new_id())
        hosts, subjects = [self.host.host], self.host.subjects
        [report] = await reload_hosts(self.host.bus, subjects, order, hosts, PATIENCE)
        return report


@pytest.fixture
async def site(
    settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two versions within a second
    tables = {"jobs": {"modules": ["versioned_jobs"]}, "host": {"drain_seconds": 30.0}}
    async with stage(settings, **tables) as host:
        made = Site(host, tmp_path / "versioned_jobs.py")
        made.write("one")
        await host.command({"mail": 2})
        yield made
        made.gate.touch()


async def test_jobs_in_flight_finish_and_later_ones_run_the_new_code(site: Site) -> None:
    executor = site.host.start()
    await site.host.seen(WorkerReady, 2)
    lingering = await site.dispatch("linger", gate=str(site.gate))
    await eventually(lambda: _runs(site, lingering), 30)
    site.write("two")
    reloading = asyncio.create_task(site.reload())
    await site.host.seen(WorkerStopped)  # the idle one
    assert await site.result(await site.dispatch("version")) == "two"
    assert not reloading.done()
    site.gate.touch()
    assert await site.result(lingering) == "one"
    report = await reloading
    assert (report.state, report.workers, report.error) == ("done", 2, "")
    stopped = await site.host.seen(WorkerStopped, 2)
    assert [(each.cause, each.exit_code) for each in stopped] == [("reloaded", 0)] * 2
    assert [each.cause for each in site.host.of(WorkerStarted)] == ["planned"] * 2 + [
        "reloaded"
    ] * 2
    # each old worker ended after a new one was ready
    kinds = [type(e) for e in site.host.events if isinstance(e, WorkerReady | WorkerStopped)]
    for before in (kinds[:end] for end, kind in enumerate(kinds) if kind is WorkerStopped):
        assert before.count(WorkerReady) >= 3 + before.count(WorkerStopped)

    site.write("three")
    executor.signal(signal.SIGHUP)
    await site.host.seen(WorkerStopped, 4)
    assert await site.result(await site.dispatch("version")) == "three"


async def test_code_that_cannot_be_imported_leaves_the_old_workers(site: Site) -> None:
    site.host.start()
    before = {each.pid for each in await site.host.seen(WorkerReady, 2)}
    site.write("broken")
    report = await site.reload()
    assert report.state == "failed"
    assert "versioned_jobs: ModuleNotFoundError" in report.error
    await site.host.logged("reload failed, the old workers go on: versioned_jobs")
    assert {each.pid for each in site.host.living()} == before
    assert await site.result(await site.dispatch("version")) == "one"
    await eventually(lambda: _tells(site, "nothing_of_this_name"), 30)

    site.write("two")
    assert (await site.reload()).state == "done"
    assert await site.result(await site.dispatch("version")) == "two"
    await eventually(lambda: _tells(site, ""), 30)


async def test_an_executor_that_is_killed_meanwhile_is_continued_by_the_next(site: Site) -> None:
    executor = site.host.start()
    await site.host.seen(WorkerReady, 2)
    jobs = [await site.dispatch("linger", gate=str(site.gate)) for _ in range(2)]
    for job_id in jobs:
        await eventually(lambda job_id=job_id: _runs(site, job_id), 30)
    site.write("two")
    request_id = new_id()
    reloading = asyncio.create_task(site.reload(request_id))
    await site.host.seen(WorkerReady, 3)
    executor.signal(signal.SIGKILL)
    await executor.ended()
    site.host.start()
    site.gate.touch()
    assert [await site.result(job_id) for job_id in jobs] == ["one", "one"]
    assert (await reloading).state == "done"
    assert (await site.reload(request_id)).state == "done"  # once more: nothing happens
    await site.host.pool("mail", ready=2, outdated=0)
    assert await site.result(await site.dispatch("version")) == "two"


async def _runs(site: Site, job_id: str) -> bool:
    return (await site.client.job(job_id)).state is State.RUNNING


async def _tells(site: Site, error: str) -> bool:
    snapshot = await site.host.snapshot()
    return snapshot is not None and (
        error in snapshot.reload_error if error else not snapshot.reload_error
    )
