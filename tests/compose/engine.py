"""A Docker engine to test with: the machine's own, or a stand-in that is started for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STAND_IN = Path(__file__).parents[3] / "shared/tools"
_START_SECONDS = 300


class NoEngine(Exception):
    """Why there is none."""


@contextmanager
def engine(folder: Path) -> Iterator[list[str]]:
    """How Compose is called. A stand-in engine keeps its state in ``folder`` and is ended.

    Raises:
        NoEngine: none answers and none can be started.
    """
    if _answers():
        yield compose()
        return
    up = _STAND_IN / "docker-up.sh"
    if not up.is_file():
        raise NoEngine("no Docker engine answers (`docker info`)")
    if os.getuid() != 0:
        raise NoEngine("no Docker engine answers, and only root can start a stand-in")
    try:
        _start(up, folder)
        yield compose()
    finally:
        subprocess.run([_STAND_IN / "docker-down.sh", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _start(up: Path, folder: Path) -> None:
    started = subprocess.run(
        [up, folder], capture_output=True, text=True, check=False, timeout=_START_SECONDS
    )
    if started.returncode:
        raise NoEngine(f"the stand-in engine does not start: {started.stderr.strip()[-300:]}")


def compose() -> list[str]:
    """Compose 2 where it is, else docker-compose. Raises NoEngine."""
    for command in (["docker", "compose"], ["docker-compose"]):
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*command, "version"], check=True, capture_output=True)
            return command
    raise NoEngine("a Docker engine, but neither Compose 2 nor docker-compose")


def _answers() -> bool:
    with suppress(OSError):
        return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    return False
