"""Kind `command`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from penstock.config.sources import SourceTable
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

DESCRIBE = "import json, os, sys; print(json.dumps({%s}))"


class FileSystem:
    """Figures in a file that `cat` prints."""

    queue, absent = "mail", "gone"
    counts_claims, knows_age = True, False

    def __init__(self, folder: Path) -> None:
        self._file, self._away = folder / "figures.json", folder / "away.json"
        self._waiting = self._claimed = 0
        self._write()

    def _write(self) -> None:
        figures = {"waiting": self._waiting, "claimed": self._claimed}
        self._file.write_text(json.dumps({self.queue: figures}))

    def open(self) -> QueueSource:
        return open_source("shop", SourceTable(kind="command", command=("cat", str(self._file))))

    async def put(self, count: int) -> None:
        self._waiting += count
        self._write()

    async def take(self, count: int) -> None:
        self._waiting, self._claimed = self._waiting - count, self._claimed + count
        self._write()

    async def end(self, count: int) -> None:
        self._claimed -= count
        self._write()

    async def stop(self) -> None:
        self._file.rename(self._away)

    async def start(self) -> None:
        self._away.rename(self._file)

    async def connections(self) -> int:
        return sum(child.name() == "cat" for child in psutil.Process().children())


class TestCommand(SourceContract):
    @pytest.fixture
    def system(self, tmp_path) -> FileSystem:
        return FileSystem(tmp_path)


def source_of(program: str, **more: object) -> QueueSource:
    table = SourceTable(kind="command", command=(sys.executable, "-c", program), **more)
    return open_source("shop", table)


async def test_the_program_reads_the_queues_and_gets_few_variables(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_NATS__PASSWORD", "hunter2")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    program = (
        "import json, os, sys\n"
        "queues = json.load(sys.stdin)\n"
        "assert 'PENSTOCK_NATS__PASSWORD' not in os.environ\n"
        "assert os.environ['PENSTOCK_SOURCE_SECRET'] == 's3cret'\n"
        "print(json.dumps({queue: {'waiting': len(queue)} for queue in queues}))\n"
    )
    source = source_of(program, secret_file=str(secret))
    looks = await source.look(["a:b", "mail"])
    assert looks == {"a:b": SourceLook(waiting=3), "mail": SourceLook(waiting=4)}


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("print('no json')", "expected JSON"),
        ("print([1])", "expected JSON"),
        ("print('[' * 100_000)", "expected JSON"),
        ("raise SystemExit('cannot reach it, password=hunter2')", "exited with 1: cannot reach"),
        ("print('x' * 3_000_000)", "more than 1000000 bytes"),
    ],
)  # fmt: skip
async def test_a_program_that_fails_is_an_error_without_secrets(program, text) -> None:
    with pytest.raises(SourceAway) as caught:
        await source_of(program).look(["mail"])
    assert text in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_program_that_is_not_there_is_an_error() -> None:
    source = open_source("shop", SourceTable(kind="command", command=("no-such-program-here",)))
    with pytest.raises(SourceAway, match="cannot run no-such-program-here"):
        await source.look(["mail"])


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({}, "named no figures"),
        ({"mail": {}}, "no figure 'waiting'"),
        ({"mail": {"waiting": "many"}}, "no number of waiting"),
        ({"mail": {"waiting": 1.5}}, "no number of waiting"),
        ({"mail": {"waiting": 1, "depth": 3}}, "found the figure 'depth'"),
        ({"mail": {"error": "no such queue"}}, "no such queue"),
    ],
)
async def test_figures_that_are_missing_or_odd_are_a_fault_of_the_queue(figures, text) -> None:
    [look] = (await source_of(f"print({json.dumps(figures)!r})").look(["mail"])).values()
    assert isinstance(look, SourceFault)
    assert text in look.text


async def test_what_a_cancelled_program_started_is_ended_with_it(tmp_path) -> None:
    pipe = tmp_path / "started"
    os.mkfifo(pipe)
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        f"open({str(pipe)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(3600)\n"
    )
    look = asyncio.ensure_future(source_of(program).look(["mail"]))
    pid = int(await asyncio.to_thread(pipe.read_text))
    look.cancel()
    await asyncio.wait([look])
    try:
        child = psutil.Process(pid)
        await asyncio.to_thread(child.wait, 60)
    except psutil.NoSuchProcess:
        pass


def test_a_program_that_reads_nothing_works_on_the_loop_of_the_service(tmp_path) -> None:
    system = FileSystem(tmp_path)

    async def look_often() -> set[int]:
        source = system.open()
        await system.put(3)
        looks = [(await source.look(["mail"]))["mail"] for _ in range(100)]
        return {look.waiting for look in looks}

    assert uvloop.run(look_often()) == {3}
