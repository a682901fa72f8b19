"""The commands against a real broker, with a real worker started by `penstock worker`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.shell import Shell
from tests.making import MakeSettings

from penstock.runtime import children

JOBS = """
import time
from datetime import date
from penstock.jobs import Context, job

@job(queue="reports")
def add(a: int, b: int = 0) -> int:
    return a + b

@job(queue="reports", tries=1)
def fail(text: str) -> None:
    raise ValueError(text)

@job(queue="reports")
def wait_for_cancel(context: Context) -> None:
    while not context.cancelled:
        time.sleep(0.01)
"""
CONFIG = """
prefix = "{prefix}"
[nats]
url = "{url}"
[streams]
events_max_bytes = 16_000_000
[jobs]
modules = ["cli_jobs"]
[host]
run_dir = "{run_dir}"
[pools.reports]
[pools.mails]
"""


@pytest.fixture
def shell(tmp_path: Path, settings: MakeSettings) -> Shell:
    made = settings()
    config = CONFIG.format(prefix=made.prefix, url=made.nats.url, run_dir=made.host.run_dir)
    (tmp_path / "penstock.toml").write_text(config)
    (tmp_path / "cli_jobs.py").write_text(JOBS)
    return Shell(tmp_path)


def states(shell: Shell) -> dict[str, str]:
    return {row["id"]: row["state"] for row in shell.json("job", "ls")}


def test_jobs_without_a_worker_wait_are_seen_and_can_be_cancelled(shell: Shell) -> None:
    first = shell.submit("cli_jobs.add", "--arg", "a=1")
    later = shell.submit("cli_jobs.add", "--arg", "a=2", "--delay", "1h")
    assert states(shell) == {first: "waiting", later: "scheduled"}
    rows = {row["queue"]: row for row in shell.json("queue", "ls")}
    assert (rows["reports"]["delayed"], rows["mails"]["waiting"]) == (1, 0)

    assert (
        shell.text("job", "cancel", later, "--reason", "not wanted") == f"job {later} is cancelled"
    )
    assert "not wanted" in shell.text("job", "show", later)
    again = shell.call("job", "cancel", later)
    assert again.stdout.strip() == f"job {later} is cancelled"
    assert states(shell) == {first: "waiting", later: "cancelled"}


def test_what_is_not_there_is_said(shell: Shell) -> None:
    assert shell.call("job", "ls").stderr == "no matching jobs\n"
    assert "'penstock dead ls' lists dead ones" in shell.call("job", "ls", "--state", "dead").stderr
    assert shell.json("job", "ls") == []
    assert "no decision changed anything" in shell.call("decision", "ls").stderr
    assert "no worker reports" in shell.call("worker", "ls").stderr
    assert "no such event" in shell.call("events", "tail", "--no-follow").stderr
    assert "no dead letters match" in shell.call("dead", "ls").stderr
    assert "0 dead letters match" in shell.text("dead", "retry", "--all")
    assert shell.json("pool", "ls")[0]["state"] == "unknown"
    missing = shell.call("job", "show", "0193a000-0000-7000-8000-000000000000", code=1)
    assert missing.stderr.startswith("penstock: no job of id")
    unknown = shell.call("decision", "explain", "reports", code=1)
    assert "see 'decision ls'" in unknown.stderr
    for verb in ("pause", "resume"):
        mistyped = shell.call("queue", verb, "nope", code=2)
        assert "no pool serves queue 'nope'" in mistyped.stderr


def test_a_worker_without_an_executor_runs_jobs(shell: Shell) -> None:
    with shell.worker() as worker:
        done = shell.json("job", "submit", "cli_jobs.add", "-a", "a=1", "-a", "b=2", "--wait")
        assert (done["job"]["state"], done["result"]) == ("completed", 3)
        assert [event["type"] for event in done["timeline"]] == [
            "JobDispatched",
            "JobStarted",
            "JobCompleted",
        ]
        [row] = shell.json("worker", "ls")
        assert (row["pool"], row["pid"]) == ("reports", worker.pid)

        worker.signal(signal.SIGINT)
        assert worker.wait(15) is not None


def test_a_dead_job_tells_why_and_can_be_run_again(shell: Shell) -> None:
    with shell.worker():
        failed = shell.call(
            "job", "submit", "cli_jobs.fail", "--arg", "text=\x1b[31mno luck", "--wait", code=1
        )
        assert "ValueError" in failed.stdout
        assert "\x1b" not in failed.stdout
        assert "ended dead" in failed.stderr
        [dead] = shell.json("job", "ls", "--state", "dead")

        [letter] = shell.json("dead", "ls", "--error", "ValueError", "--queue", "reports")
        [group] = shell.json("dead", "groups")
        assert (letter["id"], group["count"]) == (dead["id"], 1)
        assert letter["fingerprint"] == group["fingerprint"]
        assert "no luck" in shell.text("dead", "show", dead["id"])

        every = ("dead", "retry", "--all", "--fingerprint", group["fingerprint"])
        assert shell.json(*every, "--dry-run") == {"fit": 1, "done": 0, "failed": []}
        assert "add --yes" in shell.call(*every, code=2).stderr
        changed = ("--function", "cli_jobs.fail", "--arg", "text=", "--yes", "--reason", "fixed")
        assert shell.json(*every, *changed) == {"fit": 1, "done": 1, "failed": []}
        told = shell.json("job", "show", dead["id"])
        revived = [event for event in told["timeline"] if event["type"] == "JobRevived"]
        assert [(event["changed"], event["reason"]) for event in revived] == [(True, "fixed")]
        assert shell.call("job", "retry", dead["id"], "--arg", "test=", code=2)


def test_a_running_job_is_cancelled(shell: Shell) -> None:
    with shell.worker():
        job_id = shell.submit("cli_jobs.wait_for_cancel")
        tail = shell.call("events", "tail", "--name", "JobStarted", "--since", "1m", "--limit", "1")
        assert job_id in tail.stdout
        shell.text("job", "cancel", job_id)
        assert states(shell) == {job_id: "cancelled"}


def test_events_as_raw_json_one_a_line(shell: Shell) -> None:
    ids = [shell.submit("cli_jobs.add", "--arg", f"a={n}") for n in range(3)]
    tail = ("events", "tail", "--noun", "job", "--no-follow")
    told = [json.loads(line) for line in shell.text(*tail, "--json").splitlines()]
    assert [(event["type"], event["job_id"]) for event in told] == [
        ("JobDispatched", job_id) for job_id in ids
    ]
    one = shell.text(*tail, "--key", ids[1]).splitlines()
    assert len(one) == 1
    assert shell.text(*tail, "--since", "1h", "--limit", "2").count("JobDispatched") == 2


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    for n in range(3):
        shell.submit("cli_jobs.add", "--arg", f"a={n}")
    argv = shell.argv("events", "tail", "--since", "1h")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        argv, cwd=shell.folder, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_is_the_usual_end_of_a_tail(shell: Shell) -> None:
    log = shell.folder / "out.log"
    shell.submit("cli_jobs.add", "--arg", "a=1")
    child = children.start(shell.argv("events", "tail", "--since", "1h"), cwd=shell.folder, log=log)
    children.wait_until(child, lambda: "JobDispatched" in log.read_text(), 15, "tailing")
    child.signal(signal.SIGINT)
    assert child.wait(10) == 0
    child.end()
    assert "Traceback" not in log.read_text()
