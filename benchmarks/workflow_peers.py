"""Other engines of durable workflows, each in its own environment. See ``peers/*_flows.py``."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from peer_parts import APPS, environment

_MOST_SECONDS = 300
_POSTGRES = "PostgreSQL's programs are not installed"
_RESTATE = "@restatedev/restate-server-linux-x64", "1.7.12"
_UNOBTAINABLE = {
    "absurd": "its package holds no schema: its installer reads that from a source repository",
    "temporal": "its server is in no package registry",
}


def peers(
    names: Sequence[str], cache: Path, scale: float
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What measures each of them.

    Args:
        names: ``dbos-sqlite``, ``dbos-postgres``, ``restate``, ``prefect-sqlite``; ``absurd`` and
            ``temporal`` give the reason why they are not measured.
        scale: as that of our own figures.
    """
    for name in names:
        engine, _, database = name.partition("-")
        yield name, partial(_measure, engine, database, cache, scale)


def _measure(engine: str, database: str, cache: Path, scale: float) -> dict[str, Any]:
    if reason := _UNOBTAINABLE.get(engine):
        return {"skipped": reason}
    if engine == "restate" and shutil.which("npm") is None:
        return {"skipped": "npm, which its server comes by, is not installed"}
    if database == "postgres" and _postgres_programs() is None:
        return {"skipped": _POSTGRES}
    load = round(os.getloadavg()[0], 2)
    command = [str(environment(cache, engine) / "python"), str(APPS / f"{engine}_flows.py")]
    with _database(database) as url, tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        env = {**os.environ, "FLOWS_DATABASE": url, **_server(engine, cache)}
        with output.open("wb") as out, errors.open("wb") as err:  # its servers may outlive it
            measuring = subprocess.Popen(
                [*command, str(scale)],
                env=env,
                cwd=folder,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            with suppress(subprocess.TimeoutExpired):
                measuring.wait(_MOST_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(measuring.pid, signal.SIGKILL)
            measuring.wait()
        lines = output.read_text().splitlines()
        if measuring.returncode or not lines:
            return {"failed": errors.read_text()[-1_000:], "load": load}
    figures: dict[str, Any] = json.loads(lines[-1])
    return {**figures, "load": load}


def _server(engine: str, cache: Path) -> dict[str, str]:
    """Where the server's program is, of an engine that has one; fetched at first use."""
    if engine != "restate":
        return {}
    package, version = _RESTATE
    home = cache / f"restate-{version}"
    program = home / "node_modules" / package / "bin" / "restate-server"
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(
            [*command, "--prefix", str(home), f"{package}@{version}"], check=True, stdout=sys.stderr
        )
    return {"FLOWS_SERVER": str(program)}


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
