"""Real workers of procrastinate under an executor, by its preset: ready, measured, scaled in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.executing import stage
from tests.making import MakeSettings
from tests.postgres import postgres
from tests.waiting import eventually

from penstock.config.sources import SourceTable
from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.metrics.sources import SourceLook
from penstock.metrics.sources.registry import open_source

procrastinate = pytest.importorskip("procrastinate")

TASKS = """
import asyncio, os, procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector())
folder = os.environ["SHOP_FOLDER"]


@app.task(queue="mail", name="send")
async def send(number):
    with open(f"{folder}/started", "a") as file:
        file.write(f"{number} {os.getpid()}\\n")
    while not os.path.exists(f"{folder}/release"):
        await asyncio.sleep(0.02)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with postgres() as environment:
        yield environment


async def test_a_worker_finishes_its_job_before_it_ends(
    settings: MakeSettings, server: dict[str, str], tmp_path: Path
) -> None:
    # given workers of procrastinate, one of which has a job
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop_tasks.py").write_text(TASKS)
    connector = procrastinate.SyncPsycopgConnector(conninfo=server["DATABASE_URL"])
    app = procrastinate.App(connector=connector)
    pool = {
        "command": [
            sys.executable, "-m", "procrastinate", "-a", "shop_tasks.app", "worker",
            "-q", "{queues}", "-n", "{worker}", "--shutdown-graceful-timeout=25",
        ],
        "preset": "procrastinate", "queues": ["mail"], "strategy": "fixed",
        "drain": {"seconds": 30}, "environment": ["PG*", "SHOP_*"],
    }  # fmt: skip
    python_path = os.pathsep.join([str(folder), *sys.path])
    environment = {**server, "SHOP_FOLDER": str(folder), "PYTHONPATH": python_path}
    table = SourceTable(kind="procrastinate", url=server["DATABASE_URL"])
    source = open_source("shop", table)
    with app.open():
        app.schema_manager.apply_schema()
        await source.look(["mail"])
        async with stage(settings, pools={"shop": pool}) as host:
            host.start(env=environment)
            await host.command({"shop": 2})
            await host.seen(WorkerReady, 2)
            app.configure_task("send", queue="mail").defer(number=1)
            started = folder / "started"
            await eventually(lambda: started.exists() and started.read_text(), 30)
            found = (await source.look(["mail"]))["mail"]
            assert isinstance(found, SourceLook)
            assert (found.waiting, found.claimed, found.ended) == (0, 1, 0)

            # when all are to end, then the idle one ends and the other one finishes first
            await host.command({"shop": 0})
            [idle] = await host.seen(WorkerStopped)
            [line] = started.read_text().splitlines()
            assert int(line.split()[1]) != idle.pid
            assert len(host.living()) == 1
            (folder / "release").touch()
            stops = await host.seen(WorkerStopped, 2)
            assert {(stop.cause, stop.exit_code) for stop in stops} == {("scaled-down", 0)}
        found = (await source.look(["mail"]))["mail"]
        assert isinstance(found, SourceLook)
        assert (found.waiting, found.claimed, found.ended) == (0, 0, 1)
        await source.close()
    assert len(started.read_text().splitlines()) == 1
