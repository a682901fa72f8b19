"""The example of a Spark pipeline as workflows ends by itself, as it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_the_example_of_workflows_runs_to_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "examples/workflows/run.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    clean, damaged = re.findall(r"^ load/clean +(\w+).*\n load/damaged +(\w+)", done.stdout, re.M)
    assert clean == ("completed", "skipped")
    assert damaged == ("skipped", "completed")
    assert "status     stage=2026-11-21 is damaged: 334 of 1000 rows" in done.stdout
    assert "accept-2026-11-21  * received   signal" in done.stdout
    assert 'result     {"rows":1646,"turnover":{"DE":' in done.stdout
