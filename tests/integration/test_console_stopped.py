"""A console that is stopped, and so reads nothing, holds up no job; it catches up afterwards.

What it costs in jobs a second is measured by ``benchmarks/console.py``.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.crew import Crew
from tests.integration.sample_jobs import note
from tests.integration.test_console import Running
from tests.waiting import eventually

JOBS = 400


async def run_jobs(crew: Crew, name: str) -> None:
    """Dispatches jobs, and waits until all of them have completed."""
    calls = [note(diary=crew.diary.path, name=f"{name}-{number}") for number in range(JOBS)]
    ids = await crew.client.dispatch_many(calls)
    for job_id in ids:
        assert (await crew.ended(job_id)).result is not None


async def test_jobs_run_while_the_console_is_stopped_and_it_misses_none(
    crew: Crew, tmp_path: Path
) -> None:
    crew.hire()
    console = Running(crew.settings, tmp_path)
    try:
        await run_jobs(crew, "beside")
        await console.until("/jobs/stats", lambda stats: stats["completed"] == JOBS)
        console.child.signal(signal.SIGSTOP)
        await run_jobs(crew, "stopped")
        console.child.signal(signal.SIGCONT)
        await console.until("/jobs/stats", lambda stats: stats["completed"] == 2 * JOBS)
        await eventually(lambda: (console.get("/health") or {}).get("state") == "current", 30)
    finally:
        console.child.signal(signal.SIGCONT)
        console.child.end(10.0)
    await crew.emptied()
