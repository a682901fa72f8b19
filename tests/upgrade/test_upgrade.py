"""An installation with living jobs, made by the code of an earlier commit, is taken over whole.

`make upgrade-test` runs this; it needs the repository's history.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually

ROOT, HERE = Path(__file__).resolve().parents[2], Path(__file__).parent
BEFORE = "6d6039450466bd7340a9b98174c9fd9c97954a6a"
"""The last commit whose event log is discarded by the broker, and whose broker has one account."""
ASKED = "UPGRADE_TEST"
CONFIG = """
[streams]
events_max_bytes = 32_000_000
[jobs]
modules = ["upgrade_jobs"]
[host]
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
drain_seconds = 2
[http]
address = ""
[pools.work]
min_workers = 1
max_workers = 2
[pools.held]
min_workers = 2
max_workers = 2
[pools.paused]
min_workers = 1
max_workers = 1
"""

pytestmark = pytest.mark.skipif(
    os.environ.get(ASKED) != "1", reason="takes minutes and the history: make upgrade-test"
)


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they were at ``BEFORE``."""
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "before.tar"
    with archive.open("wb") as file:
        made = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, stdout=file, check=False)
    if made.returncode:
        pytest.skip(f"the history lacks commit {BEFORE[:7]}")
    shutil.unpack_archive(archive, folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    shutil.copy(HERE / "upgrade_jobs.py", tmp_path)
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path


@pytest.mark.parametrize("last_signal", [signal.SIGTERM, signal.SIGKILL])
def test_living_jobs_of_the_version_before_end_once_each(
    old_code: Path, project: Path, last_signal: signal.Signals
) -> None:
    diary = project / "diary"
    with _up(project, old_code) as running:
        before = _run(project, HERE / "before.py", str(diary), code=old_code)
        assert Path(before["code"]).is_relative_to(old_code)
        _end(running, last_signal)

    ids = before["ids"]
    (project / "mended").touch()
    (project / "gate").touch()
    with _up(project):
        states = _run(project, HERE / "after.py", json.dumps(ids))

    ended = {name: set(states[name]) for name in ids if name not in ("next year", "batch", "graph")}
    assert ended == {name: {"completed"} for name in ended}
    assert states["next year"] == ["scheduled"]
    assert (states["batch"], states["members"]) == (["completed"], ["20"])
    assert states["graph"] == ["completed"]
    lines = Counter(diary.read_text().splitlines())
    ticks = lines.pop("tick")
    assert ticks >= 2
    assert lines.pop("batch: 20") == 1
    wanted = ["completed20", "dead3", "retrying5", "delayed10", "paused20", "running2", "member20"]
    expected = {
        f"{name.rstrip('0123456789')}{number}": 1
        for name in wanted
        for number in range(int(name.lstrip("abcdefghijklmnopqrstuvwxyz")))
    }
    assert dict(lines) == {**expected, "graph": 1}


# --- processes ----------------------------------------------------------------------------------
def _environment(project: Path, code: Path | None) -> dict[str, str]:
    """Of a process that uses the packages below ``code``; None: those that are installed."""
    sources = [str(path) for path in sorted(code.glob("**/src"))] if code else []
    url = project / ".penstock" / "nats-url"
    known = {"PENSTOCK_NATS__URL": url.read_text().partition("\n")[0]} if url.exists() else {}
    return {
        **os.environ,
        **known,
        "PYTHONPATH": os.pathsep.join([*sources, str(project), str(ROOT)]),
        "XDG_RUNTIME_DIR": str(project / "run"),
    }


def _run(project: Path, program: Path, *arguments: str, code: Path | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=project,
        env=_environment(project, code),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    log = (project / "up.log").read_text()[-4000:]
    assert done.returncode == 0, f"{done.stderr}\n--- penstock up:\n{log}"
    return json.loads(done.stdout)


@contextmanager
def _up(project: Path, code: Path | None = None) -> Iterator[psutil.Popen]:
    environment = _environment(project, code)
    environment.pop("PENSTOCK_NATS__URL", None)
    (project / ".penstock" / "nats-url").unlink(missing_ok=True)
    with (project / "up.log").open("ab") as log:
        running = psutil.Popen(
            [sys.executable, "-m", "penstock.cli.main", "up", "--no-live"],
            cwd=project,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        asyncio.run(eventually((project / ".penstock" / "nats-url").exists, 60))
        yield running
    finally:
        _end(running, signal.SIGTERM)


def _end(running: psutil.Popen, number: signal.Signals) -> None:
    """Ends it, and after a SIGKILL all that descends from it, at once."""
    family = [running, *running.children(recursive=True)] if running.is_running() else []
    for process in family if number is signal.SIGKILL else family[:1]:
        process.send_signal(number)
    _, left = psutil.wait_procs(family, timeout=60)
    for process in left:
        process.kill()
    assert not left or number is signal.SIGKILL, left
