"""The pipeline as a job of the platform that it learns from, as in `examples/pipeline`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.integration.landing import QUICK_JAVA
from tests.integration.shell import Shell
from tests.making import MakeSettings

from penstock.runtime import children

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
WITHIN_SECONDS = 240.0


async def test_a_job_lands_and_sums_up_the_log_of_its_own_platform(
    settings: MakeSettings, tmp_path: Path
) -> None:
    made = settings()
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    config = tmp_path / "penstock.toml"
    top = f'prefix = "{made.prefix}"\n[nats]\nurl = "{made.nats.url}"\n'
    config.write_text(top + config.read_text("utf-8"), "utf-8")
    shell = Shell(tmp_path)
    job = shell.submit("pipeline_jobs.refresh", "--arg", f"lake={tmp_path / 'lake'}")
    worker = children.start(
        shell.argv("worker", "--pool", "pipeline", "--burst"),
        name="worker",
        cwd=tmp_path,
        log=tmp_path / "worker.log",
        env={"PYTHONPATH": str(tmp_path), "JAVA_TOOL_OPTIONS": QUICK_JAVA},
    )
    try:
        code = await asyncio.to_thread(worker.wait, WITHIN_SECONDS)
    finally:
        worker.end()
    said = worker.last_words(40)
    assert code == 0, said
    states = {row["id"]: row["state"] for row in shell.json("job", "ls")}
    assert states == {job: "completed"}, shell.text("job", "show", job) + said
    assert list((tmp_path / "lake" / "events").glob("set=known/day=*/event=JobDispatched/*"))
    assert list((tmp_path / "lake" / "rollups" / "jobs").glob("grain=day/day=*/version=*"))
