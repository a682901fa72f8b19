"""`penstock up --reload`: saved code runs; code that cannot be imported leaves the old one."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.test_up import CONFIG, JOBS, Up, running_up


def _sum(up: Up) -> int:
    by_name = ("--by-name", "--queue", "reports", "-a", "a=1", "--wait")
    done = up.shell.json("job", "submit", "up_jobs.add", *by_name)
    return int(done["result"])


def _cron(up: Up, schedule: str) -> str:
    rows = up.shell.json("schedule", "ls")
    return next((str(row["cron"]) for row in rows if row["name"] == schedule), "")


def _until_reported(up: Up, text: str, count: int = 1) -> None:
    up.until(lambda: sum(text in line for line in up.told()) >= count, text, 60.0)


def test_saved_code_runs_and_broken_code_does_not(tmp_path: Path) -> None:
    module = tmp_path / "up_jobs.py"
    module.write_text(JOBS)
    (tmp_path / "penstock.toml").write_text(CONFIG)
    with running_up(tmp_path, 15.0, "--reload") as up:
        up.until_ready()
        _until_reported(up, "watching for changes")
        assert _sum(up) == 1
        changed = JOBS.replace("return a + b", "return a + b + 100")
        module.write_text(changed.replace("0 0 1 1 *", "0 0 2 1 *"))
        _until_reported(up, "the job code is reloaded")
        assert _sum(up) == 101
        up.until(lambda: _cron(up, "up_jobs-tidy") == "0 0 2 1 *", "storing the changed schedule")
        module.write_text("this is no Python")
        _until_reported(up, "not reloaded, the old workers go on: up_jobs: SyntaxError")
        assert _sum(up) == 101
        up.child.signal(signal.SIGHUP)
        _until_reported(up, "not reloaded, the old workers go on: up_jobs: SyntaxError", 2)
        module.write_text(JOBS.replace("return a + b", "return a + b + 200"))
        _until_reported(up, "the job code is reloaded", 2)
        assert _sum(up) == 201
        up.child.signal(signal.SIGINT)
        assert up.has_ended(30.0) == 0
