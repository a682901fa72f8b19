"""Run with the code after the upgrade: waits for what was living; prints each job's state."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import upgrade_jobs  # noqa: F401 - results are decoded by the jobs' own types

from penstock.config import load
from penstock.jobs import Client

WITHIN_SECONDS = 120.0


async def main(ids: dict[str, list[str]]) -> None:
    states: dict[str, list[str]] = {}
    async with Client.connect(load()) as client:
        [next_year] = ids.pop("next year")
        states["next year"] = [(await client.job(next_year)).state]
        await client.resume_queue("paused")
        for job_id in ids["dead"]:
            await client.retry(job_id)
        batch = await client.batches.wait(ids.pop("batch")[0], WITHIN_SECONDS)
        graph = await client.graphs.wait(ids.pop("graph")[0], WITHIN_SECONDS)
        states["batch"], states["graph"] = [batch.state], [graph.state]
        states["members"] = [str(batch.counts.completed)]
        for name, job_ids in ids.items():
            states[name] = [(await client.wait(each, WITHIN_SECONDS)).state for each in job_ids]
    sys.stdout.write(json.dumps(states))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    asyncio.run(main(json.loads(sys.argv[1])))
