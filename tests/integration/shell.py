"""`penstock` called as a shell would, in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.runtime import children
from penstock.runtime.children import Child


def shell_of(settings: Settings, folder: Path) -> Shell:
    """One that reaches what these settings name."""
    told = f'prefix = "{settings.prefix}"\n[nats]\nurl = "{settings.nats.url}"\n'
    (folder / "penstock.toml").write_text(told)
    return Shell(folder)


class Shell:
    """A folder with settings and jobs in it, where `penstock` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *arguments]

    def call(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.argv(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done

    def text(self, *arguments: str, code: int = 0) -> str:
        return self.call(*arguments, code=code).stdout.strip()

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.call("--json", *arguments, code=code).stdout)

    async def asked(self, *arguments: str, code: int = 0) -> str:
        """All that it says, while this loop goes on."""
        done = await asyncio.to_thread(self.call, *arguments, code=code)
        return (done.stdout + done.stderr).strip()

    async def asked_json(self, *arguments: str) -> Any:
        return await asyncio.to_thread(self.json, *arguments)

    def submit(self, *arguments: str) -> str:
        return self.text("job", "submit", *arguments)

    @contextmanager
    def worker(self) -> Iterator[Child]:
        log = self.folder / "worker.log"
        env = {"PYTHONPATH": os.pathsep.join(sys.path)}
        argv = self.argv("worker", "--pool", "reports")
        child = children.start(argv, name="worker", cwd=self.folder, log=log, env=env)
        try:
            yield child
        finally:
            child.end(10.0)
