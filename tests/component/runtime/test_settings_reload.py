"""A service whose settings are read anew: taken over, refused, or started anew with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config import ConfigError, Settings
from penstock.config.console import Console
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.operations.process_identity import own
from penstock.operations.settings_in_force import (
    Announcer,
    SettingsInForce,
    decider_settings,
    services,
)
from penstock.runtime import service_process
from penstock.runtime.reloading import Reloader
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects()


def settings(sla_seconds: float = 5, **more: Any) -> Settings:
    return check({"pools": {"mails": {"sla_seconds": sla_seconds, **more}}})


class Running:
    """A service and its reloader on a bus in memory.

    Attributes:
        file: what is read anew: settings, or the error of reading them.
    """

    def __init__(self, name: str = "decider") -> None:
        self.bus, self.file = MemoryBus(), settings()
        self.error: Exception | None = None
        self.service = Service(name, settings(), self.bus)
        self.reloader = Reloader(self.service, self._reread, pools)
        self.task = asyncio.ensure_future(self.reloader.run())

    def _reread(self) -> Settings:
        if self.error is not None:
            raise self.error
        return self.file

    async def published(self, fits: Callable[[SettingsInForce], Any]) -> SettingsInForce:
        async def newest() -> SettingsInForce | None:
            found = [one for one in await services(self.bus, SUBJECTS) if fits(one)]
            return found[0] if found else None

        record = await eventually(newest)
        assert record is not None
        return record


@pytest.fixture
async def running():
    made = Running()
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)
    await made.bus.close()


async def test_what_it_runs_with_is_published_and_compared(running: Running) -> None:
    record = await running.published(lambda one: one.settings)
    assert record.settings == {"pools": {"mails": {"sla_seconds": 5.0}}}
    [change] = record.differences(settings(4))
    assert (change.name, change.file, change.in_force) == ("pools.mails.sla_seconds", 4.0, 5.0)
    in_force = await decider_settings(running.bus, SUBJECTS)
    assert in_force is not None
    assert in_force.pools["mails"].sla_seconds == 5.0


async def test_a_service_that_cannot_take_settings_over_is_started_anew(running: Running) -> None:
    running.file = settings(4)
    running.reloader.reload()
    assert running.service.stopping.is_set()
    assert running.reloader.next == settings(4)
    running.file = settings(3)  # changed again while the service ends
    running.reloader.reload()
    assert running.reloader.next == settings(3)


async def test_one_that_is_started_anew_answers_with_its_new_settings_alone(
    running: Running,
) -> None:
    await running.published(lambda one: one.settings)
    before = (await running.bus.extent(SUBJECTS.state_stream)).last
    running.file = settings(4)
    running.reloader.reload()
    for _ in range(20):  # the reloader runs until the service has ended
        await asyncio.sleep(0)
    assert (await running.bus.extent(SUBJECTS.state_stream)).last == before


async def test_a_service_that_ends_for_good_does_not_reload(running: Running) -> None:
    running.service.stopping.set()
    running.file = settings(4)
    running.reloader.reload()
    assert running.reloader.next is None


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (check({"nats": {"url": "nats://elsewhere:1"}}), OSError("no such host")),
        (check({"console": {"port": 1}}), ConfigError("the port is taken")),
    ],
)
def test_new_settings_that_a_service_cannot_start_with_leave_those_of_before(
    monkeypatch: pytest.MonkeyPatch, new: Settings, error: Exception
) -> None:
    results = iter([new, error, None])
    runs = 0

    def fake_run(coroutine: Any) -> Settings | None:
        nonlocal runs
        coroutine.close()
        runs += 1
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(service_process.uvloop, "run", fake_run)
    monkeypatch.setattr(service_process.signal, "pthread_sigmask", lambda *_: None)
    service_process.run("decider", settings(), body=None)  # type: ignore[arg-type]
    assert runs == 3


@pytest.mark.parametrize(
    "broken",
    [
        ConfigError("penstock.toml: no such file"),
        OSError("is a directory"),
        settings(min_workers=9, max_workers=1),
    ],
)
async def test_what_cannot_be_used_changes_nothing_and_is_reported(
    running: Running, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(broken, Exception):
        running.error = broken
    else:
        running.file = broken
    running.reloader.reload()
    assert not running.service.stopping.is_set()
    assert running.reloader.next is None
    record = await running.published(lambda one: one.refused)
    assert record.settings == {"pools": {"mails": {"sla_seconds": 5.0}}}
    assert "those of before stay in force" in caplog.text
    running.error, running.file = None, settings()
    running.reloader.reload()
    assert not (await running.published(lambda one: not one.refused)).refused


async def test_an_executor_goes_on_and_names_what_waits(running: Running) -> None:
    running.service.on_new_settings(lambda new: (new, ("spark.memory",)))
    running.file = settings(4)
    await running.published(lambda one: one.settings)
    await running.bus.signal(SUBJECTS.settings_reload())
    record = await running.published(lambda one: one.waiting)
    assert record.waiting == ("spark.memory",)
    assert record.differences(settings(4)) == []
    assert not running.service.stopping.is_set()


async def test_a_process_that_has_ended_is_not_listed(running: Running) -> None:
    await running.published(lambda one: one.settings)
    await running.reloader.say_ended()
    assert await services(running.bus, SUBJECTS) == []


async def test_a_process_that_was_killed_is_not_listed_and_the_next_one_records_its_end() -> None:
    bus, killed = MemoryBus(), await asyncio.create_subprocess_exec("true")
    await killed.wait()
    process = msgspec.structs.replace(own(), pid=killed.pid)
    subject = SUBJECTS.state("settings", f"decider_here_{killed.pid}")
    record = SettingsInForce(
        service="decider", host="here", pid=killed.pid, at=utc_now(), process=process
    )
    far_away = msgspec.structs.replace(process, pid_space="another machine")
    elsewhere = msgspec.structs.replace(record, host="there", process=far_away)
    for place, one in ((subject, record), (f"{subject}0", elsewhere)):
        await bus.append(Outgoing(place, msgspec.json.encode(one)))
    assert [one.host for one in await services(bus, SUBJECTS)] == ["there"]

    await Announcer(bus, "decider", settings()).mark_dead()
    ended = await bus.last(SUBJECTS.state_stream, subject)
    assert ended is not None
    assert msgspec.json.decode(ended.body, type=SettingsInForce).ended
    await bus.close()


async def test_records_of_other_versions_are_passed_over(running: Running) -> None:
    await running.published(lambda one: one.settings)
    for name, body in (("x_y_1", b"{"), ("x_y_2", b'{"service": 3}')):
        await running.bus.append(Outgoing(SUBJECTS.state("settings", name), body))
    assert len(await services(running.bus, SUBJECTS)) == 1


async def test_the_log_line_of_a_reload_says_what_changed_also_on_this_machine_alone(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock")
    running.file = msgspec.structs.replace(settings(5), console=Console(port=9480))
    running.reloader.reload()
    [line] = [one for one in caplog.messages if "starts anew with them" in one]
    assert line.endswith("settings of this machine alone, such as addresses and keys")
