"""Run with the code before the upgrade: makes jobs that live, in each state; prints their ids."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import upgrade_jobs as jobs
from tests.waiting import eventually

import penstock.jobs
from penstock.config import load
from penstock.jobs import Client, Step, awaiting
from penstock.jobs.lifecycle import State

WITHIN_SECONDS = 60.0


async def main(diary: str) -> None:
    async with Client.connect(load()) as client:
        await client.pause_queue("paused")
        ids = {
            "completed": [
                await client.dispatch(jobs.note(diary, f"completed{i}")) for i in range(20)
            ],
            "dead": [await client.dispatch(jobs.fail(diary, f"dead{i}")) for i in range(3)],
        }
        for job_id in (*ids["completed"], *ids["dead"]):
            await client.wait(job_id, WITHIN_SECONDS)
        ids["retrying"] = [
            await client.dispatch(jobs.fail_once(diary, f"retrying{i}")) for i in range(5)
        ]
        ids["delayed"] = [
            await client.dispatch(jobs.note(diary, f"delayed{i}"), delay=30) for i in range(10)
        ]
        ids["next year"] = [
            await client.dispatch(jobs.note(diary, "next year"), delay=300 * 86_400)
        ]
        ids["paused"] = [
            await client.dispatch(jobs.note(diary, f"paused{i}"), queue="paused") for i in range(20)
        ]
        ids["running"] = [await client.dispatch(jobs.hold(diary, f"running{i}")) for i in range(2)]
        members = [jobs.note(diary, f"member{i}") for i in range(20)]
        async with client.batches.open(
            then=awaiting(jobs.counted, "outcome", diary=diary, name="batch")
        ) as batch:
            await batch.add(members[:10])
            await batch.add(members[10:], queue="paused")
            ids["batch"] = [batch.id]
        ids["graph"] = [
            await client.graphs.dispatch(
                {
                    "left": Step(jobs.double(value="l")),
                    "right": Step(jobs.double(value="r")),
                    "join": Step(
                        awaiting(jobs.join, "left", "right", diary=diary, name="graph"),
                        ("left", "right"),
                        {"left": "left", "right": "right"},
                    ),
                }
            )
        ]
        await client.schedules.add("ticks", jobs.tick(diary), "*/5 * * * * *")
        await _settled(client, ids)
    sys.stdout.write(json.dumps({"code": penstock.jobs.__file__, "ids": ids}))


async def _settled(client: Client, ids: dict[str, list[str]]) -> None:
    """Waits until the jobs are in the states that they are named for."""

    async def is_in(job_id: str, state: State) -> bool:
        return (await client.job(job_id)).state is state

    for name, state in {"retrying": State.RETRYING, "running": State.RUNNING}.items():
        for job_id in ids[name]:
            await eventually(partial(is_in, job_id, state), WITHIN_SECONDS)
    for step in ("left", "right"):
        job_id = (await client.graphs.step(ids["graph"][0], step)).record.id
        await eventually(partial(is_in, job_id, State.COMPLETED), WITHIN_SECONDS)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    asyncio.run(main(sys.argv[1]))
