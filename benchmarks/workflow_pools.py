"""Workflows whose steps lie in three pools with promises of their own. Prints JSON.

`penstock up` with four autoscaled pools: one for workflows, three for their steps. Workflows arrive
at a rate that rises fourfold and falls again; plain jobs of one of the pools arrive all the while,
first alone. From the event log: how late each pool's jobs started, each continuation of a workflow
after what it waited for, and the plain jobs before and beside the workflows. A promise is kept if
no more than a twentieth is late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from machine import describe
from penstock.bus.nats import NatsBus, connect
from penstock.config.load import check
from penstock.events.job import JOB_EVENTS, JobDispatched, JobStarted
from penstock.events.subjects import Subjects
from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs import Client, derived_ids
from penstock.jobs.event_store.event_log import read_event
from penstock.runtime import children
from penstock.runtime.local_broker import URL_FILE, find_url
from penstock.runtime.paths import temporary_dir
from workflow_pool_jobs import CARDS, FLOWS, LABELS, STOCK, fulfil, reserve

PROMISES = {FLOWS: 5.0, CARDS: 5.0, STOCK: 10.0, LABELS: 30.0}
"""Seconds within which a job of the pool starts, as in `examples/penstock.toml`."""
ALLOWED_SHARE = 0.05
_PLAIN = "plain-"
_STEP_SECONDS = 0.2
_PLAIN_A_SECOND = 4.0
_UP_SECONDS, _END_SECONDS, _MOST_SECONDS = 60.0, 60.0, 120.0
_ENDS = ("JobCompleted", "JobDead", "JobCancelled")


def settings_text() -> str:
    """The `penstock.toml` of the run."""
    pools = "".join(
        f"[pools.{name}]\nsla_seconds = {seconds:g}\nquantile = 0.95\nmin_workers = 1\n"
        "max_workers = 12\ncpu_cores = 0.05\nmemory_bytes = 50_000_000\n"
        for name, seconds in PROMISES.items()
    )
    return (
        '[jobs]\nmodules = ["workflow_pool_jobs"]\n[metrics]\nwindow_seconds = 20\n'
        "[decider]\nlease_seconds = 1.5\n[host]\nreserve_cpu_cores = 0\nmax_cpu_share = 1.0\n"
        f"max_memory_share = 1.0\norphan_grace_seconds = 2\n{pools}"
    )


async def offer(client: Client, seconds: float, peak: float, began: float) -> list[str]:
    """Dispatches plain jobs, after a third of the time workflows beside them; returns their ids."""
    chance, ids = random.Random(1), list[str]()

    async def plain() -> None:
        number = 0
        while (passed := time.monotonic() - began) < seconds:
            phase = "alone" if passed < seconds / 3 else "beside"
            job_id = f"{_PLAIN}{phase}-{number}"
            await client.dispatch(reserve(_STEP_SECONDS), job_id=job_id)
            ids.append(job_id)
            number += 1
            await asyncio.sleep(chance.expovariate(_PLAIN_A_SECOND))

    async def workflows() -> None:
        await asyncio.sleep(seconds / 3)
        while (passed := time.monotonic() - began) < seconds:
            is_peak = 0.5 < passed / seconds < 0.8
            ids.append(await client.dispatch(fulfil(_STEP_SECONDS)))
            await asyncio.sleep(chance.expovariate(peak if is_peak else peak / 4))

    await asyncio.gather(plain(), workflows())
    return ids


async def ended(bus: NatsBus, subjects: Subjects, ids: list[str]) -> None:
    """Until all of them have. Raises TimeoutError."""
    async with asyncio.timeout(_MOST_SECONDS):
        for job_id in ids:
            while not any(
                [
                    await bus.last(subjects.events_stream, subjects.events("job", job_id, name))
                    for name in _ENDS
                ]
            ):
                await asyncio.sleep(0.2)


async def pickups(bus: NatsBus, subjects: Subjects) -> dict[str, list[float]]:
    """Seconds from when a job, or a continuation of a workflow, could start until it did."""
    ready: dict[str, float] = {}
    first = ""  # of an installation that was starting
    waited_for: dict[str, list[str]] = {}
    found: dict[str, list[float]] = defaultdict(list)
    stream, pattern = subjects.events_stream, subjects.events("job")
    last = await bus.last(stream, pattern)
    async for stored in bus.follow(stream, [pattern], "all"):
        event, at = read_event(stored, JOB_EVENTS), stored.at.timestamp()
        job_id, name = stored.subject.rsplit(".", 2)[-2:]
        first = first or job_id
        if isinstance(event, JobDispatched):
            ready[job_id] = at
        elif isinstance(event, WorkflowAdvanced):
            waited_for[job_id] = [derived_ids.step_id(job_id, s.n) for s in event.scheduled]
        elif name in _ENDS:
            ready[f"end {job_id}"] = at
        elif isinstance(event, JobStarted):
            steps = waited_for.pop(job_id, [])
            since = max((ready[f"end {step}"] for step in steps), default=ready[job_id])
            kind = f"{_PLAIN}{job_id.split('-')[1]}" if job_id.startswith(_PLAIN) else event.queue
            if not job_id.startswith(first):
                found[kind].append(max(at - since, 0.0))
        if last and stored.sequence >= last.sequence:
            break
    return found


def figures(seconds: list[float], promise: float) -> dict[str, Any]:
    """How a promise was kept."""
    ascending = sorted(seconds)
    late = sum(one > promise for one in ascending)
    return {
        "starts": len(ascending),
        "promise_seconds": promise,
        "late": late,
        "p50_seconds": round(ascending[len(ascending) // 2], 3),
        "p95_seconds": round(ascending[int(len(ascending) * 0.95)], 3),
        "max_seconds": round(ascending[-1], 3),
        "is_kept": late <= ALLOWED_SHARE * len(ascending),
    }


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Offers the load to an installation that runs in a folder, and reads its event log."""
    settings = check({"nats": {"url": find_url(folder / ".penstock")[0]}})
    subjects = Subjects(settings.prefix)
    bus = await connect(settings, "workflow pools")
    try:
        client = Client.over(bus, settings)
        await ended(bus, subjects, [await client.dispatch(fulfil(0.0))])  # workers are there
        ids = await offer(client, options.seconds, options.peak, time.monotonic())
        await ended(bus, subjects, ids)
        found = await pickups(bus, subjects)
    finally:
        await bus.close()
    of_plain = dict.fromkeys((f"{_PLAIN}alone", f"{_PLAIN}beside"), PROMISES[STOCK])
    return {
        name: figures(found[name], promise) for name, promise in {**PROMISES, **of_plain}.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of load: %(default)s")
    parser.add_argument("--peak", type=float, default=8.0, help="workflows a second: %(default)s")
    options = parser.parse_args()
    about = describe()
    with temporary_dir() as folder:
        (folder / "penstock.toml").write_text(settings_text())
        shutil.copy(Path(__file__).with_name("workflow_pool_jobs.py"), folder)
        (folder / "run").mkdir(mode=0o700)
        up = children.start(
            [sys.executable, "-m", "penstock.cli.main", "up", "--no-live", "--ephemeral"],
            name="up",
            cwd=folder,
            log=folder / "up.log",
            env={"XDG_RUNTIME_DIR": str(folder / "run")},
        )
        try:
            address = folder / ".penstock" / URL_FILE
            children.wait_until(up, address.exists, _UP_SECONDS, "reachable")
            pools = asyncio.run(measure(folder, options))
        finally:
            up.end(_END_SECONDS)
    report = {"machine": about, **vars(options), "pools": pools}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    sys.exit(not all(pool["is_kept"] for pool in pools.values()))


if __name__ == "__main__":
    main()
