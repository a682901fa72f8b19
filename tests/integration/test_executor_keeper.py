"""Spark's keeper is always there: started, started again, taken over, ended in the end."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import msgspec
import psutil
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.runtime.paths import socket_address


async def _keeper(host: Stage, other_than: int = 0) -> int:
    """Its process id, once it is at its socket."""

    def there() -> int:
        file = host.run_dir / "keeper.json"
        if not file.exists() or not _listens(host.run_dir / "spark.sock"):
            return 0
        pid = int(msgspec.json.decode(file.read_bytes())["pid"])
        return pid if pid != other_than and psutil.pid_exists(pid) else 0

    return await eventually(there, within=10)


def _listens(path: Path) -> bool:
    """Whether a process serves the socket: a supervisor that is killed leaves the file."""
    with socket.socket(socket.AF_UNIX) as client, socket_address(path) as address:
        return client.connect_ex(address) == 0


async def test_a_keeper_is_started_replaced_adopted_and_ended(settings: MakeSettings) -> None:
    async with stage(settings, spark={"idle_seconds": 5.0}) as host:
        first_executor = host.start()
        first = await _keeper(host)
        os.kill(first, signal.SIGKILL)
        second = await _keeper(host, other_than=first)

        first_executor.signal(signal.SIGKILL)
        await first_executor.ended()
        assert psutil.Process(second).is_running(), "workers may still need it"
        second_executor = host.start()
        await host.logged("supervisor of an earlier executor is adopted")
        assert await _keeper(host) == second

        await second_executor.stop(grace_seconds=10)
        await eventually(lambda: not _runs(second), what="the keeper")
        assert not (host.run_dir / "spark.sock").exists()


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
