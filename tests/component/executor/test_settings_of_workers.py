"""Given running workers, when the settings change, then those that it concerns are replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.executor.making import command, report

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.executor.core import facts
from penstock.executor.core.started_with import digests
from penstock.executor.executor import Executor
from penstock.executor.outbox import Outbox
from penstock.runtime.workers import record
from penstock.runtime.workers.assignment import Assignment
from penstock.testing.memory.bus import MemoryBus

QUEUES: dict[str, Any] = {"kind": "group", "queues": ["mail", "extra"]}


def settings(*, default_pool: str = "", jobs: Any = None, **mail: Any) -> Settings:
    return check(
        {
            "pools": {"mail": mail, "etl": {}},
            "host": {"name": "host-a"},
            "default_pool": default_pool,
            "jobs": jobs or {},
        }
    )


class Forking:
    """An executor whose warm parent only notes what it is to fork."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bus, self.assignments = MemoryBus(), list[Assignment]()
        returns: Any = None
        self.executor = Executor(
            settings(),
            run_dir,
            cpu_cores=8,
            source="test",
            outbox=Outbox(bus, Subjects()),
            returns=returns,
        )
        monkeypatch.setattr(self.executor.warm_parents, "fork", self.assignments.append)
        self.executor.learn(facts.BusChecked(up=True))

    def start(self, **pools: int) -> None:
        fact = command(pools)
        self.executor.command(fact.command, {})
        for assignment in self.assignments:
            self.executor.learn(report(assignment.worker, pool=assignment.pool))

    def outdated(self) -> list[str]:
        """The pools of workers that are being replaced."""
        workers = self.executor.fleet.workers.values()
        return [worker.pool for worker in workers if worker.outdated]


@pytest.fixture
async def forking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Forking]:
    made = Forking(tmp_path, monkeypatch)
    yield made
    made.executor.close()


@pytest.mark.parametrize(
    "new",
    [
        settings(**QUEUES),
        settings(default_pool="mail"),
        settings(slots=4),
        settings(limit_jobs=100),
        settings(timeout_seconds=5),
        settings(middleware=["shop.gates:around"]),
    ],
    ids=["queues", "default_pool", "slots", "limit_jobs", "timeout", "middleware"],
)
async def test_workers_with_other_settings_are_replaced(forking: Forking, new: Settings) -> None:
    forking.start(mail=1, etl=1)
    forking.executor.take_settings(new)
    assert forking.outdated() == ["mail"]
    replacement = forking.assignments[2]
    assert (replacement.pool, replacement.cause) == ("mail", "reloaded")
    assert replacement.settings == new
    assert replacement.queues == (new.pools["mail"].queues or ("mail",))


async def test_those_of_all_pools_where_it_concerns_all(forking: Forking) -> None:
    forking.start(mail=1, etl=1)
    forking.executor.take_settings(settings(jobs={"cancel_grace_seconds": 9}))
    assert sorted(forking.outdated()) == ["etl", "mail"]


@pytest.mark.parametrize(
    "new",
    [settings(sla_seconds=3), settings(max_workers=40), settings(jobs={"modules": ["shop.new"]})],
    ids=["promise", "bounds", "modules"],
)
async def test_other_settings_leave_the_workers(forking: Forking, new: Settings) -> None:
    forking.start(mail=1, etl=1)
    forking.executor.take_settings(new)
    assert forking.outdated() == []
    assert len(forking.assignments) == 2


async def test_the_queues_of_another_pool_are_none_of_the_default_pool(forking: Forking) -> None:
    forking.executor.take_settings(settings(default_pool="etl"))
    forking.start(mail=1, etl=1)
    forking.executor.take_settings(settings(default_pool="etl", **QUEUES))
    assert sorted(forking.outdated()) == ["etl", "mail"]


async def test_adopted_workers_are_compared_too(
    forking: Forking, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = digests(settings())["mail"]
    left = [
        record.Record(
            worker=name, pool="mail", pid=1, start_ticks=0, started_at=0.0, started_with=digest
        )
        for name, digest in {"same": same, "other": "0123", "unknown": ""}.items()
    ]
    monkeypatch.setattr(record, "living", lambda _: left)
    monkeypatch.setattr(forking.executor.processes, "watch", lambda *_: None)
    forking.executor.adopt()
    workers = forking.executor.fleet.workers.values()
    assert [worker.name for worker in workers if worker.outdated] == ["other"]


@pytest.mark.parametrize(
    ("changed", "is_replaced"),
    [
        ({"command": ["other"]}, True),
        ({"drain": {"seconds": 99}}, True),
        ({"environment": ["SHOP_*"]}, True),
        ({"nice": 5}, True),
        ({"ready": "seconds:5"}, False),
        ({"sla_seconds": 3}, False),
        ({"limit_seconds": 60}, False),
    ],
    ids=str,
)
def test_consumers_of_another_system_are_replaced_for_what_they_were_started_with(
    changed: dict[str, Any], is_replaced: bool
) -> None:
    before: dict[str, Any] = {"command": ["consumer"], "strategy": "fixed"}
    digest, later = (digests(settings(**{**before, **more}))["mail"] for more in ({}, changed))
    assert (digest != later) is is_replaced
    jobs = digests(settings(jobs={"cancel_grace_seconds": 9}, **before))["mail"]
    assert jobs == digest, "it runs no jobs"
