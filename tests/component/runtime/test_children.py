"""Children end when they are told to, and when nobody is left to tell them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.runtime.children import Child, ChildFailed, start, wait_until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def shell(script: str, log: Path | None = None) -> Child:
    return start(["sh", "-c", script], name="child", log=log, output=subprocess.DEVNULL)


def test_the_exit_code_is_that_of_the_process() -> None:
    assert shell("exit 7").wait(5) == 7
    assert start(["sleep", "60"]).end() == -signal.SIGTERM


def test_one_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = shell(STUBBORN, log)
    wait_until(child, lambda: log.read_text() == "ready\n", 5, "ready")
    assert child.wait(0) is None
    assert child.end(grace_seconds=0.1) == -signal.SIGKILL
    child.signal(signal.SIGTERM)  # and nothing happens: its number may be another's by now


def test_a_stopped_one_hears_the_request() -> None:
    child = start(["sleep", "60"])
    child.signal(signal.SIGSTOP)
    assert child.end(grace_seconds=5) == -signal.SIGTERM


async def test_several_can_wait_for_the_end() -> None:
    child = start(["sleep", "60"])
    waiting = [asyncio.create_task(child.ended()) for _ in range(2)]
    await asyncio.sleep(0)
    assert await child.stop() == -signal.SIGTERM
    assert await asyncio.gather(*waiting) == [-signal.SIGTERM] * 2


async def test_stop_kills_one_that_ignores_the_request(tmp_path: Path) -> None:
    child = shell(STUBBORN, tmp_path / "log")
    wait_until(child, lambda: (tmp_path / "log").read_text() == "ready\n", 5, "ready")
    assert await child.stop(grace_seconds=0.1) == -signal.SIGKILL


def test_it_ends_with_its_parent_however_that_ends() -> None:
    code = (
        "from penstock.runtime.children import start; import time;"
        "print(start(['sleep', '60']).pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout
    with parent.stdout as said:
        pid = int(said.readline())
    watched = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(5000), "the child lives on"
    os.close(watched)


def test_a_command_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(ChildFailed, match=r"cannot run /no/such/thing: .*No such file"):
        start(["/no/such/thing"])


def test_a_thread_may_not_start_one() -> None:
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            start(["sleep", "60"])
        except ChildFailed as error:
            failed.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(failed[0])


def test_one_that_ends_too_early_leaves_its_last_words(tmp_path: Path) -> None:
    child = shell("echo what went wrong; exit 3", tmp_path / "log")
    with pytest.raises(
        ChildFailed, match=r"(?s)child ended before it was ready .exit code 3.*wrong"
    ):
        wait_until(child, lambda: False, 5, "ready")


def test_one_that_takes_too_long_is_said_to(tmp_path: Path) -> None:
    child = start(["sleep", "60"])
    with pytest.raises(ChildFailed, match=r"sleep is not ready after 0\.05 s \(still running\)"):
        wait_until(child, lambda: False, 0.05, "ready")
    child.end()


def test_a_child_hears_ctrl_c_even_where_its_parent_was_told_not_to() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start(["sleep", "60"])
    finally:
        signal.signal(signal.SIGINT, before)
    child.signal(signal.SIGINT)
    assert child.wait(10) == -signal.SIGINT
