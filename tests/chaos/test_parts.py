"""The parts of a run do what their faults need: clocks, disks, forgeries, leftovers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.allowed import NotAllowed
from tests.chaos.clocks import HOUR, Clocks
from tests.chaos.disks import Disk, small_disk
from tests.chaos.forgery import WRITERS, messages
from tests.chaos.leftovers import temporary_files_in, traces
from tests.chaos.plan import draw
from tests.chaos.run import Verdict
from tests.chaos.site import FORGED, Site
from tests.histories import Breach, Rule
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.roles import ROLES
from penstock.events.subjects import Subjects
from penstock.runtime import children

TELL = """
import sys, time
from datetime import datetime, timezone
for _ in sys.stdin:
    print(time.time(), datetime.now(timezone.utc).timestamp(), time.monotonic(), flush=True)
"""


def test_a_clock_is_set_for_a_process_that_runs(tmp_path: Path) -> None:
    try:
        clock = Clocks(tmp_path).make("host")
    except NotAllowed as error:
        pytest.skip(str(error))
    child = children.start(
        [sys.executable, "-c", TELL],
        env=clock.environment,
        stdin=subprocess.PIPE,
        output=subprocess.PIPE,
    )
    try:
        for ahead in (0, HOUR, -HOUR):
            clock.set(ahead)
            wall, date, monotonic = _answer(child)
            assert wall - time.time() == pytest.approx(ahead, abs=30)
            assert date - time.time() == pytest.approx(ahead, abs=30)
            assert monotonic == pytest.approx(time.monotonic(), abs=30)
        assert clock.rules(child.pid)
    finally:
        child.end()


def _answer(child: children.Child) -> list[float]:
    assert child.process.stdin
    assert child.process.stdout
    child.process.stdin.write(b"\n")
    child.process.stdin.flush()
    return [float(word) for word in child.process.stdout.readline().split()]


@pytest.fixture
def disk() -> Iterator[Disk]:
    try:
        with small_disk(24_000_000) as disk:
            yield disk
    except NotAllowed as error:
        pytest.skip(str(error))


async def test_a_hanging_disk_holds_who_writes_and_lets_go(disk: Disk) -> None:
    target = disk.folder / "file"
    write = f"open({str(target)!r}, 'wb', 0).write(b'x' * 100_000)"
    with disk.hanging():
        child = children.start([sys.executable, "-S", "-c", write])
        await eventually(lambda: _waits_in_the_kernel(child.pid), 20, "a writer that hangs")
        assert not target.exists()
    assert child.wait(20) == 0
    child.end()
    assert target.stat().st_size == 100_000


def _waits_in_the_kernel(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"


def test_a_full_disk_takes_nothing_until_there_is_room(disk: Disk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space"), (disk.folder / "file").open("wb") as file:
        file.write(b"x" * 1_000_000)
    disk.make_room()
    (disk.folder / "file").write_bytes(b"x" * 1_000_000)


@pytest.mark.parametrize("role", WRITERS)
def test_forged_messages_come_again_and_reach_each_subject_of_a_key(role: str) -> None:
    made = messages(role, 0.3, ["work", "host-a"])
    assert made == messages(role, 0.3, ["work", "host-a"])
    assert made != messages(role, 0.6, ["work", "host-a"])
    for pattern in ROLES[role].publishes:
        assert any(_fits(message.subject, f"penstock.{pattern}") for message in made), pattern


def _fits(subject: str, pattern: str) -> bool:
    names, places = subject.split("."), pattern.split(".")
    if places[-1] == ">":
        names, places = names[: len(places) - 1], places[:-1]
    return len(names) == len(places) and all(
        place in ("*", name) for name, place in zip(names, places, strict=True)
    )


async def test_what_is_left_behind_is_seen(tmp_path: Path) -> None:
    with temporary_files_in(tmp_path):
        before = traces(tmp_path)
        assert before.since(before) == []
        child = children.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        (tmp_path / "tmp" / "forgotten").touch()
        try:
            await eventually(lambda: len(traces(tmp_path).since(before)) == 2, 10)
            process, file = traces(tmp_path).since(before)
            assert process.startswith(f"process: {child.pid} ")
            assert file == "file: forgotten"
        finally:
            child.end()
            (tmp_path / "tmp" / "forgotten").unlink()
        assert traces(tmp_path).since(before) == []


def test_a_run_that_left_something_behind_is_bad_and_prints_how_to_repeat_it() -> None:
    plan = draw(3)
    good = Verdict(plan=plan, recoveries=(("fill-disk@9", 3.0), ("forge@20", 1.0)))
    bad = Verdict(plan=plan, left_behind=("process: 7 nats-server",))
    assert good.good
    assert "slowest recovery 3.0 s of 30 s, after fill-disk@9" in str(good)
    assert not bad.good
    assert "left behind: process: 7 nats-server" in str(bad)
    assert f"again: {plan.again}" in str(bad)
    fallen = Verdict(plan=plan, fallen=("orchestrator-0 ended with 1",))
    assert fallen.word == "BAD"
    assert "orchestrator-0 ended with 1" in str(fallen)


def test_a_run_whose_recorder_missed_events_is_neither_good_nor_bad() -> None:
    breach = Breach(Rule.ENDS, "j", "it is running")
    verdict = Verdict(plan=draw(3), breaches=(breach,), unseen=((7, 9),))
    assert (verdict.word, verdict.good) == ("NOT JUDGED", False)
    assert "the recorder did not see 7 to 9" in str(verdict)


async def test_the_recorder_notices_what_was_discarded_before_it_was_read(
    settings: MakeSettings, tmp_path: Path
) -> None:
    bus = await connect(settings())
    subjects = Subjects(settings.prefix)
    subject = subjects.events("job", f"{FORGED}j", "JobDispatched")
    await bus.append_many([Outgoing(subject, b"{}")] * 5)
    await bus.remove(subjects.events_stream, subject, before=4)
    site = Site.__new__(Site)
    site.bus, site.subjects, site.recorded, site.unseen = bus, subjects, 0, []
    recording = asyncio.create_task(site.watch())
    await eventually(lambda: site.recorded == 5, 5.0, "all read")
    assert site.unseen == [(1, 3)]
    recording.cancel()
    await asyncio.gather(recording, return_exceptions=True)
    await bus.close()
