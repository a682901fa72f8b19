"""The strategies under `examples/`, really installed: found by entry point, and simulated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "examples" / "strategies"
Run = Callable[..., subprocess.CompletedProcess[str]]
PENSTOCK = "import sys; from penstock.cli.main import main; sys.exit(main())"
HOUR = 3600.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in an empty folder, with the package installed beside Penstock."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(SOURCE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-index", "--no-deps", "--no-build-isolation", "--target", folder / "site"]
    done = subprocess.run(
        [*pip, *alone, folder / "source"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_its_own_tests_pass(installed: Run) -> None:
    done = installed("-m", "pytest", "-q", "-p", "no:cacheprovider", "source/tests")
    assert done.returncode == 0, done.stdout


def test_settings_that_do_not_fit_are_refused(installed: Run, tmp_path: Path) -> None:
    def check(text: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "penstock.toml"
        path.write_text(f'[pools.mails]\nstrategy = "time_of_day"\n{text}\n')
        return installed("-c", PENSTOCK, "config", "check", "--config", str(path))

    assert check("").returncode == 0
    wrong = check('[pools.mails.options.time_of_day]\nfloors = { "7:30" = 2 }')
    assert wrong.returncode == 2
    assert "options.time_of_day: found floor '7:30', expected a time like 07:30" in wrong.stderr
    wrong = check("[pools.mails.options.budget_aware]\ntime_zone = 'Mars/Olympus'")
    assert "options.budget_aware: found time_zone 'Mars/Olympus'" in wrong.stderr
    wrong = check("[pools.mails.options.budget_aware]\nworker_hours = 3")
    assert "did you mean 'worker_hours_per_day'?" in wrong.stderr


def test_they_run_in_the_simulator_and_the_budget_holds(installed: Run, tmp_path: Path) -> None:
    """An hour on both sides of midnight, 3 workers' load, 1.5 worker-hours a day to spend."""
    trace = tmp_path / "days.csv"
    midnight = 1_760_918_400
    rows = [f"{midnight + 600 * row},120" for row in range(-6, 6)]  # a job each 5 s, of 15 s
    trace.write_text("\n".join(["timestamp,count", *rows]) + "\n")
    done = installed(
        *("-c", PENSTOCK, "simulate", str(trace), "--strategy", "budget_aware,time_of_day"),
        *("--json", "--seeds", "1", "--service", "lognormal:15,0.5", "--processes", "1"),
        *("--set", "options.budget_aware.worker_hours_per_day=1.5"),
        *("--set", "options.budget_aware.pace_hours=0.125"),
        *("--set", "options.time_of_day.floors={'00:00'=9}", "--set", "policies=[]"),
    )
    assert done.returncode == 0, done.stderr
    cost = {row["strategy"]: row["worker_seconds"] / HOUR for row in json.loads(done.stdout)}
    assert cost["time_of_day"] > 2 * 9 * 0.99
    assert 2.5 < cost["budget_aware"] < 3.1
