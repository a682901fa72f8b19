"""What TLS, keys and accounts cost: no-op jobs through three brokers. Prints JSON.

``plain``: no TLS, no keys. ``tls``: the same behind TLS. ``accounts``: as it is deployed, with TLS,
a key for each role, and an account for each key. The brokers take turns, so that other work on the
machine falls on all of them; each run has a fresh store. An orchestrator runs beside, as it makes
the consumers of queues.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from machine import describe
from noop_crew import settings_for
from penstock.bus.nats import connect
from penstock.cli.deploy.keys import write
from penstock.config import Settings
from penstock.config.settings import Nats
from penstock.runtime.broker import Broker
from penstock.runtime.paths import LOOPBACK, temporary_dir
from throughput import pickup, throughput

PLAIN, TLS, ACCOUNTS = "plain", "tls", "accounts"
MODES = (PLAIN, TLS, ACCOUNTS)
PREFIX = "penstock"
EXAMPLE = """\
example:
  python benchmarks/guarded.py --jobs 20000 --repeat 3
"""


class Guarded(Broker):
    """A broker with one of the three configurations."""

    def __init__(self, mode: str, secrets: Path) -> None:
        super().__init__()
        self._mode, self._secrets = mode, secrets

    def _config(self) -> str:
        text = super()._config().strip()[1:-1] + "\n"  # without its braces, to add what is no JSON
        files = self._secrets / "nats"
        if self._mode != PLAIN:
            text += (
                f'tls {{ cert_file: "{files}/server.pem", key_file: "{files}/server.key", '
                f'timeout: 5, handshake_first: "500ms" }}\n'
            )
        if self._mode == ACCOUNTS:
            text += f"accounts {{\n{(files / 'accounts.conf').read_text('utf-8')}\n}}\n"
        return text

    def settings(self, role: str) -> Settings:
        """For a process with the key of ``role``."""
        settings = settings_for(self.url)
        return replace(settings, nats=self.reach(role, settings.nats))

    def reach(self, role: str, nats: Nats) -> Nats:
        """``nats`` with what a process of ``role`` connects with, its workers included."""
        own = self._secrets / role
        if self._mode != PLAIN:
            nats = replace(nats, ca_file=str(own / "ca.pem"))
        if self._mode == ACCOUNTS:
            nats = replace(nats, nkey_file=str(own / "nkey.seed"))
        if self._mode == ACCOUNTS and role == "executor":
            nats = replace(nats, worker_nkey_file=str(self._secrets / "worker/nkey.seed"))
        return nats


async def measure(broker: Guarded, jobs: int, pickups: int) -> dict[str, Any]:
    """One run of each kind on a fresh broker."""
    dispatcher, worker = broker.settings("dispatcher"), broker.settings("worker")
    orchestrator = broker.settings("orchestrator")
    await (await connect(orchestrator)).close()  # makes the streams
    row = await throughput(dispatcher, broker, 1, jobs, worker, orchestrator)
    return {**row, "pickup": await pickup(dispatcher, pickups, worker, orchestrator)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and the single runs."""

    def median(values: list[float]) -> float:
        return round(statistics.median(values), 2)

    return {
        "jobs_per_second": median([row["jobs_per_second"] for row in rows]),
        "runs": [row["jobs_per_second"] for row in rows],
        "broker_cpu_us_per_job": median([row["broker_cpu_us_per_job"] for row in rows]),
        "worker_cpu_us_per_job": median([row["worker_cpu_us_per_job"] for row in rows]),
        "pickup_p50_ms": median([row["pickup"]["p50_ms"] for row in rows]),
        "pickup_p99_ms": median([row["pickup"]["p99_ms"] for row in rows]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=20_000, help="a run: %(default)s")
    parser.add_argument("--pickups", type=int, default=300, help="a run: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each: %(default)s")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    rows: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    with temporary_dir() as folder:
        write(folder / "secrets", PREFIX, [LOOPBACK], datetime.now(UTC), 2)
        for _ in range(options.repeat):
            for mode in MODES:
                with Guarded(mode, folder / "secrets") as broker:
                    rows[mode].append(asyncio.run(measure(broker, options.jobs, options.pickups)))
    result = {"benchmark": "guarded", "machine": describe(), "jobs": options.jobs}
    print(json.dumps({**result, **{mode: summary(rows[mode]) for mode in MODES}}, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
