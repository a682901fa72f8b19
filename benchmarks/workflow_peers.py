"""Other engines of durable workflows, each in its own environment. See ``peers/*_flows.py``."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from peer_parts import APPS, environment

_MOST_SECONDS = 300
_POSTGRES = "PostgreSQL's programs are not installed"


def peers(
    names: Sequence[str], cache: Path, scale: float
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What measures each of them.

    Args:
        names: ``dbos-sqlite``, ``dbos-postgres``.
        scale: as that of our own figures.
    """
    for name in names:
        engine, _, database = name.partition("-")
        yield name, partial(_measure, engine, database, cache, scale)


def _measure(engine: str, database: str, cache: Path, scale: float) -> dict[str, Any]:
    if database == "postgres" and _postgres_programs() is None:
        return {"skipped": _POSTGRES}
    load = round(os.getloadavg()[0], 2)
    python = environment(cache, engine) / "python"
    with _database(database) as url, tempfile.TemporaryDirectory() as folder:
        measuring = subprocess.Popen(
            [str(python), str(APPS / f"{engine}_flows.py"), str(scale)],
            env={**os.environ, "FLOWS_DATABASE": url},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # it starts workers, which end with it
        )
        try:
            output, errors = measuring.communicate(timeout=_MOST_SECONDS)
        finally:
            if measuring.poll() is None:
                os.killpg(measuring.pid, signal.SIGKILL)
                measuring.wait()
    if measuring.returncode:
        return {"failed": errors.decode()[-1_000:], "load": load}
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return {**figures, "load": load}


# --- databases ------------------------------------------------------------------------------------
@contextmanager
def _database(kind: str) -> Iterator[str]:
    if kind == "postgres":
        with _postgres() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/flows.sqlite"


def _postgres_programs() -> Path | None:
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)  # Debian's


@contextmanager
def _postgres() -> Iterator[str]:
    """A server on a Unix socket, as it comes: each commit is synced."""
    programs = _postgres_programs()
    assert programs is not None
    user = "postgres" if os.getuid() == 0 else None
    owner, folder = user or getpass.getuser(), Path(tempfile.mkdtemp(prefix="flows-"))
    if user:
        shutil.chown(folder, user)
    control = [str(programs / "pg_ctl"), "--pgdata", str(folder / "data"), "--wait", "--silent"]
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"
    try:
        subprocess.run(
            [str(programs / "initdb"), "--auth=trust", f"--username={owner}",
             "--pgdata", str(folder / "data")],
            cwd=folder, user=user, check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            [*control, "--log", str(folder / "log"), "--options", options, "start"],
            cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield f"postgresql://{owner}@/postgres?host={folder}"
        finally:
            subprocess.run(
                [*control, "--mode", "immediate", "stop"], cwd=folder, user=user, check=False
            )
    finally:
        shutil.rmtree(folder)
