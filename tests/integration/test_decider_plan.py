"""From demand to plan over both buses: advice without a command, memories that outlive a leader."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.buses import both
from tests.integration.deciding import EMAILS, QUICK, World, world
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.config import ConfigError, Settings
from penstock.decider import app
from penstock.events.scaling import (
    BudgetCapReached,
    HostCountAdvised,
    LeaderChanged,
    ScalingDecisionMade,
)
from penstock.events.snapshot import Quantiles

BUSY = {"arrival_per_second": 5.0}  # 10 workers by hybrid
BUSIER = {"arrival_per_second": 10.0}  # 20


def emails(**more: Any) -> dict[str, Any]:
    return {"pools": {"emails": {**EMAILS["emails"], **more}}, "decider": QUICK}


@pytest.fixture(params=both("memory"))
async def here(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with world(request.param, request.getfixturevalue("settings")) as found:
        yield found


async def replaced(here: World, **tables: Any) -> int:
    """The leader vanishes, another takes over with these settings; its epoch."""
    led = len(here.events(LeaderChanged))
    await here.freeze(here._services[0].service)
    here.settings = remade(here, **tables)
    await here.start()
    await eventually(lambda: len(here.events(LeaderChanged)) > led, within=5)
    return here.events(LeaderChanged)[-1].epoch


def remade(here: World, **tables: Any) -> Settings:
    make = MakeSettings(lambda: here.settings.nats.url, here.settings.host.run_dir)
    make.prefix = here.settings.prefix
    return make(**tables)


async def test_advice_is_told_but_not_commanded_whoever_leads(here: World) -> None:
    here.host("a")
    await here.report(**BUSY)
    await here.start()
    await here.plan("a", emails=10)
    for _ in range(2):  # the second time one who never commanded anything takes over
        epoch = await replaced(here, **emails(advisor=True))
        await here.report(**BUSIER)
        made = await eventually(
            lambda: here.events(ScalingDecisionMade, epoch=epoch, target=20)  # noqa: B023
        )
        assert (made[0].current, made[0].advice) == (10, True)
        assert made[0].placement == {"a": 20}
        assert made[0].state["placement"] == {"a": 10}
        assert made[0].reasons[-1].step == "advice"
    await here.report(arrival_per_second=0.0)
    await eventually(lambda: [e for e in here.events(ScalingDecisionMade) if e.target < 10])
    assert all(command.pools == {"emails": 10} for command in here.commands if command.pools)


async def test_a_pool_that_was_never_planned_stays_so_while_it_is_only_advised(here: World) -> None:
    here.settings = remade(here, **emails(advisor=True, min_workers=2))
    here.host("a")
    await here.report(**BUSY)
    await here.start()
    await here.event(ScalingDecisionMade, target=10, advice=True)
    await replaced(here, **emails(advisor=True, min_workers=2))
    await here.report(**BUSY)
    await here.decided(2)
    assert not any(command.pools for command in here.commands)


async def test_a_budget_that_is_used_up_stays_so_for_the_next_leader(here: World) -> None:
    # The day must not end during the test: less of it left raises the cap.
    midday_here = f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"
    tables = emails(
        policies=["budget-cap"],
        policy_options={"budget-cap": {"worker_hours_per_day": 4, "time_zone": midday_here}},
    )
    here.settings = remade(here, **tables)
    here.host("a")
    await here.report(**BUSY)
    await here.start()
    told = await here.event(BudgetCapReached)
    assert (told.wanted, told.worker_hours_per_day) == (10, 4)
    epoch = await replaced(here, **tables)
    await here.report(**BUSY)
    made = await eventually(lambda: here.events(ScalingDecisionMade, epoch=epoch))
    assert made[-1].reasons[-1].rule == "budget-cap"
    await here.decided(2)
    assert len(here.events(BudgetCapReached)) == 1


def test_a_policy_that_is_not_there_stops_the_start(settings) -> None:
    with pytest.raises(ConfigError, match="unknown policy 'cooldwn'; did you mean 'cooldown'"):
        app.run(settings(pools={"emails": {"policies": ["cooldwn"]}}))


async def test_too_few_hosts_are_told(settings, monkeypatch) -> None:
    monkeypatch.setattr("penstock.decider.core.hosts.advice.MORE_AFTER_SECONDS", 0.5)
    monkeypatch.setattr("penstock.decider.core.hosts.advice.EVERY_SECONDS", 0.1)
    async with world("nats", settings) as here:
        here.host("a", max_workers=4)
        await here.report(**BUSY)
        await here.start()
        while not here.events(HostCountAdvised):
            await here.report(**BUSY)
            await here.decided()
        (told,) = here.events(HostCountAdvised)
        assert (told.hosts, told.needed) == (1, 3)
        assert told.short_workers == {"emails": 6}


async def test_config_check_takes_what_was_measured(settings, tmp_path: Path) -> None:
    async with world("nats", settings) as here:
        made = here.settings
        (tmp_path / "penstock.toml").write_text(
            f'prefix = "{made.prefix}"\n[nats]\nurl = "{made.nats.url}"\n'
            '[jobs]\nmodules = ["json"]\n[pools.emails]\nsla_seconds = 2\nmin_workers = 0\n'
        )
        shell = Shell(tmp_path)
        assert "ok: 1 pools" in await to_thread(shell.text, "config", "check")
        slow = Quantiles(count=9, mean_seconds=3, p50_seconds=3, p95_seconds=3.1, p99_seconds=3.2)
        await here.report(spawn=slow)
        told = await to_thread(shell.json, "config", "check", code=2)
        assert told["measured"] is True
        assert "a worker needs 3.1 s to start (measured): keep 1 warm" in told["errors"][0]
        assert "ok: 1 pools" in await to_thread(shell.text, "config", "check", "--offline")
