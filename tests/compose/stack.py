"""The stack of docker-compose.yml, as the tests start it, hurt it and take it down."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.cli.deploy.keys import write
from penstock.config import Settings
from penstock.config.load import check
from penstock.runtime.paths import free_port

ROOT = Path(__file__).parents[2]
_HERE = Path(__file__).parent
EXECUTOR_CPUS, EXECUTOR_MEMORY_MB = 1.5, 1500
"""Not what the machine has, so that it is seen who looks at the container's own limits."""
HOSTS = 3
OURS = ("executor", "decider-a", "decider-b", "metrics", "orchestrator")
SPARK = ("spark-master", "spark-worker", "spark-connect")
PROFILES = ("observability", "demo", "tools")
_FIRST = ("nats", "orchestrator", "metrics", "executor", *SPARK)
_NOT_ROOT = 12345
"""Not what .env says, so that it is seen who heeds it."""
_HOST_NAME_LETTERS = 12
_SLOW_SECONDS, _READY_SECONDS = 900, 180


class Stack:
    """One project of Compose, with keys, port and folders of its own.

    Args:
        compose: how Compose is called. folder: for keys and what jobs tell; the owner's only.
        otlp: where containers send their traces.
    """

    def __init__(self, compose: Sequence[str], folder: Path, otlp: str) -> None:
        self._compose = [*compose, "-f", "docker-compose.yml", "-f", "tests/compose/override.yml"]
        self.project = f"penstock-test-{os.getpid()}"
        self.witness = folder / "witness"
        self._secrets, self._port = folder / "secrets", free_port()
        self.prometheus_port = free_port()
        self.uid = _NOT_ROOT if os.getuid() == 0 else os.getuid()
        self._environment = {
            "COMPOSE_PROJECT_NAME": self.project,
            "PENSTOCK_UID": str(self.uid),
            "PENSTOCK_SECRETS": str(self._secrets),
            "PENSTOCK_JOBS": str(ROOT),
            "PENSTOCK_SETTINGS": str(_HERE / "penstock.toml"),
            "NATS_PORT": str(self._port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "OTLP_ENDPOINT": otlp,
            "WITNESS": str(self.witness),
            "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0"),
            "EXECUTOR_CPUS": str(EXECUTOR_CPUS),
            "EXECUTOR_MEMORY": f"{EXECUTOR_MEMORY_MB}m",
        }

    def prepare(self) -> None:
        """Makes keys, and the folder that jobs write to."""
        self.witness.mkdir()
        self.witness.chmod(0o777)
        names = ("nats", "localhost", "127.0.0.1")
        made = write(self._secrets, "penstock", names, datetime.now(UTC), 2)
        if os.getuid() == 0:
            for path in {*made, *(path.parent for path in made)}:
                os.chown(path, self.uid, self.uid)

    def compose(self, *arguments: str) -> str:
        """What it printed. Raises AssertionError with its last words when it fails."""
        return _output([*self._compose, *arguments], self._environment)

    def up(self) -> None:
        """Starts all of it, deciders last, so that workers are spread from the beginning."""
        scaled = ("up", "-d", "--scale", f"executor={HOSTS}")
        self.compose(*scaled, *_FIRST)
        deadline = time.monotonic() + _READY_SECONDS
        while sum(map(self.healthy, self.containers("executor"))) < HOSTS:
            assert time.monotonic() < deadline, f"executors are not healthy\n{self.logs()[-3000:]}"
            time.sleep(0.5)
        self.compose(*scaled)

    def healthy(self, container: str) -> bool:
        return bool(self.inspect(container)["State"]["Health"]["Status"] == "healthy")

    def containers(self, service: str) -> list[str]:
        """Ids of those that run."""
        found = self.compose("ps", "-q", service).split()
        return [each for each in found if self.inspect(each)["State"]["Running"]]

    def inspect(self, container: str) -> Any:
        return json.loads(docker("inspect", container))[0]

    def settings(self, role: str) -> Settings:
        """As somebody outside the containers has them."""
        keys = self._secrets / role
        return check(
            {
                "nats": {
                    "url": f"nats://127.0.0.1:{self._port}",
                    "nkey_file": f"{keys}/nkey.seed",
                    "ca_file": f"{keys}/ca.pem",
                    "request_timeout_seconds": 2,
                }
            }
        )

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail=60")

    def down(self) -> None:
        profiles = [word for name in PROFILES for word in ("--profile", name)]
        self.compose(*profiles, "down", "--volumes", "--remove-orphans", "--timeout", "5")


def pinned(name: str) -> str:
    """What .env says."""
    text = (ROOT / ".env").read_text("utf-8")
    return next(
        line.removeprefix(f"{name}=") for line in text.splitlines() if line.startswith(f"{name}=")
    )


def docker(*arguments: str) -> str:
    """What it printed. Raises AssertionError with its last words when it fails."""
    return _output(["docker", *arguments], {})


async def docker_soon(*arguments: str) -> str:
    """The same, beside everything else."""
    return await asyncio.to_thread(docker, *arguments)


def host_of(container: str) -> str:
    """The name that an executor in it gives its host."""
    return container[:_HOST_NAME_LETTERS]


def _output(command: Sequence[str], more: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SLOW_SECONDS,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}{done.stdout[-2000:]}"
    return done.stdout
