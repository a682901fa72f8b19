"""`penstock batch` as a shell calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.counting import QUEUE, Stage
from tests.integration.shell import Shell, shell_of
from tests.making import MakeSettings

from penstock.jobs import job, registry

MENDED: set[int] = set()


@job(queue=QUEUE, tries=1)
def fail_odd(number: int) -> None:
    if number % 2 and number not in MENDED:
        raise ValueError(number)


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[fail_odd.name] = fail_odd
    yield
    registry.REGISTRY.pop(fail_odd.name)


@pytest.fixture
async def stage(settings: MakeSettings) -> AsyncIterator[Stage]:
    MENDED.clear()
    async with Stage("nats", settings) as found:
        yield found


@pytest.fixture
def shell(stage: Stage, tmp_path: Path) -> Shell:
    return shell_of(stage.settings, tmp_path)


async def test_a_batch_is_watched_shown_listed_and_its_failed_jobs_retried(
    stage: Stage, shell: Shell
) -> None:
    async with stage.orchestrator():
        calls = [fail_odd(number=number) for number in range(4)]
        batch_id = await stage.client.batches.create(calls, title="odd", allowed_failures=1)
        async with stage.worker():
            failed = await shell.asked("batch", "watch", batch_id, "--timeout", "20", code=1)
            assert "ended failed: too many failures: 2 of at most 1" in failed
            shown = await shell.asked_json("batch", "show", batch_id)
            assert shown["counts"] == {"completed": 2, "failed": 2}
            assert len(shown["failed_jobs"]) == 2
            [listed] = await shell.asked_json("batch", "ls", "--state", "failed")
            assert (listed["id"], listed["title"]) == (batch_id, "odd")
            assert await shell.asked_json("batch", "ls", "--state", "running") == []
            MENDED.update({1, 3})
            again = await shell.asked("batch", "retry-failed", batch_id)
            assert again == f"2 jobs of batch {batch_id} run again"
            watched = await shell.asked("batch", "watch", batch_id, "--timeout", "20")
            assert "100 %  completed 4, failed 0" in watched
            late = await shell.asked("batch", "cancel", batch_id, code=1)
            assert "had already ended: it is completed" in late


async def test_a_batch_is_cancelled(stage: Stage, shell: Shell) -> None:
    batch_id = await stage.client.batches.create([fail_odd(number=2)], batch_id="nightly")
    assert "is being cancelled" in await shell.asked("batch", "cancel", batch_id)
    async with stage.orchestrator():
        assert (await stage.ended(batch_id)).counts.cancelled == 1
    assert "state      cancelled: cancelled by an operator" in await shell.asked(
        "batch", "show", batch_id
    )


async def test_a_batch_that_is_not_there(stage: Stage, shell: Shell) -> None:
    assert "no batch of id 'none'" in await shell.asked("batch", "show", "none", code=1)
