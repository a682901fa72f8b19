"""One Spark Connect server: how its Java process is started, found ready and ended.

The class is started directly: Spark's launch scripts would start a Java of their own first. What it
is told goes through an argument file and the environment, never the command line: settings and the
token may be secrets, and everybody on the machine can read a command line.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.runtime import children
from penstock.runtime.java import Java, JavaMissing, find_java
from penstock.runtime.paths import LOOPBACK, free_port

READY_SECONDS = 90.0
"""A cold start takes 3 s, on a busy machine with a cold disk much more."""
STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_TRIES = 3
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

_QUICK_AND_SMALL = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+IgnoreUnrecognizedVMOptions",
)
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
_MODULES = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
"""What Spark's own launcher passes (`JavaModuleOptions` of 4.3)."""
_MODULES_FROM_24 = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class ServerFailed(RuntimeError):
    """The server could not be started; says why and where its log is."""


@dataclass(frozen=True)
class Options:
    """What an operator may choose.

    Attributes:
        threads: local threads; 0 means one per usable core. memory: Java heap, e.g. ``1g``.
        conf: Spark settings; ``spark.driver.extraJavaOptions`` in them goes to the Java process.
        ui: its web UI runs, on loopback, and only tells.
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


async def start(folder: Path, options: Options) -> Server:
    """Starts a server and waits until it accepts connections.

    Args:
        folder: for its temporary files; emptied before and after.

    Raises:
        ServerFailed: no Java, no pyspark, settings it refuses, or not ready in ``READY_SECONDS``.
    """
    try:
        java, home = find_java(), spark_home()
    except JavaMissing as error:
        raise ServerFailed(str(error)) from error
    for left in reversed(range(_TRIES)):  # somebody may take the free port before the server does
        try:
            return await _start(folder, options, java, home)
        except _PortTaken as error:
            if not left:
                raise ServerFailed(str(error)) from error
    raise AssertionError("unreachable")


def spark_home() -> Path:
    """The installed pyspark's folder (found, not imported). Raises ServerFailed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.origin:
        raise ServerFailed("pyspark is not installed here; install penstock-worker on this host")
    return Path(found.origin).parent


def java_arguments(
    java: Java, home: Path, folder: Path, port: int, options: Options, ui_port: int = 0
) -> list[str]:
    """Everything behind ``java``: flags, class path, settings, class."""
    jars = sorted(str(jar) for jar in (home / "jars").glob("*.jar"))
    extra = options.conf.get("spark.driver.extraJavaOptions", "").split()
    settings = {**_defaults(folder), **options.conf, **_fixed(port, options), **_ui(ui_port)}
    return [
        *_QUICK_AND_SMALL,
        f"-Xmx{options.memory}",
        *java.flags,
        *_MODULES,
        *(_MODULES_FROM_24 if java.version >= 24 else ()),
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        *extra,
        *(f"-D{name}={value}" for name, value in settings.items()),
        *("-cp", os.pathsep.join(jars)),
        _CLASS,
    ]


def clear(folder: Path) -> None:
    """Removes what a server left, its log excepted."""
    for name in ("tmp", "local", "warehouse"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "java.args").unlink(missing_ok=True)


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


async def _start(folder: Path, options: Options, java: Java, home: Path) -> Server:
    port, token = free_port(), secrets.token_urlsafe(32)
    ui_port = free_port() if options.ui else 0
    _prepare(folder, java_arguments(java, home, folder, port, options, ui_port))
    child = children.start(
        [str(java.binary), f"@{folder / 'java.args'}"],
        name="Spark Connect server",
        log=folder / "server.log",
        env={
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(java.home),
        },
    )
    ui = f"http://{LOOPBACK}:{ui_port}" if ui_port else ""
    server = Server(child, port, token, folder, ui)
    try:
        await _ready(server)
    except BaseException:
        await server.stop()
        raise
    (folder / "java.args").unlink(missing_ok=True)
    return server


def _prepare(folder: Path, arguments: list[str]) -> None:
    clear(folder)
    for name in ("tmp", "local"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOGGING, "utf-8")
    (folder / "server.log").write_bytes(b"")
    file = os.open(folder / "java.args", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.writelines(_quoted(each) for each in arguments)


def _quoted(argument: str) -> str:
    """One line of a Java argument file."""
    for found, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        argument = argument.replace(found, written)
    return f'"{argument}"\n'


async def _ready(server: Server) -> None:
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    while not _listens(server.child.pid, server.port):
        if not server.alive:
            words = server.child.last_words()
            kind = _PortTaken if "BindException" in words else ServerFailed
            raise kind(str(server.child.failed("ended before it was ready")))
        if asyncio.get_running_loop().time() > deadline:
            raise ServerFailed(str(server.child.failed(f"is not ready after {READY_SECONDS:g} s")))
        await asyncio.sleep(_LOOK_SECONDS)


def _listens(pid: int, port: int) -> bool:
    """Whether this very process does: another one behind that port would be told the token."""
    with suppress(psutil.Error):
        sockets = psutil.Process(pid).net_connections("tcp")
        return any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)
    return False
