"""Jobs that end in their threads, and the loop that collects them."""

from __future__ import annotations

import asyncio

from penstock.worker.running.finished import Finished


async def _made() -> Finished:
    return Finished()


def test_a_job_that_ends_after_the_workers_loop_is_announced_to_nothing() -> None:
    finished = asyncio.run(_made())
    finished.announce()
    assert finished.collect() == []
