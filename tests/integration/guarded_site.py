"""All services as processes over a guarded broker, each with the key of its role."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.integration.guarded import GuardedBroker
from tests.integration.shell import Shell
from tests.making import MakeSettings

from penstock.cli import main as cli
from penstock.config import Settings
from penstock.runtime import children
from penstock.runtime.paths import temporary_dir

_ROOT = Path(__file__).parents[2]
_TABLES: dict[str, Any] = {
    "jobs": {
        "modules": ["tests.integration.sample_jobs", "tests.integration.workflow_jobs"],
        "exclusive_lease_seconds": 2,
    },
    "decider": {"lease_seconds": 1},
    "pools": {
        "work": {"min_workers": 1, "max_workers": 2, "cpu_cores": 0.01, "memory_bytes": 10**6},
    },
    "host": {"reserve_cpu_cores": 0, "max_memory_share": 1.0, "max_cpu_share": 1.0},
}
SERVICES = ("orchestrator", "metrics", "decider", "decider", "executor")


@contextmanager
def running_site(secrets: Path) -> Iterator[Site]:
    """All services over a guarded broker whose keys lie in ``secrets``, until the block ends."""
    with GuardedBroker(secrets) as broker, temporary_dir() as folder:
        site = Site(broker, folder)
        site.start()
        try:
            yield site
        finally:
            site.stop()


class Site:
    """Attributes: children: the services that were started."""

    def __init__(self, broker: GuardedBroker, folder: Path) -> None:
        self.broker, self._folder, self._open = broker, folder, ExitStack()
        self.children: list[children.Child] = []
        (folder / "run").mkdir(mode=0o700)
        self._make = MakeSettings(lambda: broker.url, str(folder / "run"))
        self._make.prefix = "penstock"

    def settings(self, role: str) -> Settings:
        nats: dict[str, Any] = {"connect_timeout_seconds": 60}
        if role == "executor":
            nats["worker_nkey_file"] = f"{self.broker.secrets}/worker/nkey.seed"
        return self.broker.settings(self._make, role, **_TABLES, nats=nats)

    def shell(self, role: str, folder: Path) -> Shell:
        """A folder in which `penstock` is called with the key of ``role``."""
        nats = self.settings(role).nats
        reach = {"url": nats.url, "ca_file": nats.ca_file, "nkey_file": nats.nkey_file}
        tables = {**_TABLES, "nats": {**reach, "request_timeout_seconds": 3.0}}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "penstock.toml").write_text(_toml(tables), "utf-8")
        return Shell(folder)

    def start(self) -> None:
        for number, role in enumerate(SERVICES):
            self._start(role, self._folder / f"{role}-{number}.log")

    def _start(self, role: str, log: Path) -> None:
        nats = self.settings(role).nats
        config = self._folder / f"{role}.json"
        environment = {
            "PENSTOCK_NATS__URL": nats.url,
            "PENSTOCK_NATS__CA_FILE": nats.ca_file,
            "PENSTOCK_NATS__NKEY_FILE": nats.nkey_file,
            "PENSTOCK_NATS__WORKER_NKEY_FILE": nats.worker_nkey_file,
            "PENSTOCK_HOST__NAME": "test-host",
            "PENSTOCK_HOST__RUN_DIR": str(self._folder / "run"),
        }
        config.write_text(_toml(_TABLES), "utf-8")
        argv = [sys.executable, "-m", cli.__name__, role, "--config", str(config)]
        child = children.start(argv, name=role, log=log, cwd=_ROOT, env=environment)
        self._open.callback(child.end, 20.0)
        self.children.append(child)

    def stop(self) -> None:
        self._open.close()

    def log_lines(self) -> int:
        return sum(len(path.read_bytes().splitlines()) for path in self._folder.glob("*.log"))

    def logs(self) -> str:
        return "\n".join(path.read_text("utf-8")[-3000:] for path in self._folder.glob("*.log"))


def _toml(tables: dict[str, Any], above: str = "") -> str:
    lines = []
    for name, value in tables.items():
        if isinstance(value, dict):
            lines += ["", f"[{above}{name}]", _toml(value, f"{above}{name}.")]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines)
