"""The outbox with real programs: those that live shortly, several at once, and the commands."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.shell import Shell
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.config import Settings, load
from penstock.jobs.outbox.store import Outbox
from penstock.runtime.broker import Broker

DISPATCH_ONE = """
from penstock.config import load
from penstock.jobs import SyncClient, job

@job(queue="work", name="outbox.one")
def one() -> None: ...

with SyncClient(load()) as client:
    print(client.dispatch(one()))
"""

SUBMITTED = """
from penstock.jobs import job

@job(queue="work", name="submitted.one")
def one() -> None: ...
"""


@pytest.fixture
def shell(tmp_path: Path, broker: Broker, settings: MakeSettings) -> Shell:
    made = settings()
    (tmp_path / "penstock.toml").write_text(
        f'prefix = "{made.prefix}"\n[nats]\nurl = "{made.nats.url}"\n'
        "request_timeout_seconds = 0.5\nconnect_timeout_seconds = 1\n"
        "[streams]\nevents_max_bytes = 16_000_000\n"
        '[dispatch]\nwhen_away = "outbox"\noutbox_file = "outbox/file"\n'
    )
    return Shell(tmp_path)


def settings_of(shell: Shell) -> Settings:
    return load(shell.folder / "penstock.toml", environment={})


def program(shell: Shell, close_seconds: float = 5.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DISPATCH_ONE],
        cwd=shell.folder,
        env={"PENSTOCK_DISPATCH__OUTBOX_CLOSE_SECONDS": str(close_seconds)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(*programs: subprocess.Popen[str]) -> tuple[list[str], str]:
    """The ids that they printed, and what they warned of."""
    outputs = [each.communicate(timeout=60) for each in programs]
    assert [each.returncode for each in programs] == [0] * len(programs), outputs
    return [out.strip() for out, _ in outputs], "".join(err for _, err in outputs)


async def dispatched(shell: Shell) -> list[str]:
    """Functions' job ids in the order in which the broker got them."""
    bus = await connect(settings_of(shell))
    try:
        subject = bus.subjects.events("job", "*", "JobDispatched")
        stored = await bus.history(bus.subjects.events_stream, subject)
        return [each.subject.split(".")[-2] for each in stored]
    finally:
        await bus.close()


async def test_programs_that_live_shortly_deliver_all_that_waits(
    shell: Shell, broker: Broker
) -> None:
    # given: the broker is away, and a program leaves its job in the outbox, saying so
    broker.kill()
    first, warned = ended(program(shell, close_seconds=0))
    assert "1 jobs stay in the outbox outbox/file" in warned
    # when: the broker is back, and programs come and go
    broker.start()
    second, silent = ended(program(shell))
    third, _ = ended(program(shell))
    # then: nothing is left, the order is kept
    assert silent == ""
    assert await dispatched(shell) == first + second + third
    assert shell.json("outbox", "ls") == []


async def test_several_programs_share_a_file_that_only_their_user_can_read(
    shell: Shell, broker: Broker
) -> None:
    broker.kill()
    ids, _ = ended(*[program(shell, close_seconds=0) for _ in range(4)])
    files = sorted((shell.folder / "outbox").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    broker.start()
    more, _ = ended(*[program(shell) for _ in range(2)])
    assert sorted(await dispatched(shell)) == sorted(ids + more)


def test_the_commands_show_and_send_what_waits(shell: Shell, broker: Broker) -> None:
    assert shell.call("outbox", "ls").stderr == "the outbox is empty\n"
    assert not (shell.folder / "outbox").exists()
    broker.kill()
    [job_id], _ = ended(program(shell, close_seconds=0))
    [row] = shell.json("outbox", "ls")
    assert (row["id"], row["function"], row["queue"]) == (job_id, "outbox.one", "work")
    shell.call("outbox", "flush", code=1)
    broker.start()
    assert shell.json("outbox", "flush") == {"sent": 1, "left": 0, "refused": 0}
    assert shell.text("outbox", "flush") == "0 jobs sent"
    assert [row["id"] for row in shell.json("job", "ls")] == [job_id]


async def test_submit_uses_the_outbox_and_says_where_the_job_is(
    shell: Shell, broker: Broker
) -> None:
    # given: no broker, and a module of jobs
    (shell.folder / "submitted.py").write_text(SUBMITTED)
    file = shell.folder / "penstock.toml"
    file.write_text(
        file.read_text() + 'outbox_close_seconds = 0\n[jobs]\nmodules = ["submitted"]\n'
    )
    broker.kill()
    # when: jobs are submitted, one of them waited for
    done = shell.call("job", "submit", "submitted.one")
    second = shell.json("job", "submit", "submitted.one")
    late = shell.call("job", "submit", "submitted.one", "--wait", "--timeout", "1s", code=1)
    # then: each is in the outbox, and the user reads where and how many
    first = done.stdout.strip()
    assert "in the outbox outbox/file, where 1 job waits" in done.stderr
    assert second == {"id": second["id"], "outbox": "outbox/file", "waiting": 2}
    assert "in the outbox outbox/file, where 3 jobs wait" in late.stderr.splitlines()[-1]
    waiting = [row["id"] for row in shell.json("outbox", "ls")]
    assert waiting[:2] == [first, second["id"]]
    # and the next that is submitted with a broker delivers all of them, in order
    broker.start()
    file.write_text(file.read_text().replace("close_seconds = 0", "close_seconds = 30"))
    last = shell.call("job", "submit", "submitted.one")
    assert last.stderr == ""
    assert await dispatched(shell) == [*waiting, last.stdout.strip()]
    assert shell.json("outbox", "ls") == []


def test_a_submitted_job_that_is_waited_for_runs_once_the_broker_is_back(
    shell: Shell, broker: Broker
) -> None:
    (shell.folder / "submitted.py").write_text(SUBMITTED)
    with (shell.folder / "penstock.toml").open("a") as file:
        file.write('[jobs]\nmodules = ["submitted"]\n[pools.reports]\nqueues = ["work"]\n')
    broker.kill()
    argv = shell.argv("job", "submit", "submitted.one", "--wait", "--timeout", "60s")
    with subprocess.Popen(
        argv, cwd=shell.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as submitting:
        assert submitting.stderr is not None
        while "in the outbox" not in submitting.stderr.readline():
            assert submitting.poll() is None
        broker.start()
        with shell.worker():
            printed, _ = submitting.communicate(timeout=60)
    assert submitting.returncode == 0
    assert "completed" in printed


async def test_an_entry_that_cannot_be_read_does_not_hold_up_the_others(
    shell: Shell, broker: Broker
) -> None:
    broker.kill()
    ended(program(shell, close_seconds=0))
    with sqlite3.connect(shell.folder / "outbox" / "file") as file:
        file.execute("UPDATE jobs SET event = ?", (b'{"type": "of a newer version"}',))
    file.close()
    broker.start()
    [after], warned = ended(program(shell))
    assert "stays in outbox/file: it cannot be read" in warned
    assert await dispatched(shell) == [after]
    [row] = shell.json("outbox", "ls")
    assert row["refused"].startswith("it cannot be read")


def test_a_file_of_an_older_version_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    before = sqlite3.connect(path)
    before.execute("PRAGMA journal_mode = WAL")
    before.execute("CREATE TABLE other (a)")
    before.commit()
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    opened = Outbox(str(path), 10)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    opened.close()
    before.close()
    assert modes == {"outbox": 0o600, "outbox-wal": 0o600, "outbox-shm": 0o600}


def test_an_outbox_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "outbox").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="outbox"):
        Outbox(str(tmp_path / "outbox"), 10)
