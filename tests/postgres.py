"""A PostgreSQL server of a test's own, on a Unix socket in a folder that is removed with it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER_USER = "postgres"
"""Runs the server where the tests run as root, which PostgreSQL refuses."""


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """Yields the environment for libpq, and ``DATABASE_URL``. Skips where none is installed."""
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("needs initdb and postgres of PostgreSQL on PATH")
    user = SERVER_USER if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    if user:
        shutil.chown(folder, user)
    try:
        data = str(folder / "data")
        owner = user or getpass.getuser()
        subprocess.run(
            ["initdb", "--no-sync", "--auth=trust", f"--username={owner}", "--pgdata", data],
            cwd=folder, user=user, check=True, capture_output=True,
        )  # fmt: skip
        server = ["pg_ctl", "--pgdata", data, "--wait", "--silent"]
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        subprocess.run(
            [*server, "--log", str(folder / "log"), "--options", options, "start"],
            cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield {
                "PGHOST": str(folder),
                "PGUSER": owner,
                "PGDATABASE": "postgres",
                "DATABASE_URL": f"postgresql:///postgres?host={folder}&user={owner}",
            }
        finally:
            subprocess.run(
                [*server, "--mode", "immediate", "stop"], cwd=folder, user=user, check=False
            )
    finally:
        shutil.rmtree(folder)
