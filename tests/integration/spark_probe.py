"""Whether a Spark driver answers a process that knows no secret: a stranger's Java, by its own RPC.

``python -m tests.integration.spark_probe PORT…`` prints, for each loopback port, what answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from penstock.runtime.paths import LOOPBACK
from penstock.spark.java import find_java

ENDPOINT = "HeartbeatReceiver"
_SECONDS = 120


def answers(driver: psutil.Process) -> dict[int, str]:
    """``answered``, or why not, for each port of a driver; asked by another process."""
    listening = [c for c in driver.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    ports = [connection.laddr.port for connection in listening]
    assert ports, f"{driver} listens nowhere"
    call = [sys.executable, "-m", "tests.integration.spark_probe", *map(str, ports)]
    ran = subprocess.run(call, check=True, timeout=_SECONDS, capture_output=True, text=True)
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return {int(port): answer for port, answer in found.items()}


def _main(ports: Sequence[str]) -> None:
    from pyspark.java_gateway import launch_gateway

    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAVA_HOME"] = str(find_java().home_for_launchers(Path(folder)))
        gateway = launch_gateway()
        try:
            rpc = _rpc(gateway.jvm)
            with ThreadPoolExecutor(len(ports)) as threads:  # each asks until its timeout
                answers = threads.map(lambda port: _ask(gateway.jvm, rpc, int(port)), ports)
                reached = dict(zip(ports, answers, strict=True))
            sys.stdout.write(f"{json.dumps(reached)}\n")
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


def _rpc(jvm: Any) -> Any:
    conf = jvm.org.apache.spark.SparkConf(False)
    conf.set("spark.rpc.askTimeout", "5s").set("spark.rpc.lookupTimeout", "5s")
    manager = jvm.org.apache.spark.SecurityManager
    defaults = (getattr(manager, f"$lessinit$greater$default${number}")() for number in (2, 3))
    security = manager(conf, *defaults)
    return jvm.org.apache.spark.rpc.RpcEnv.create("stranger", LOOPBACK, 0, conf, security, True)


def _ask(jvm: Any, rpc: Any, port: int) -> str:
    from py4j.protocol import Py4JJavaError

    try:
        rpc.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(LOOPBACK, port), ENDPOINT)
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    return "answered"


if __name__ == "__main__":
    _main(sys.argv[1:])
