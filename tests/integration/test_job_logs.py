"""What jobs wrote, read while they run and after their worker was killed."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.crew import Crew
from tests.integration.sample_jobs import speak
from tests.integration.shell import shell_of
from tests.waiting import eventually

WITHIN = 20.0


async def test_a_killed_worker_leaves_its_lines_and_a_note(crew: Crew, tmp_path: Path) -> None:
    worker = crew.hire()
    job_id = await crew.client.dispatch(speak(diary=crew.diary.path, name="a", gate=crew.gate()))

    async def published() -> list[str]:
        parts = await crew.client.jobs.logs(job_id)
        return [line.text for part in parts for line in part.lines]

    await eventually(published, WITHIN, "the line of a job that runs")
    worker.signal(signal.SIGKILL)
    await worker.ended()
    crew.hire()
    crew.open()
    await crew.ended(job_id)

    shell = shell_of(crew.settings, tmp_path)
    shown = await shell.asked("job", "logs", job_id[:20], "--follow")
    assert shown.count("a speaks in attempt 1") == 2  # losing a worker is no attempt that counts
    assert shown.count(f"attempt 1, worker {worker.name}") == 1
    assert f"attempt 1 was cut off with worker {worker.name}" in shown
    assert await published() == ["a speaks in attempt 1"] * 2
