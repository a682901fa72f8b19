"""One Spark Connect server: how its Java process is started, found ready and ended."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.executor.spark.java import (
    SparkJava,
    SparkMissing,
    clear,
    find_spark,
    forget_arguments,
    prepare,
)
from penstock.runtime import children
from penstock.runtime.paths import LOOPBACK, free_port

READY_SECONDS = 90.0
"""A cold start takes 3 s, on a busy machine with a cold disk much more."""
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_TRIES = 3
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ServerFailed(RuntimeError):
    """The server could not be started; says why and where its log is."""


@dataclass(frozen=True)
class Options:
    """What an operator may choose.

    Attributes:
        threads: local threads; 0 means one per usable core.
        memory: Java heap, e.g. ``1g``.
        conf: Spark settings; ``spark.driver.extraJavaOptions`` in them goes to the Java process.
        ui: its web UI runs, on loopback, read-only.
    """

    threads: int = 0
    memory: str = "1g"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    ui: bool = False

    @property
    def master(self) -> str:
        return f"local[{self.threads or len(os.sched_getaffinity(0))}]"


class Server:
    """A running server.

    Attributes:
        remote: address with token, what a client connects to. Never logged.
        ui: address of its web UI; empty where that does not run.
    """

    def __init__(
        self, child: children.Child, port: int, token: str, folder: Path, ui: str = ""
    ) -> None:
        self.ui = ui
        self.child, self.port, self._folder = child, port, folder
        self.remote = f"sc://localhost:{port}/;token={token};user_id=penstock"

    @property
    def alive(self) -> bool:
        return self.child.exit_code is None

    async def ended(self) -> int:
        """Waits until its process ended; the exit code."""
        return await self.child.ended()

    async def stop(self) -> None:
        """Ends the process and removes its folders."""
        await self.child.stop(STOP_SECONDS)
        clear(self._folder)


async def start(folder: Path, options: Options, training: Sequence[str] = ()) -> Server:
    """Starts a server and waits until it accepts connections.

    Args:
        folder: for its temporary files; emptied before and after.
        training: flags that have it write a class archive, in place of using one.

    Raises:
        ServerFailed: no Java, no pyspark, settings it refuses, or not ready in ``READY_SECONDS``.
    """
    try:
        spark = find_spark()
    except SparkMissing as error:
        raise ServerFailed(str(error)) from error
    flags = tuple(training) or await asyncio.to_thread(lambda: spark.archive("connect").flags)
    for left in reversed(
        range(_TRIES)
    ):  # another process may take the free port before the server does
        try:
            return await _start(folder, options, spark, flags)
        except _PortTaken as error:
            if not left:
                raise ServerFailed(str(error)) from error
    raise AssertionError("unreachable")


def java_arguments(
    spark: SparkJava,
    folder: Path,
    port: int,
    options: Options,
    ui_port: int = 0,
    flags: Sequence[str] = (),
) -> list[str]:
    """Everything behind ``java``: flags, class path, settings, class."""
    extra = options.conf.get("spark.driver.extraJavaOptions", "").split()
    settings = {**_defaults(folder), **options.conf, **_fixed(port, options), **_ui(ui_port)}
    return spark.arguments(folder, (f"-Xmx{options.memory}", *flags, *extra), settings, _CLASS)


class _PortTaken(ServerFailed):
    pass


def _defaults(folder: Path) -> dict[str, str]:
    return {
        "spark.app.name": "penstock",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "8",  # 200 is for clusters; here they share a few cores
        "spark.connect.session.manager.defaultSessionTimeout": "60m",
    }


def _fixed(port: int, options: Options) -> dict[str, str]:
    return {
        "spark.master": options.master,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.authenticate": "true",  # else every local user may send it Java objects
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }


def _ui(port: int) -> dict[str, str]:
    """Little is remembered: a job asks as soon as it has ended."""
    if not port:
        return {}
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "500",
        "spark.sql.ui.retainedExecutions": "20",
    }


async def _start(folder: Path, options: Options, spark: SparkJava, flags: Sequence[str]) -> Server:
    port, token = free_port(), secrets.token_urlsafe(32)
    ui_port = free_port() if options.ui else 0
    prepare(folder, java_arguments(spark, folder, port, options, ui_port, flags))
    (folder / "server.log").write_bytes(b"")
    child = children.start(
        spark.command(folder),
        name="Spark Connect server",
        log=folder / "server.log",
        env={
            **spark.environment(folder, LOOPBACK),
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    ui = f"http://{LOOPBACK}:{ui_port}" if ui_port else ""
    server = Server(child, port, token, folder, ui)
    try:
        await _ready(server)
    except BaseException:
        await server.stop()
        raise
    forget_arguments(folder)
    return server


async def _ready(server: Server) -> None:
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    while not _listens(server.child.pid, server.port):
        if not server.alive:
            words = server.child.last_words()
            kind = _PortTaken if "BindException" in words else ServerFailed
            raise kind(str(server.child.failed("ended before it was ready")))
        if asyncio.get_running_loop().time() > deadline:
            raise ServerFailed(str(server.child.failed(f"is not ready after {READY_SECONDS:g} s")))
        await asyncio.sleep(_POLL_SECONDS)


def _listens(pid: int, port: int) -> bool:
    """Whether this very process does: another one behind that port would get the token."""
    with suppress(psutil.Error):
        sockets = psutil.Process(pid).net_connections("tcp")
        return any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)
    return False
