"""Each tick of a schedule becomes one job, however many orchestrators run, stop and die."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.histories import read_all
from tests.integration import orchestrating
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, Expect, Outgoing
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import Client, JobRefused, NotFound, job
from penstock.jobs.errors import BadSchedule
from penstock.jobs.schedules.client import read
from penstock.jobs.schedules.schedule import Schedule
from penstock.orchestrator.scheduling.declared_schedules import agree
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child

EACH_SECOND = "* * * * * *"
SELDOM = "0 0 1 1 *"


@job(queue="clock", name="schedule_tests.tell")
def tell(word: str) -> str:
    return word


class Stage:
    """A client, and orchestrators as processes."""

    def __init__(self, settings: Settings, bus: Bus) -> None:
        self.settings, self.bus = settings, bus
        self.subjects = Subjects(settings.prefix)
        self.client = Client.over(bus, settings)
        self.orchestrators: list[Child] = []

    def start(self, *doom: str) -> Child:
        self.orchestrators.append(orchestrating.start(self.settings, *doom))
        return self.orchestrators[-1]

    async def ticks(self, name: str) -> list[int]:
        """The ticks that became jobs, as POSIX seconds, in order."""
        histories = await read_all(self.bus, self.subjects)
        found = []
        for history in histories.values():
            first = history[0][1]
            assert isinstance(first, JobDispatched)
            assert len(history) == 1
            if f"schedule:{name}" in first.tags and first.job_id.startswith("s-"):
                found.append(int(first.job_id.rpartition("-")[2]))
        return sorted(found)

    async def seen(self, name: str, count: int, within: float = 30) -> list[int]:
        async def enough() -> list[int] | None:
            found = await self.ticks(name)
            return found if len(found) >= count else None

        return await eventually(enough, within, f"{count} ticks")

    async def change(self, name: str, how: Callable[[Schedule], Schedule]) -> None:
        """As if time had passed with nobody there."""
        subject = self.subjects.state("schedule", name)
        stored = await self.bus.last(self.subjects.state_stream, subject)
        assert stored is not None
        body = msgspec.json.encode(how(msgspec.json.decode(stored.body, type=Schedule)))
        await self.bus.append(Outgoing(subject, body, expect=Expect(stored.sequence)))

    async def in_line(self) -> int:
        """Messages in the queue, doubles included."""
        counts = await self.bus.count(self.subjects.jobs_stream, self.subjects.queue("clock"))
        return sum(counts.values())


@asynccontextmanager
async def staged(settings: Settings) -> AsyncIterator[Stage]:
    stage = Stage(settings, await connect(settings))
    try:
        yield stage
    finally:
        for child in stage.orchestrators:
            if child.process.poll() is None:
                os.kill(child.pid, signal.SIGCONT)
            await child.stop(grace_seconds=10)
        await stage.bus.close()


@pytest.fixture
async def stage(settings: MakeSettings, tmp_path: Path) -> AsyncIterator[Stage]:
    made = settings(pools={"clock": {}}, jobs={"modules": ["tests.integration.test_schedules"]})
    async with staged(made) as found:
        yield found


def whole(ticks: list[int]) -> None:
    """None twice, none left out."""
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))


async def test_each_tick_is_one_job_with_two_orchestrators(stage: Stage) -> None:
    stage.start(), stage.start()
    await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    ticks = await stage.seen("often", 5)
    whole(ticks)
    found = await stage.client.schedules.get("often")
    assert abs(found.dispatched - len(await stage.ticks("often"))) <= 1
    jobs = [await stage.client.job(f"s-{found.generation}-{tick}") for tick in ticks]
    late = [
        job.record.dispatched_at.timestamp() - tick for job, tick in zip(jobs, ticks, strict=True)
    ]
    assert min(late) >= 0
    assert min(late) < 0.1, "the others may have waited for a core"


@pytest.mark.parametrize(
    "body",
    [b"", b'{"name":', b"[" * 100_000, b'{"name":"other"}'],
    ids=["empty", "cut off", "too deep", "of another"],
)
async def test_a_record_that_cannot_be_read_hides_no_other_and_can_be_removed(
    stage: Stage, body: bytes
) -> None:
    """One of them ended each orchestrator that started, again and again."""
    schedules = stage.client.schedules
    broken = Outgoing(stage.subjects.state("schedule", "broken"), body)
    await stage.bus.append(broken)
    await schedules.add("mine", tell(word="a"), SELDOM)
    assert [one.name for one in await schedules.all()] == ["mine"]
    await agree(schedules, {"land": (SELDOM, tell(word="land"))}, "UTC")
    assert [one.name for one in await schedules.all()] == ["land", "mine"]
    with pytest.raises(NotFound):
        await schedules.get("broken")
    await schedules.remove("broken")
    mark = await stage.bus.last(stage.subjects.state_stream, broken.subject)
    assert mark is not None
    assert read(mark).removed
    await stage.bus.append(broken)
    await schedules.add("broken", tell(word="b"), SELDOM)
    assert (await schedules.get("broken")).name == "broken"


async def test_schedules_of_the_settings_come_and_go_with_them(stage: Stage) -> None:
    schedules = stage.client.schedules
    await schedules.add("mine", tell(word="a"), SELDOM)

    async def agreed(**wanted: str) -> dict[str, str]:
        """Cron expression and generation by name."""
        calls = {name: (cron, tell(word=name)) for name, cron in wanted.items()}
        await agree(schedules, calls, "UTC")
        return {one.name: f"{one.cron} {one.generation}" for one in await schedules.all()}

    first = await agreed(land=SELDOM, forecast=SELDOM, mine=EACH_SECOND)
    assert set(first) == {"land", "forecast", "mine"}
    assert first["mine"].startswith(SELDOM), "somebody made it; it is not touched"
    assert await agreed(land=SELDOM, forecast=SELDOM) == first, "nothing changed"
    second = await agreed(land="1 0 1 1 *", forecast=SELDOM)
    assert {name for name in first if first[name] != second[name]} == {"land"}
    assert set(await agreed()) == {"mine"}


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize("pattern", [r"\.state\.schedule\.", r"JobDispatched$", r"\.jobs\.clock$"])
async def test_whoever_dies_midway_another_goes_on(stage: Stage, when: str, pattern: str) -> None:
    doomed = stage.start(when, pattern)
    await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    await eventually(lambda: doomed.process.poll() is not None, 20, "its death")
    stage.start()
    found = await stage.client.schedules.get("often")
    if found.firing:
        first = int(found.firing.timestamp())
        ticks = await stage.seen("often", 3)
        assert first in ticks
    else:
        ticks = await stage.seen("often", 2)
    assert len(set(ticks)) == len(ticks)
    await eventually(lambda: _equal(stage), 15, "a message for each job")


async def _equal(stage: Stage) -> bool:
    return await stage.in_line() >= len(await stage.ticks("often"))


async def test_one_that_was_stopped_repeats_nothing_when_it_goes_on(stage: Stage) -> None:
    chance = random.Random(3)
    pair = [stage.start(), stage.start()]
    await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    await stage.seen("often", 1)
    for _ in range(4):
        victim = chance.choice(pair)
        os.kill(victim.pid, signal.SIGSTOP)
        before = len(await stage.ticks("often"))
        await stage.seen("often", before + 2)
        os.kill(victim.pid, signal.SIGCONT)
    await stage.seen("often", 12)
    ticks = await stage.ticks("often")
    assert len(set(ticks)) == len(ticks)
    # a tick that the stopped one had begun is dispatched, if late: none is left out for good
    last = ticks[-1] - 3
    assert [tick for tick in ticks if tick <= last] == list(range(ticks[0], last + 1))


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("skip", 0)])
async def test_ticks_that_nobody_was_there_for(stage: Stage, missed: str, count: int) -> None:
    await stage.client.schedules.add("rare", tell(word="a"), "0 0 * * *", missed=missed)  # type: ignore[arg-type]
    days = timedelta(days=3)
    await stage.change(
        "rare", lambda one: msgspec.structs.replace(one, done_until=one.done_until - days)
    )
    stage.start()

    async def dealt_with() -> bool:
        found = await stage.client.schedules.get("rare")
        return found.done_until > utc_now() - timedelta(days=1) and not found.firing

    await eventually(dealt_with, 15, "what was missed")
    assert len(await stage.ticks("rare")) == count


async def test_a_paused_one_makes_no_jobs_and_its_ticks_are_not_made_up_for(stage: Stage) -> None:
    stage.start()
    await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    await stage.seen("often", 1)
    await stage.client.schedules.pause("often")
    paused_at = time.time()
    await stage.client.schedules.add("other", tell(word="b"), EACH_SECOND)
    await stage.seen("other", 3)
    assert [tick for tick in await stage.ticks("often") if tick > paused_at + 0.5] == []
    await stage.client.schedules.resume("often")
    resumed_at = time.time()
    before = len(await stage.ticks("often"))
    after = (await stage.seen("often", before + 2))[before:]
    assert min(after) >= int(resumed_at)


async def test_run_now_is_besides_the_ticks(stage: Stage) -> None:
    await stage.client.schedules.add("rare", tell(word="a"), SELDOM)
    await stage.client.schedules.pause("rare")
    job_id = await stage.client.schedules.run_now("rare")
    record = (await stage.client.job(job_id)).record
    assert (record.function, record.queue) == (tell.name, "clock")
    assert "schedule:rare" in record.tags
    assert (await stage.client.schedules.get("rare")).dispatched == 0


async def test_a_removed_one_is_gone_and_its_name_free(stage: Stage) -> None:
    stage.start()
    await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    with pytest.raises(JobRefused, match="exists"):
        await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
    await stage.seen("often", 1)
    await stage.client.schedules.remove("often")
    removed_at = time.time()
    with pytest.raises(NotFound, match="no schedule 'often'"):
        await stage.client.schedules.get("often")
    await stage.client.schedules.add("other", tell(word="b"), EACH_SECOND)
    await stage.seen("other", 3)
    assert [tick for tick in await stage.ticks("often") if tick > removed_at + 0.5] == []
    await stage.client.schedules.add("often", tell(word="a"), SELDOM)
    await stage.client.schedules.add("often", tell(word="c"), SELDOM, replace=True)
    assert len(await stage.client.schedules.all()) == 2


@pytest.mark.parametrize(
    ("cron", "zone", "match"),
    [
        ("61 * * * *", "UTC", "no cron"),
        ("* * * * *", "X/Y", "zone"),
        ("0 0 31 2 *", "UTC", "no cron"),
    ],
)
async def test_what_cannot_be(stage: Stage, cron: str, zone: str, match: str) -> None:
    with pytest.raises(BadSchedule, match=match):
        await stage.client.schedules.add("odd", tell(word="a"), cron, zone=zone)


async def test_schedules_outlive_the_broker(
    broker: Broker, settings: MakeSettings, tmp_path: Path
) -> None:
    made = settings(pools={"clock": {}}, nats={"request_timeout_seconds": 1})
    async with staged(made) as stage:
        stage.start(), stage.start()
        await stage.client.schedules.add("often", tell(word="a"), EACH_SECOND)
        await stage.seen("often", 2)
        broker.kill()
        await asyncio.sleep(0.1)
        broker.start()
        before = len(await eventually(lambda: _ticks_or_not(stage), 15))
        ticks = await stage.seen("often", before + 3)
        assert len(set(ticks)) == len(ticks)


async def _ticks_or_not(stage: Stage) -> list[int]:
    try:
        return await stage.ticks("often")
    except Exception:
        return []


JOBS = """
from penstock.jobs import job

