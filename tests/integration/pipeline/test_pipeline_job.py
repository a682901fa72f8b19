"""The pipeline as jobs of the platform that it learns from, as in `examples/pipeline`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.guarded import GuardedBroker
from tests.integration.pipeline.landing import QUICK_JAVA
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.snapshot import PoolSnapshot
from penstock.runtime import children
from penstock.runtime.children import Child

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline" / "penstock.toml"
SCHEDULES = {"pipeline-land", "pipeline-forecast"}
WITHIN_SECONDS = 300.0


class Site:
    """A guarded broker, and processes that have the key of their role; a person at the shell."""

    def __init__(self, guarded: GuardedBroker, folder: Path) -> None:
        self._secrets, self._folder = guarded.secrets, folder
        top = f'[nats]\nurl = "{guarded.url}"\nca_file = "{self._secrets}/operator/ca.pem"\n'
        told = EXAMPLE.read_text("utf-8").replace("/data/lake", str(folder / "lake"))
        key = f'nkey_file = "{self._secrets}/pipeline/nkey.seed"\n'
        operator = key.replace("pipeline", "operator")
        (folder / "penstock.toml").write_text(f"{top}{operator}{told}{key}", "utf-8")
        self.shell = Shell(folder)

    def schedules(self) -> set[str]:
        return {row["name"] for row in self.shell.json("schedule", "ls")}

    def start(self, role: str, *arguments: str) -> Child:
        return children.start(
            self.shell.argv(role, *arguments),
            name=role,
            cwd=self._folder,
            log=self._folder / f"{role}.log",
            env={
                "PENSTOCK_NATS__NKEY_FILE": f"{self._secrets}/{role}/nkey.seed",
                "JAVA_TOOL_OPTIONS": QUICK_JAVA,
            },
        )


async def measure(settings: Settings) -> None:
    """A snapshot, which no worker may read."""
    bus, snapshot = await connect(settings), PoolSnapshot(pool="p", queues=("p",), waiting=3)
    await bus.append_many([Outgoing("penstock.snapshots.pool.p", encode(snapshot))])
    await bus.close()


async def test_a_guarded_log_is_landed_and_forecast_by_the_clock_with_only_its_roles_key(
    settings: MakeSettings, tmp_path: Path
) -> None:
    settings.prefix = "penstock"
    with GuardedBroker(tmp_path) as guarded:
        site = Site(guarded, tmp_path)
        shell, orchestrator = site.shell, site.start("orchestrator")
        try:
            await eventually(lambda: site.schedules() == SCHEDULES, 30)
            await measure(guarded.settings(settings, "metrics"))
            job = shell.text("schedule", "run-now", "pipeline-forecast")
        finally:
            orchestrator.end()
        worker = site.start("worker", "--pool", "pipeline", "--burst")
        try:
            code = await asyncio.to_thread(worker.wait, WITHIN_SECONDS)
        finally:
            worker.end()
        said = worker.last_words(40)
        assert code == 0, said
        states = {row["id"]: row["state"] for row in shell.json("job", "ls")}
        assert states[job] == "completed", shell.text("job", "show", job) + said
        assert guarded.violations() == []
    assert list((tmp_path / "lake" / "events").glob("set=known/day=*/event=JobDispatched/*"))
    assert list((tmp_path / "lake" / "snapshots").glob("set=known/day=*/event=PoolSnapshot/*"))
    assert list((tmp_path / "lake" / "rollups" / "jobs").glob("grain=day/day=*/version=*"))
