"""The benchmark of the console runs, at a thousandth of its size, and prints each row as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "console.py"
_MOST_SECONDS = 240


def measured(folder: Path, *rows: str) -> dict[str, Any]:
    """What it prints; it leaves nothing behind."""
    arguments = ["--only", *rows, "--scale", "0.001", "--repeat", "1", "--folder", str(folder)]
    run = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert list(folder.iterdir()) == []
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["machine"]["cores"] >= 1
    assert set(report["rows"]) == set(rows)
    return report["rows"]


def test_it_measures_the_projection_and_lists(tmp_path: Path) -> None:
    rows = measured(tmp_path, "projection", "list", "api")
    assert rows["projection"]["events_per_second"] > 0
    assert rows["list"]["filters"]["state, few"]["shown"] > 0
    assert rows["list"]["filters"]["text that none has"]["shown"] == 0
    assert rows["api"]["lists_per_second"] > 0


@pytest.mark.long
def test_it_measures_pages_alerts_and_bulk_actions(tmp_path: Path) -> None:
    rows = measured(
        *(tmp_path, "process", "steady", "beside"),
        *("detail", "alerts", "backtests", "bulk", "preview"),
    )
    assert rows["beside"]["hung"]["jobs_per_second"] > 0
    assert rows["bulk"]["retried_per_second"] > 0
    assert rows["bulk"]["refused"] == 0
    assert rows["preview"]["jobs"] > 0


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is missing; install Debian's package"
)
def test_it_measures_what_a_browser_shows(tmp_path: Path) -> None:
    rows = measured(tmp_path, "overview", "push")
    assert rows["overview"]["requests"] <= 8
    assert rows["push"]["shown_p50_ms"] < 10_000
