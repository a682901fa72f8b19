"""The query that fills the lake is killed, wherever it is; no event is missing or there twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from tests.integration.pipeline.landing import QUICK_JAVA, Tap, started, tap
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child

pytestmark = [pytest.mark.spark, pytest.mark.long]

FEW = ("worker", "broker", "driver")
KINDS = ("worker", "planner", "broker", "driver", "java", "all")
"""What is killed: a Python process that reads, the one that plans, the broker, the pipeline's own
process, its Java, or all of them at once."""
KILLS = int(os.environ.get("PIPELINE_KILLS", "0"))
SEED = int(os.environ.get("PIPELINE_SEED", "1"))
EVENTS = 300
BATCH = 20
WITHIN_SECONDS = 150.0
ENDS_ITS_RUN = {"driver", "java", "all"}


async def test_a_killed_query_leaves_no_gap_and_no_double(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    """Three kills; ``PIPELINE_KILLS=20 PIPELINE_SEED=7`` makes so many others of all kinds."""
    chance = random.Random(SEED)
    kinds = [KINDS[n % len(KINDS)] for n in range(KILLS)] or list(FEW)
    chance.shuffle(kinds)
    site = Site(broker, settings.prefix, tmp_path, chance)
    try:
        for kind in kinds:
            site.fill()
            site.run_on("--every", "0.1s", "--max-messages", str(BATCH))
            await site.somewhere()
            print(f"{kind} killed after batch {site.begun()}")  # noqa: T201 - where it failed
            await site.kill(kind)
        site.end_all()
        await site.catch_up()
    finally:
        site.end_all()
    assert Counter(site.sequences()) == Counter(range(1, site.filled + 1))


class Site:
    """A lake that is filled by one run after another."""

    def __init__(self, broker: Broker, prefix: str, folder: Path, chance: random.Random) -> None:
        self.broker, self.prefix, self.shell = broker, prefix, Shell(folder)
        self._chance = chance
        self.filled = 0
        self.child: Child | None = None
        self._run: psutil.Process | None = None
        self._seen: set[psutil.Process] = set()
        (folder / "penstock.toml").write_text(f'prefix = "{prefix}"\n', "utf-8")
        with tap(broker.url) as water:
            water.make(f"{prefix}_EVENTS", f"{prefix}.events.*.*.*")
            water.make(f"{prefix}_SNAPSHOTS", f"{prefix}.snapshots.*.*")

    def fill(self) -> None:
        water: Tap
        with tap(self.broker.url) as water:
            numbers = range(self.filled, self.filled + EVENTS)
            water.fill(f"{self.prefix}.events.job.a.JobStarted", [started(n) for n in numbers])
        self.filled += EVENTS

    def run_on(self, *mode: str) -> None:
        """Starts a run where there is none."""
        if self.child and self.child.exit_code is None:
            return
        lake = str(self.shell.folder / "lake")
        url = self.broker.url
        self.child = children.start(
            self.shell.argv("--nats-url", url, "pipeline", "run", "--lake", lake, *mode),
            name="pipeline",
            cwd=self.shell.folder,
            log=self.shell.folder / "pipeline.log",
            env={"JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )
        self._run = psutil.Process(self.child.pid)

    async def somewhere(self) -> None:
        """Once some more batches have begun, and then at any moment of one."""
        before, more = self.begun(), self._chance.randint(1, 5)

        def far_enough() -> bool:
            assert self.child
            assert self.child.exit_code is None, f"it ended by itself\n{self.log()}"
            return self.begun() >= before + more

        await eventually(far_enough, within=WITHIN_SECONDS, what="batches planned")
        await asyncio.sleep(self._chance.uniform(0, 0.6))  # the moment is the point here

    async def catch_up(self) -> None:
        self.run_on("--catch-up")
        assert self.child
        code = await asyncio.to_thread(self.child.wait, WITHIN_SECONDS)
        assert code == 0, self.log()

    async def kill(self, kind: str) -> None:
        assert self.child
        assert self._run
        there = [self._run, *_below(self._run)]
        self._seen.update(there)
        if kind == "broker":
            self.broker.restart()
        elif kind == "all":
            self.end_all()
        else:
            victims = [one for one in there if _kind(one, self.child) == kind]
            assert victims or kind == "worker", f"no {kind} among {there}"
            if victims:
                self._chance.choice(victims).send_signal(signal.SIGKILL)
        if kind in ENDS_ITS_RUN:  # its Java may go on for a while, beside the next run
            assert await asyncio.to_thread(self.child.wait, 60.0) is not None, kind
            self.child.end()

    def end_all(self) -> None:
        """KILL to all processes of all runs, none of which gets to do anything more."""
        if self.child is None or self._run is None:
            return
        for process in {*self._seen, self._run, *_below(self._run)}:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.child.end()

    def begun(self) -> int:
        """How many batches the query has planned."""
        found = (self.shell.folder / "lake" / "events").glob("_checkpoint/offsets/[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    def sequences(self) -> Iterator[int]:
        """What any reader of the folders finds."""
        lake = self.shell.folder / "lake" / "events"
        for path in lake.glob("set=*/day=*/event=*/batch=*/*.parquet"):
            table = pq.read_table(str(path), columns=["stream_sequence"], partitioning=None)
            yield from table["stream_sequence"].to_pylist()

    def log(self) -> str:
        return (self.shell.folder / "pipeline.log").read_text("utf-8")[-5000:]


def _below(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _kind(process: psutil.Process, driver: Child) -> str:
    if process.pid == driver.pid:
        return "driver"
    with suppress(psutil.NoSuchProcess):
        words = " ".join(process.cmdline())
        for word, kind in (
            ("SparkSubmit", "java"),
            ("streaming", "planner"),
            ("pyspark", "worker"),
        ):
            if word in words:
                return kind
    return ""
