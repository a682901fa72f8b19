"""Celery itself, in an environment of its own: it needs other versions than the tests do."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_LOCK = Path(__file__).parents[1] / "benchmarks" / "peers" / "requirements-celery.lock"
_INSTALL_SECONDS = 300.0


def celery_programs() -> Path:
    """The folder of its programs; made once, from its lock file, below the tests' environment.

    Skips where it cannot be made, such as without a package index.
    """
    lock = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]
    home = Path(sys.prefix) / "peers" / f"celery-{lock}"
    home.parent.mkdir(exist_ok=True)
    with home.with_suffix(".making").open("w") as making:
        fcntl.flock(making, fcntl.LOCK_EX)  # of other test processes
        if not (home / ".ready").exists():
            _make(home)
    return home / "bin"


def _make(home: Path) -> None:
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    limits = ["--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=15"]
    try:
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [*pip, *limits, "--require-hashes", "--only-binary", ":all:", "-r", str(_LOCK)],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(home, ignore_errors=True)
        reason = (getattr(error, "stderr", None) or b"").decode("utf-8", "replace").strip()
        pytest.skip(f"cannot install Celery from {_LOCK.name}: {reason[-300:] or error}")
    (home / ".ready").touch()
