"""The parts of `penstock up`: the folder it holds, children that are started again."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.waiting import eventually

from penstock.cli.up import own_console, state
from penstock.cli.up.screen import Lines, Table
from penstock.config import ConfigError
from penstock.config.load import check
from penstock.events.envelope import utc_now
from penstock.events.log_lines import LogChunk, LogLine
from penstock.events.worker import HostLost
from penstock.runtime import children, console_place
from penstock.runtime.children import Child, ChildFailed
from penstock.runtime.interpreter import PAUSING
from penstock.runtime.local_broker import find_url, run_folder
from penstock.runtime.paths import free_port
from penstock.runtime.supervised import Backoff, Supervised

SLEEPER = [sys.executable, "-S", "-c", "import signal; signal.pause()"]


def test_the_address_is_known_while_up_runs_and_not_after(tmp_path) -> None:
    folder = tmp_path / ".penstock"
    with state.held(folder):
        with pytest.raises(ConfigError, match="still starting"):
            find_url(folder)
        state.write_url("nats://127.0.0.1:4999", "http://127.0.0.1:1", folder)
        assert find_url(folder) == ("nats://127.0.0.1:4999", "http://127.0.0.1:1")
        assert (folder / "nats-url").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="no 'penstock up' runs in this folder"):
        find_url(folder)


def test_an_address_left_behind_by_a_killed_up_is_not_believed(tmp_path) -> None:
    folder = tmp_path / ".penstock"
    with state.held(folder):
        pass
    state.write_url("nats://127.0.0.1:4999", "http://127.0.0.1:1", folder)
    with pytest.raises(ConfigError, match="start 'penstock up'"):
        find_url(folder)


def test_a_second_up_in_the_same_folder_is_refused(tmp_path) -> None:
    folder = tmp_path / ".penstock"
    with (
        state.held(folder),
        pytest.raises(state.AlreadyUp, match="already runs"),
        state.held(folder),
    ):
        pass


def test_run_folders_are_short_and_differ_by_folder(tmp_path) -> None:
    one, other = (run_folder(tmp_path / name) for name in ("a", "b" * 200))
    assert one != other
    assert len(other[-1]) < 20


def test_backoff_doubles_up_to_a_limit() -> None:
    assert [Backoff().pause_seconds(n) for n in (1, 2, 3, 50)] == [0.25, 0.5, 1.0, 15.0]


QUICK = Backoff(first_seconds=0.01)


def start(argv: list[str], log: Path | None = None) -> Child:
    return children.start(argv, name="child", log=log)


async def test_a_child_that_dies_is_started_again_and_that_is_told() -> None:
    told: list[str] = []
    child = Supervised(
        "child", lambda: start(SLEEPER), told.append, Path("child.log"), backoff=QUICK
    )
    keeping = asyncio.create_task(child.keep())
    first = await eventually(lambda: child.pid)
    assert child.child
    child.child.signal(signal.SIGKILL)
    await eventually(lambda: child.pid not in {None, first})
    assert told == ["child was ended by SIGKILL; see child.log; starting it again in 0.01 s"]
    await child.end(5.0, asyncio.Event())
    await asyncio.wait_for(keeping, 5)
    assert (child.pid, child.starts) == (None, 2)


async def test_a_child_that_cannot_start_is_tried_again_until_ended() -> None:
    told: list[str] = []

    def fail() -> Child:
        raise ChildFailed("no such thing\nmore about it")

    child = Supervised("child", fail, told.append, backoff=QUICK)
    keeping = asyncio.create_task(child.keep())
    await eventually(lambda: len(told) > 2)
    assert told[0].startswith("child no such thing; starting it again")
    await child.end(5.0, asyncio.Event())
    await asyncio.wait_for(keeping, 5)


async def test_a_pause_reaches_a_process_that_starts_and_each_that_follows_it(tmp_path) -> None:
    """The process blocks the signal until it can take it: none ends it, none is lost."""
    script = (
        "import signal, sys, time\n"
        "while signal.SIGUSR1 not in signal.sigpending(): time.sleep(0.01)\n"
        "print('paused', flush=True)\n"
    )
    log = tmp_path / "log"

    def begin() -> Child:
        return children.start(
            [sys.executable, "-S", "-c", script], name="child", log=log, held_back=PAUSING
        )

    child = Supervised("child", begin, lambda _: None, None)
    keeping = asyncio.create_task(child.keep())
    child.signal(signal.SIGUSR1)  # before there is a process
    await eventually(lambda: log.exists() and log.read_text() == "paused\n" * 2)
    await child.end(5.0, asyncio.Event())
    await asyncio.wait_for(keeping, 5)


async def test_ending_waits_for_the_grace_or_until_hurried(tmp_path) -> None:
    stubborn = [
        sys.executable,
        "-S",
        "-c",
        "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True)\n"
        "while True: signal.pause()",
    ]
    told: list[str] = []
    for grace, hurried, words in (
        (60.0, True, "child is killed"),
        (0.05, False, "child did not end within 0.05 s and is killed"),
    ):
        log = tmp_path / f"{hurried}.log"
        child = Supervised("child", lambda log=log: start(stubborn, log), told.append, None)
        keeping = asyncio.create_task(child.keep())
        await eventually(lambda log=log: log.exists() and log.read_text())  # it ignores TERM now
        hurry = asyncio.Event()
        ending = asyncio.create_task(child.end(grace, hurry))
        if hurried:
            hurry.set()
        await asyncio.wait_for(ending, 5)
        await asyncio.wait_for(keeping, 5)
        assert told.pop() == words


def test_lines_for_people_and_for_programs(capsys) -> None:
    event = HostLost(host="a", silent_seconds=7)
    people = Lines(check({"pools": {"reports": {}}}), as_json=False)
    people.report("hello")
    people.happened(event)
    hello, lost = capsys.readouterr().out.splitlines()
    assert hello.endswith(" hello")
    assert lost.endswith("host a HostLost: silent for 7 s")
    programs = Lines(check({"pools": {"reports": {}}}), as_json=True)
    programs.report("hello")
    programs.happened(event)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (said[0]["text"], said[1]["type"]) == ("hello", "HostLost")


def test_what_jobs_write_stands_below_the_live_table(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = tuple(LogLine(at=utc_now(), text=f"line {number}\nof a job") for number in range(20))
    chunk = LogChunk(
        job_id="j-1",
        attempt=1,
        function="shop.send",
        queue="mails",
        worker="w",
        host="h",
        number=1,
        lines=lines,
    )
    table = Table(check({"pools": {"reports": {}}}), "Penstock")
    try:
        table.wrote(chunk)
        table.report("starting")
    finally:
        with redirect_stdout(io.StringIO()) as output:
            table._live.console.file = output
            table.close()
    shown = output.getvalue()
    assert "shop.send j-1: line 19\\nof a job" in shown
    assert "line 3" not in shown


def test_lines_of_up_look_like_those_of_services(capsys) -> None:
    lines = Lines(check({"pools": {"reports": {}}}), as_json=False)
    lines.report("hello")
    lines.happened(HostLost(host="a", silent_seconds=7))
    pattern = r"\d\d:\d\d:\d\d\.\d{3} INFO    penstock\.(up|events)  .+"
    assert all(re.fullmatch(pattern, line) for line in capsys.readouterr().out.splitlines())


def test_another_port_than_the_console_s_is_stated_and_ends_with_the_setting(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        configured = check({"console": {"port": port}})
        chosen = own_console.placed(configured, tmp_path)
    used = chosen.console.port
    assert used != port
    warning = own_console.taken(configured, chosen)
    assert f"port {port} of the console is taken" in warning
    assert f"http://127.0.0.1:{used}" in warning
    handed_on = console_place.handed_on(configured, chosen)
    assert console_place.port(configured, handed_on) == used
    assert console_place.folder(configured, handed_on) == tmp_path / "console"
    # what the file says later is taken over by a reload
    edited = check({"console": {"port": 9480, "folder": "rows"}})
    assert console_place.port(edited, handed_on) == 9480
    assert console_place.folder(edited, handed_on) == Path("rows")


def test_a_port_that_is_free_is_the_one_of_the_settings(tmp_path) -> None:
    configured = check({"console": {"port": free_port()}})
    chosen = own_console.placed(configured, tmp_path)
    assert own_console.taken(configured, chosen) == ""
    assert console_place.port(configured, console_place.handed_on(configured, chosen)) == (
        configured.console.port
    )
