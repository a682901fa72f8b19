"""How programs find their broker, and what they do without one: real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.up import state
from penstock.config import ConfigError
from penstock.pipeline.broker.link import Link
from penstock.pipeline.core.options import Reach
from penstock.runtime.local_broker import find_url

ASYNC_PROGRAM = """
import asyncio
from penstock.config import load
from penstock.jobs import Client

async def main() -> None:
    print("connecting", flush=True)
    async with Client.connect(load()):
        print("connected", flush=True)

asyncio.run(main())
"""
SYNC_PROGRAM = """
from penstock.config import load
from penstock.jobs import SyncClient

print("connecting", flush=True)
with SyncClient(load()):
    print("connected", flush=True)
"""
STUBBORN_PROGRAM = """
import asyncio
from contextlib import asynccontextmanager, suppress
from penstock.config import load
from penstock.jobs import SyncClient

@asynccontextmanager
async def connecting():
    print("connecting", flush=True)
    for _ in range(3):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(300)
    await asyncio.sleep(300)
    yield

with SyncClient(load(), connecting()):
    print("connected", flush=True)
"""
"""As nats-py does on Python 3.11, when an answer comes in the same turn of the loop."""
PROGRAMS = pytest.mark.parametrize("program", [ASYNC_PROGRAM, SYNC_PROGRAM], ids=["async", "sync"])
SETTINGS = 'prefix = "connecting"\n[streams]\nevents_max_bytes = 16_000_000\n'


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    # where the tests run in the background of a shell, SIGINT is ignored, and would be by the child
    interruptible = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    return subprocess.Popen(
        [sys.executable, "-c", interruptible + program],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[str], seconds: float = 20.0) -> tuple[str, str]:
    """All that it printed; a process that does not end is killed and fails the test."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


@PROGRAMS
def test_a_program_in_the_folder_of_penstock_up_finds_its_broker(
    program: str, tmp_path: Path, nats_url: str
) -> None:
    (tmp_path / "penstock.toml").write_text(SETTINGS)
    with state.held(tmp_path / ".penstock") as folder:
        state.write_url(nats_url, "", folder)
        out, err = ended(start(program, tmp_path))
    assert out.split() == ["connecting", "connected"], err


@PROGRAMS
def test_without_a_broker_a_program_ends_at_once_and_says_what_to_do(
    program: str, tmp_path: Path
) -> None:
    process = start(program, tmp_path)
    _, err = ended(process)
    assert process.returncode == 1
    assert "no broker is known" in err
    assert "PENSTOCK_NATS__URL" in err


@PROGRAMS
def test_a_broker_that_does_not_answer_ends_the_wait_when_the_settings_say(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[nats]\nurl = "nats://user:hidden@127.0.0.1:1"\nconnect_timeout_seconds = 0.3\n'
    )
    process = start(program, tmp_path)
    _, err = ended(process)
    assert process.returncode == 1
    assert "no NATS server answered at nats://***@127.0.0.1:1 within 0.3 s" in err
    assert "hidden" not in err


@pytest.mark.parametrize(
    "program",
    [ASYNC_PROGRAM, SYNC_PROGRAM, STUBBORN_PROGRAM],
    ids=["async", "sync", "drops cancellations"],
)
def test_ctrl_c_ends_a_program_that_waits_for_the_broker(program: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[nats]\nurl = "nats://127.0.0.1:1"\nconnect_timeout_seconds = 300\n'
    )
    process = start(program, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "connecting\n"
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_link_of_the_pipeline_without_a_server_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nats\.url is empty"), Link(Reach(servers=" , ")):
        pass


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_an_address_that_others_could_have_read_or_written_is_not_believed(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / ".penstock"
    with state.held(folder):
        state.write_url("nats://token@127.0.0.1:4999", "", folder)
        (folder / "nats-url").chmod(mode)
        with pytest.raises(ConfigError, match=f"mode {mode:o}") as refused:
            find_url(folder)
    assert "token" not in str(refused.value)


def test_an_address_behind_a_symbolic_link_is_not_believed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / ".penstock", tmp_path / "elsewhere"
    elsewhere.touch(mode=0o600)
    with state.held(folder):
        (folder / "nats-url").symlink_to(elsewhere)
        with pytest.raises(ConfigError, match="cannot be read"):
            find_url(folder)
