"""Hooks of the settings that dispatch a job, run by `penstock.testing`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.notice import JobNotice
from penstock.jobs import job, registry
from penstock.testing import Bench

SEEN: list[tuple[str, str]] = []


@job(queue="mails", tries=1)
def charge(number: int) -> None:
    raise ConnectionError(f"the bank refuses {number}")


@job(queue="mails")
def report_death(notice: JobNotice) -> None:
    SEEN.append((notice.job_id, notice.error))


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    SEEN.clear()
    registry.REGISTRY.update({each.name: each for each in (charge, report_death)})
    yield
    for each in (charge, report_death):
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture
def penstock_settings() -> Settings:
    report = {"job": report_death.name, "queue": "mails", "on": ["dead", "cancelled"]}
    page = {"url": "http://127.0.0.1:1/", "on": ["dead"]}
    return check({"hooks": {"report": report, "page": page}})


async def test_a_hook_s_job_runs_once_for_each_end(penstock: Bench) -> None:
    cancelled = await penstock.client.dispatch(charge(number=1))
    await penstock.client.cancel(cancelled, "a mistake")
    assert await penstock.run_pending() == 1
    dead = await penstock.client.dispatch(charge(number=2))
    assert await penstock.run_pending() == 2
    assert await penstock.run_pending() == 0
    assert [(cancelled, "a mistake"), (dead, "the bank refuses 2")] == SEEN
    penstock.assert_dispatched_times(report_death, 2)
