"""The query that fills the lake is killed, wherever it is; no event is missing or there twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from tests.integration.landing import started, tap
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.runtime import children
from penstock.runtime.children import Child

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        "PIPELINE_KILLS" not in os.environ,
        reason="takes minutes and a quiet machine; PIPELINE_KILLS says how many kills",
    ),
]

KILLS = int(os.environ.get("PIPELINE_KILLS", "2"))
SEED = int(os.environ.get("PIPELINE_SEED", "1"))
EVENTS = 400
START_SECONDS = 180.0


async def test_a_killed_query_leaves_no_gap_and_no_double(
    settings: MakeSettings, nats_url: str, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    shell = Shell(tmp_path)
    (tmp_path / "penstock.toml").write_text(f'prefix = "{settings.prefix}"\n', "utf-8")
    subject = f"{settings.prefix}.events.job.a.JobStarted"
    with tap(nats_url) as water:
        water.make(f"{settings.prefix}_EVENTS", f"{settings.prefix}.events.*.*.*")
        water.make(f"{settings.prefix}_SNAPSHOTS", f"{settings.prefix}.snapshots.*.*")
        for kill in range(KILLS):
            water.fill(subject, [started(kill * EVENTS + number) for number in range(EVENTS)])
            child = run(shell, nats_url, "--every", "0.1s")
            try:
                await killed_somewhere(child, tmp_path / "lake" / "events", chance)
            finally:
                end_all(child)
    child = run(shell, nats_url, "--catch-up")
    try:
        code = await asyncio.to_thread(child.wait, 120.0)
    finally:
        end_all(child)
    assert code == 0, (tmp_path / "pipeline.log").read_text()
    assert Counter(sequences(tmp_path / "lake" / "events")) == Counter(range(1, KILLS * EVENTS + 1))


def run(shell: Shell, nats_url: str, *mode: str) -> Child:
    options = ["--lake", str(shell.folder / "lake"), "--max-messages", "25", *mode]
    return children.start(
        shell.argv("--nats-url", nats_url, "pipeline", "run", *options),
        name="pipeline",
        cwd=shell.folder,
        log=shell.folder / "pipeline.log",
    )


async def killed_somewhere(child: Child, lake: Path, chance: random.Random) -> None:
    """Once some more batches have begun, and then at any moment of one."""
    before = begun(lake)
    more = chance.randint(1, 6)

    def far_enough() -> bool:
        assert psutil.pid_exists(child.pid), "the pipeline ended by itself"
        return begun(lake) >= before + more

    await eventually(far_enough, within=START_SECONDS)
    await asyncio.sleep(chance.uniform(0, 0.6))  # the moment is the point here
    end_all(child)


def begun(lake: Path) -> int:
    """How many batches the query has planned."""
    return max((int(p.name) for p in lake.glob("_checkpoint/offsets/[0-9]*")), default=-1)


def end_all(child: Child) -> None:
    """KILL to the process and all below it, none of which gets to do anything more."""
    with suppress(psutil.NoSuchProcess):
        whole = psutil.Process(child.pid)
        for process in [whole, *whole.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
    child.end()


def sequences(lake: Path) -> list[int]:
    """What any reader of the folders finds."""
    files = [str(path) for path in lake.glob("set=*/day=*/event=*/batch=*/*.parquet")]
    return [
        n
        for file in files
        for n in pq.read_table(file, columns=["stream_sequence"], partitioning=None)[
            "stream_sequence"
        ].to_pylist()
    ]