@job(queue="clock")
def tell(word: str) -> str:
    return word
"""


def test_the_command(tmp_path: Path, settings: MakeSettings) -> None:
    made = settings()
    (tmp_path / "clock_jobs.py").write_text(JOBS)
    (tmp_path / "penstock.toml").write_text(
        f'prefix = "{made.prefix}"\nnats.url = "{made.nats.url}"\n'
        'jobs.modules = ["clock_jobs"]\n[pools.clock]\n'
    )
    shell = Shell(tmp_path)
    known = ("30 6 * * MON-FRI", "clock_jobs.tell", "--arg", "word=a", "--zone", "Europe/Berlin")
    text = shell.text("schedule", "add", "morning", *known)
    assert "At 06:30 on Monday through Friday" in text
    assert "exists" in shell.call("schedule", "add", "morning", *known, code=1).stderr
    [row] = shell.json("schedule", "ls")
    assert (row["name"], row["state"], row["zone"]) == ("morning", "active", "Europe/Berlin")
    assert shell.json("schedule", "pause", "morning")["next_at"] is None
    job_id = shell.text("schedule", "run-now", "morning")
    assert [(row["id"], row["queue"]) for row in shell.json("job", "ls")] == [(job_id, "clock")]
    assert shell.json("schedule", "resume", "morning")["state"] == "active"
    assert "removed" in shell.text("schedule", "rm", "morning")
    assert shell.json("schedule", "ls") == []
    wrong = (("61 * * * *", "clock_jobs.tell", "-a", "word=a"), (EACH_SECOND, "clock_jobs.nothing"))
    for arguments in wrong:
        refused = shell.call("schedule", "add", "odd", *arguments, code=2).stderr
        assert len(refused.splitlines()) == 1
