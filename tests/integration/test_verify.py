"""`penstock verify` as a shell calls it, beside an installation that works."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.counting import QUEUE, Stage
from tests.integration.shell import Shell, shell_of
from tests.making import MakeSettings

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobCompleted
from penstock.jobs import job, registry

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
COMMANDS = re.findall(r"^penstock (verify.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
"""Those of the page, in its order."""


@job(queue=QUEUE, tries=1)
def refuse_odd(number: int) -> None:
    if number % 2:
        raise ValueError(number)


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[refuse_odd.name] = refuse_odd
    yield
    registry.REGISTRY.pop(refuse_odd.name)


@pytest.fixture
async def stage(settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage("nats", settings) as stage:
        yield stage


@pytest.fixture
def shell(stage: Stage, tmp_path: Path) -> Shell:
    return shell_of(stage.settings, tmp_path)


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) == 4


async def test_an_installation_is_verified_and_a_forged_end_is_reported(
    stage: Stage, shell: Shell
) -> None:
    async with stage.orchestrator(), stage.worker():
        calls = [refuse_odd(number=number) for number in range(6)]
        batch_id = await stage.client.batches.create(calls, allowed_failures=3)
        await stage.ended(batch_id)
        for command in COMMANDS:
            kept = await shell.asked(*command.split())
            assert "Judged" in kept and "6 jobs (0 have not ended yet), 1 batches" in kept
            assert kept.endswith("Every promise is kept.")
        ended = next(iter(await stage.client.batches.ended(batch_id))).job_id
        event = JobCompleted(job_id=ended, queue=QUEUE, attempt=1, run_seconds=0, source="forged")
        await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
        report = await shell.asked("verify", "--since", "1h", code=1)
        assert f"job {ended}" in report and "of rule once" in report
        assert "Not judged: decisions: no round is recorded" in report
