"""Child processes of the console: their limits, their environment, and that none is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.waiting import eventually

from penstock.config import Settings
from penstock.console.computing.commands import (
    BadComputation,
    Commands,
    ComputationFailed,
    Limits,
    TooManyComputations,
)

PLENTY = Limits(seconds=60.0)
ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
"""A program with a child of its own, which writes down both."""
Make = Callable[..., Commands]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(program: str, settings: Settings | None = None, at_once: int = 2) -> Commands:
        return Commands(settings or Settings(), tmp_path / "run", at_once, ("-c", program))

    return made


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and is not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def written(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


async def family(file: Path) -> list[int]:
    return await eventually(lambda: written(file), 30, "the program's start")


async def until_dead(pids: list[int]) -> None:
    await eventually(lambda: not any(map(lives, pids)), 10, f"the end of {pids}")


async def test_arguments_reach_the_command_as_they_are_and_its_output_comes_back(
    make: Make, tmp_path: Path
) -> None:
    arguments = ["$(touch made)", "; touch made", "a b", '--set=x=["y"]']
    assert json.loads(await make(ECHO).run(arguments, PLENTY)) == arguments
    assert not (tmp_path / "run" / "made").exists()


async def test_a_child_has_the_broker_and_a_key_to_read_with_and_nothing_else(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENCRYPTION__KEY_FILE", "/keys")
    monkeypatch.setenv("PENSTOCK_CONFIG", "/etc/penstock.toml")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.chdir(tmp_path)
    settings = Settings(prefix="shop")
    nats = replace(settings.nats, url="tls://n:4222", nkey_file="own.seed", ca_file="ca.pem")
    reading = replace(settings.console, reader_nkey_file="reader.seed")
    settings = replace(settings, nats=nats, console=reading)
    program = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.nice(0)]))"
    output = await make(program, settings).run([], PLENTY)
    environment, folder, niceness = json.loads(output)
    own = {name: value for name, value in environment.items() if name.startswith("PENSTOCK_")}
    assert own == {
        "PENSTOCK_PREFIX": "shop",
        "PENSTOCK_NATS__URL": "tls://n:4222",
        "PENSTOCK_NATS__NKEY_FILE": str(tmp_path / "reader.seed"),
        "PENSTOCK_NATS__CA_FILE": str(tmp_path / "ca.pem"),
    }
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert folder == str(tmp_path / "run")
    assert niceness == min(19, os.nice(0) + 10)


async def test_a_child_that_takes_too_long_is_killed(make: Make) -> None:
    commands = make("import time; time.sleep(600)")
    running = asyncio.create_task(commands.run([], Limits(seconds=1.0)))
    await eventually(lambda: commands.pids, 10, "the start")
    [pid] = commands.pids
    with pytest.raises(ComputationFailed, match="more than 1 s"):
        await running
    assert not lives(pid)
    assert commands.pids == set()


async def test_a_child_whose_answer_is_too_large_is_killed(make: Make) -> None:
    commands = make("while True: print('x' * 1000)")
    with pytest.raises(ComputationFailed, match="larger than 50,000 bytes"):
        await commands.run([], Limits(seconds=60, output_bytes=50_000))
    assert commands.pids == set()


async def test_a_child_that_needs_too_much_memory_ends_with_a_sentence(make: Make) -> None:
    limits = Limits(seconds=60, memory_bytes=256 * 1024**2)
    with pytest.raises(ComputationFailed, match="more memory than the console gives"):
        await make("x = bytearray(2**30)").run([], limits)


async def test_a_caller_that_leaves_takes_the_whole_process_group_along(
    make: Make, tmp_path: Path
) -> None:
    commands = make(FAMILY)
    running = asyncio.create_task(commands.run([str(tmp_path / "pids")], PLENTY))
    pids = await family(tmp_path / "pids")
    assert all(map(lives, pids))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_dead(pids)
    assert not commands.is_full
    assert commands.pids == set()


async def test_what_a_child_left_behind_is_killed_too(make: Make, tmp_path: Path) -> None:
    """It keeps the output open: the answer might go on."""
    commands = make(FAMILY.replace("time.sleep(600)\n", ""))
    running = asyncio.create_task(commands.run([str(tmp_path / "pids")], PLENTY))
    child, left_behind = await family(tmp_path / "pids")
    await until_dead([child])
    assert lives(left_behind)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until_dead([left_behind])


async def test_a_process_that_cannot_be_started_is_a_sentence(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = make(ECHO)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ComputationFailed, match="no process could be started: No such file"):
        await commands.run([], PLENTY)
    assert not commands.is_full


async def test_a_console_that_is_killed_leaves_no_computation_behind(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from penstock.config import Settings
from penstock.console.computing.commands import Commands, Limits
sleeps = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); \
time.sleep(600)"
commands = Commands(Settings(), pathlib.Path({str(tmp_path / "run")!r}), 1, ("-c", sleeps))
asyncio.run(commands.run([{str(tmp_path / "pid")!r}], Limits(seconds=600)))
"""
    console = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        [pid] = await family(tmp_path / "pid")
        assert lives(pid)
        console.send_signal(signal.SIGKILL)
        await console.wait()
        await until_dead([pid])
    finally:
        if console.returncode is None:
            console.kill()
        await console.wait()


async def test_no_more_run_at_once_than_may(make: Make, tmp_path: Path) -> None:
    commands = make(FAMILY, at_once=1)
    running = asyncio.create_task(commands.run([str(tmp_path / "pids")], PLENTY))
    await family(tmp_path / "pids")
    with pytest.raises(TooManyComputations):
        await commands.run([], PLENTY)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert json.loads(await make(ECHO, at_once=1).run([], PLENTY)) == []


@pytest.mark.parametrize(("code", "kind"), [(2, BadComputation), (1, ComputationFailed)])
async def test_the_reason_of_a_failure_is_the_command_s_own_line(
    make: Make, code: int, kind: type[Exception]
) -> None:
    program = f"""
import sys
print("WARNING something else", file=sys.stderr)
print("penstock: pools.reports: unknown strategy 'hyprid'; did you mean 'hybrid'?", file=sys.stderr)
sys.exit({code})
"""
    with pytest.raises(ComputationFailed, match=r"^pools\.reports: unknown strategy") as failure:
        await make(program).run([], PLENTY)
    assert type(failure.value) is kind


async def test_the_share_that_is_done_is_passed_on(make: Make) -> None:
    shares: list[float] = []
    program = (
        "import sys; print('reading 0.25', file=sys.stderr); print('took 30', file=sys.stderr)"
    )
    await make(program).run([], PLENTY, shares.append)
    assert set(shares) == {0.25}
