"""`penstock up` for real: broker, services and workers from one command; nothing left of them."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
from tests.integration.shell import Shell

from penstock.config import ConfigError
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.local_broker import find_url

JOBS = """
import time
from pathlib import Path
from penstock.jobs import job

@job(queue="reports")
def add(a: int, b: int = 0) -> int:
    print("adding", a, "and", b)
    return a + b

@job(queue="reports", schedule="0 0 1 1 *")
def tidy() -> None: ...

@job(queue="reports")
def hold(folder: str, seconds: float) -> None:
    Path(folder, "held").touch()
    time.sleep(seconds)
    Path(folder, "done").touch()
"""
CONFIG = """
[streams]
events_max_bytes = 16_000_000
[jobs]
modules = ["up_jobs"]
[host]
name = "test-host"
orphan_grace_seconds = 1
drain_seconds = 20
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
[pools.reports]
sla_seconds = 5
min_workers = 1
max_workers = 2
[schedules.yearly]
job = "up_jobs.add"
cron = "0 0 1 1 *"
arguments = { a = 1 }
"""
MARK = "TEST_OF_PENSTOCK_UP"


class Up:
    """A running `penstock up`, and all processes that descend from it."""

    def __init__(self, folder: Path, run_time: Path, *options: str) -> None:
        self.shell = Shell(folder)
        self.folder, self.log = folder, folder / "up.log"
        self._mark = uuid.uuid4().hex
        env = {MARK: self._mark, "XDG_RUNTIME_DIR": str(run_time)}
        argv = self.shell.argv("up", "--no-live", "--ephemeral", "--json", "--log-json", *options)
        self.child: Child = children.start(argv, name="up", cwd=folder, log=self.log, env=env)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 40.0) -> None:
        children.wait_until(self.child, lambda: bool(condition()), seconds, what)

    def until_ready(self) -> None:
        """Until commands can reach it."""
        self.until(self._reachable, "reachable")

    def _reachable(self) -> bool:
        with suppress(ConfigError):
            return bool(find_url(self.folder / ".penstock"))
        return False

    def told(self) -> list[str]:
        """What it printed about itself."""
        *lines, _unfinished = self.log.read_text().split("\n")
        objects = [json.loads(line) for line in lines if line.startswith("{")]
        return [each["text"] for each in objects if "text" in each and "logger" not in each]

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found

    def process_of(self, service: str) -> psutil.Process:
        [found] = [
            each for each in self.processes() if service in {each.name(), *each.cmdline()[-2:]}
        ]
        return found

    def has_ended(self, seconds: float) -> int:
        """Its exit code; fails when it runs on."""
        code = self.child.wait(seconds)
        assert code is not None, f"still running after {seconds} s: {self.told()}"
        return code

    def nothing_left(self, seconds: float = 5.0) -> bool:
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            psutil.wait_procs(left, 0.1)
        return not left


@contextmanager
def running_up(folder: Path, end_seconds: float, *options: str) -> Iterator[Up]:
    """`penstock up` in a folder with settings and jobs in it; nothing of it is left behind."""
    (folder / "run").mkdir(mode=0o700)
    up = Up(folder, folder / "run", *options)
    try:
        yield up
    finally:
        up.child.end(end_seconds)
        for process in up.processes():
            process.kill()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    (tmp_path / "up_jobs.py").write_text(JOBS)
    with running_up(tmp_path, 15.0) as running:
        yield running


def test_a_job_is_run_and_ctrl_c_leaves_nothing(up: Up) -> None:
    up.until_ready()
    done = up.shell.json("job", "submit", "up_jobs.add", "-a", "a=1", "-a", "b=2", "--wait")
    assert (done["job"]["state"], done["result"]) == ("completed", 3)

    [pool] = up.shell.json("pool", "ls")
    assert (pool["planned"], pool["started"], pool["ready"]) == (1, 1, 1)
    assert pool["reason"]
    [worker] = up.shell.json("worker", "ls")
    assert worker["host"] == "test-host"
    [decision, *_] = up.shell.json("decision", "ls", "reports")
    assert decision["reasons"][-1]["text"] in up.shell.text("decision", "explain", decision["id"])

    job_id = done["job"]["id"]
    [line] = up.shell.text("job", "logs", job_id, "--json", "--follow").splitlines()
    assert (json.loads(line)["text"], json.loads(line)["stream"]) == ("adding 1 and 2", "stdout")
    text = up.log.read_text()
    assert [line for line in text.splitlines() if not line.startswith("{")] == [], text
    lines = [json.loads(line) for line in text.splitlines()]
    [printed] = [line for line in lines if line.get("text") == "adding 1 and 2"]
    assert (printed["job_id"], printed["function"]) == (job_id, "up_jobs.add")

    up.until(lambda: len(up.shell.json("schedule", "ls")) == 2, "storing declared schedules")
    stored = {row["name"]: row["origin"] for row in up.shell.json("schedule", "ls")}
    assert stored == {"up_jobs-tidy": "code", "yearly": "settings"}
    assert up.shell.json("schedule", "diff") == []
    with (up.folder / "penstock.toml").open("a") as config:
        config.write('zone = "Europe/Berlin"\n')
    assert [row["drift"] for row in up.shell.json("schedule", "diff", code=1)] == ["changed"]
    assert [row["done"] for row in up.shell.json("schedule", "sync")] == [True]

    second = up.shell.call("up", code=2)
    assert "already runs" in second.stderr

    up.child.signal(signal.SIGINT)
    assert up.has_ended(60) == 0
    assert up.nothing_left()
    assert up.told()[-1] == "everything has ended"
    assert not any("starting it again" in text for text in up.told())
    gone = up.shell.call("queue", "ls", code=2)
    assert "no 'penstock up' runs in this folder" in gone.stderr


def _ready(up: Up) -> dict[str, int]:
    return {row["pool"]: row["ready"] for row in up.shell.json("pool", "ls")}


def test_edited_settings_are_reloaded_and_drift_is_shown(up: Up) -> None:
    up.until_ready()
    up.until(lambda: up.shell.json("pool", "ls")[0]["ready"] == 1, "a worker")
    up.until(lambda: len(up.shell.json("config", "diff")["services"]) == 5, "five services")
    pids = {service: up.process_of(service).pid for service in ("metrics", "decider", "executor")}
    toml = up.folder / "penstock.toml"
    later = 'kind = "group"\nqueues = ["reports", "later"]'
    good = CONFIG.replace("sla_seconds = 5", "sla_seconds = 4").replace("min_workers = 1", later)
    [before] = up.shell.json("worker", "ls")
    toml.write_text(good + "[pools.extra]\nmin_workers = 1\n")
    changes = up.shell.json("config", "diff", code=1)["differences"]
    assert {(row["service"], row["name"]) for row in changes} >= {
        ("decider", "pools.reports.sla_seconds"),
        ("executor", "pools.extra.min_workers"),
    }
    assert [row["sla_seconds"] for row in up.shell.json("pool", "ls")] == [5.0]
    health = up.shell.json("health", code=3)
    [settings] = [one for one in health["findings"] if one["component"] == "settings"]
    assert "penstock config reload" in settings["reasons"][0]

    answers = up.shell.json("config", "reload")
    assert {one["service"] for one in answers["services"]} == {
        "metrics", "decider", "orchestrator", "executor", "console"
    }  # fmt: skip
    assert up.shell.json("config", "diff")["differences"] == []
    up.until(lambda: _ready(up).get("extra"), "a worker of the new pool")
    call = ("up_jobs.add", "-a", "a=1", "--queue", "later", "--wait", "--timeout", "30")
    done = up.shell.json("job", "submit", *call)  # by a worker that knows the new queue
    assert done["job"]["state"] == "completed"
    assert before["worker"] not in {row["worker"] for row in up.shell.json("worker", "ls")}
    rows = {row["pool"]: row for row in up.shell.json("pool", "ls")}
    assert rows["reports"]["sla_seconds"] == 4.0
    assert {service: up.process_of(service).pid for service in pids} == pids
    up.shell.call("replay", "--processes", "1")  # its exit code is 0: equal, across the reload

    toml.write_text(good + "[pools.extra]\nmin_workers = 9\nmax_workers = 2\n")
    refused = up.shell.call("config", "reload", code=2)
    assert "min_workers 9 exceeds max_workers 2" in refused.stderr
    up.process_of("decider").send_signal(signal.SIGHUP)
    up.until(lambda: "not reloaded" in up.log.read_text(), "refusing")
    toml.write_text(good + "[pools.extra]\nmin_workers = 1\n")
    refused = [one for one in up.shell.json("config", "diff", code=1)["services"] if one["refused"]]
    assert [one["service"] for one in refused] == ["decider"]


def test_other_accounts_of_the_machine_cannot_use_the_broker(up: Up) -> None:
    up.until_ready()
    url, monitor_url = find_url(up.folder / ".penstock")
    token, _, place = url.removeprefix("nats://").rpartition("@")
    assert len(token) >= 32
    up.until(lambda: up.shell.json("pool", "ls")[0]["ready"] == 1, "a worker")
    for process in up.processes():
        assert token not in " ".join(process.cmdline())
    elsewhere = up.folder / "elsewhere"  # other accounts cannot read the token in .penstock
    elsewhere.mkdir()
    for guess in ("", f"{'x' * len(token)}@"):
        url = f"nats://{guess}{place}"
        refused = Shell(elsewhere).call("queue", "ls", "--nats-url", url, code=1)
        assert "refuses these credentials" in refused.stderr
    root = monitor_url.rpartition("/")[0]
    for page in ("", "/varz", "/connz", "/jsz", "/healthz"):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{root}{page}")
    with urlopen(f"{monitor_url}/healthz") as answer:
        assert answer.status == 200


def test_a_service_that_dies_is_started_again(up: Up) -> None:
    up.until_ready()
    up.until(lambda: len(up.processes()) > 6, "running a worker")
    for service in ("metrics", "executor", "nats-server"):
        up.process_of(service).kill()
        up.until(lambda name=service: f"{name} was ended by SIGKILL" in "".join(up.told()), "told")
    done = up.shell.json("job", "submit", "up_jobs.add", "-a", "a=1", "--wait", "--timeout", "30")
    assert done["job"]["state"] == "completed"
    up.child.signal(signal.SIGTERM)
    assert up.has_ended(60) == 0
    assert up.nothing_left()


def busy(up: Up, seconds: float) -> str:
    up.until_ready()
    arguments = ("-a", f"folder={up.folder}", "-a", f"seconds={seconds}")
    job_id = up.shell.submit("up_jobs.hold", *arguments)
    up.until((up.folder / "held").exists, "running the job")
    return job_id


def test_a_busy_worker_may_finish(up: Up) -> None:
    job_id = busy(up, 2.0)
    up.child.signal(signal.SIGINT)
    assert up.has_ended(60) == 0
    assert (up.folder / "done").exists()
    completed = [line for line in up.log.read_text().splitlines() if job_id in line]
    assert not any("JobReleased" in line for line in completed)
    assert up.nothing_left()


def test_a_second_ctrl_c_does_not_wait_for_a_busy_worker(up: Up) -> None:
    busy(up, 60.0)
    up.child.signal(signal.SIGINT)
    up.until(lambda: any("ending" in text for text in up.told()), "ending")
    up.child.signal(signal.SIGINT)
    assert up.has_ended(60) == 0
    assert not (up.folder / "done").exists()
    assert up.nothing_left()


def test_sigkill_leaves_nothing_either(up: Up) -> None:
    up.until_ready()
    assert up.shell.json("job", "submit", "up_jobs.add", "-a", "a=1", "--wait")
    up.child.signal(signal.SIGKILL)
    assert up.has_ended(5) == -signal.SIGKILL
    assert up.nothing_left(15.0)
    gone = up.shell.call("queue", "ls", code=2)
    assert "no 'penstock up' runs in this folder" in gone.stderr
