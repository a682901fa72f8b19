"""The pipeline as jobs of the platform that it learns from, as in `examples/pipeline`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.landing import QUICK_JAVA
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.runtime import children

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline" / "penstock.toml"
WITHIN_SECONDS = 300.0


async def test_a_lake_in_the_settings_is_filled_and_forecast_by_the_clock(
    settings: MakeSettings, tmp_path: Path
) -> None:
    made = settings()
    top = f'prefix = "{made.prefix}"\n[nats]\nurl = "{made.nats.url}"\n'
    told = top + EXAMPLE.read_text("utf-8").replace("/data/lake", str(tmp_path / "lake"))
    (tmp_path / "penstock.toml").write_text(told, "utf-8")
    shell = Shell(tmp_path)
    orchestrator = children.start(
        shell.argv("orchestrator"),
        name="orchestrator",
        cwd=tmp_path,
        log=tmp_path / "orchestrator.log",
    )
    try:
        names = {"pipeline-land", "pipeline-forecast"}
        await eventually(lambda: {row["name"] for row in shell.json("schedule", "ls")} == names, 30)
        job = shell.text("schedule", "run-now", "pipeline-forecast")
    finally:
        orchestrator.end()
    worker = children.start(
        shell.argv("worker", "--pool", "pipeline", "--burst"),
        name="worker",
        cwd=tmp_path,
        log=tmp_path / "worker.log",
        env={"JAVA_TOOL_OPTIONS": QUICK_JAVA},
    )
    try:
        code = await asyncio.to_thread(worker.wait, WITHIN_SECONDS)
    finally:
        worker.end()
    said = worker.last_words(40)
    assert code == 0, said
    states = {row["id"]: row["state"] for row in shell.json("job", "ls")}
    assert states[job] == "completed", shell.text("job", "show", job) + said
    assert list((tmp_path / "lake" / "events").glob("set=known/day=*/event=JobDispatched/*"))
    assert list((tmp_path / "lake" / "rollups" / "jobs").glob("grain=day/day=*/version=*"))
