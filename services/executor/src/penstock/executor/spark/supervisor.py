"""The Spark supervisor: keeps this host's shared Spark Connect server.

``python -m penstock.executor.spark.supervisor --run-dir DIR`` listens on ``DIR/spark.sock``, see
`penstock.spark.supervisor_protocol`. A worker's connection is its lease: the first one starts the
server, and it runs while a lease is counted. It is stopped when none was for ``idle_seconds``. What
the session of a worker that died still does on the server is interrupted.

The supervisor outlives its executor, so that workers can finish their jobs; it ends when
``DIR/executor.lock`` was free for ``ALONE_SECONDS`` and no lease is counted, or by TERM.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.config import Settings
from penstock.executor.spark import connect_server
from penstock.executor.spark.connect_server import Options, Server, ServerFailed
from penstock.executor.spark.release import release
from penstock.runtime.file_lock import EXECUTOR_LOCK, is_held
from penstock.runtime.interpreter import module_command
from penstock.runtime.paths import socket_address
from penstock.runtime.tasks import Tasks
from penstock.spark import supervisor_protocol as protocol
from penstock.spark.supervisor_protocol import SOCKET, Answer
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor.spark.supervisor")

ALONE_SECONDS = 10.0
_CONF_VARIABLE = "SPARK_SUPERVISOR_CONF"


def command(run_dir: Path, settings: Settings) -> tuple[list[str], dict[str, str]]:
    """How an executor starts a supervisor: the command, and variables to lay over its own.

    Start it in a session of its own and without a parent-death signal: it must outlive the executor
    for as long as workers hold leases. A second one in the same folder ends at once.
    """
    spark = settings.spark
    argv = [
        *module_command("penstock.executor.spark.supervisor", "--run-dir", str(run_dir)),
        *("--threads", str(spark.threads), "--memory", spark.memory),
        *("--idle-seconds", str(spark.idle_seconds)),
        *(("--ui",) if spark.measure_cost else ()),
        *lines.flags(),
    ]
    return argv, {_CONF_VARIABLE: json.dumps(spark.conf)}  # may hold secrets: not in the command


class Supervisor:
    """The leases, and the server they need.

    Args:
        run_dir: the host's run folder.
        idle_seconds: how long an unused server lives on.
        alone_seconds: how long the supervisor does without an executor and without a lease.
    """

    def __init__(
        self, run_dir: Path, options: Options, idle_seconds: float, alone_seconds: float
    ) -> None:
        self._folder = run_dir / "spark"
        self._lock = run_dir / EXECUTOR_LOCK
        self._options = options
        self._idle_seconds, self._alone_seconds = idle_seconds, alone_seconds
        self._counted: set[asyncio.StreamWriter] = set()
        self._sessions: dict[asyncio.StreamWriter, str] = {}
        self._server: Server | None = None
        self._starting: asyncio.Task[Server] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._change = asyncio.Lock()  # one server at a time: they share a folder
        self.stopping = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Until asked to stop or left alone."""
        server = await asyncio.start_unix_server(self._lease, sock=listener)
        self._tasks.spawn(self._end_when_alone())
        await self.stopping.wait()
        server.close()
        if self._starting:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self._tasks.cancel()
        await self._stop_server()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- leases ---------------------------------------------------------------------------------
    async def _lease(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(writer)
            while request := (await reader.readline()).strip():
                if request == protocol.AGAIN:
                    await self._answer(writer)
                elif request == protocol.REST:
                    self._uncount(writer)
                elif request == protocol.BYE:
                    self._sessions.pop(writer, None)
                elif session := protocol.session_of(request):
                    self._sessions[writer] = session
                else:
                    error = f"found {request[:80]!r}, expected again, rest, session or bye"
                    self._send(writer, Answer(error=error))
        except (OSError, ValueError) as error:  # ValueError: a line without end
            log.info("a worker's connection ended: %r", error)
        finally:
            self._uncount(writer)
            writer.close()
            if session := self._sessions.pop(writer, ""):
                self._tasks.spawn(self._release(session))

    async def _release(self, session: str) -> None:
        """Ends what a worker that died left running."""
        if self._server and self._server.alive:
            log.warning("a worker died: its Spark session %s is ended", session)
            await asyncio.to_thread(release, self._server.remote, session)

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        self._count(writer)
        try:
            server = await self._running()
        except ServerFailed as error:
            self._send(writer, Answer(error=str(error)))
        else:
            self._send(writer, Answer(remote=server.remote, ui=server.ui))
        await writer.drain()

    def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        writer.write(protocol.line(answer))

    def _count(self, writer: asyncio.StreamWriter) -> None:
        self._counted.add(writer)
        if self._idle:
            self._idle.cancel()
            self._idle = None

    def _uncount(self, writer: asyncio.StreamWriter) -> None:
        self._counted.discard(writer)
        if not self._counted and not self._idle:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self._idle_seconds, self._rest)

    # --- the server -----------------------------------------------------------------------------
    async def _running(self) -> Server:
        """The server, started if need be; all waiting workers share one start."""
        if self._server and self._server.alive:
            return self._server
        # A task of its own: a worker that goes away must not cancel the start for the others.
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Server:
        try:
            log.info("starting the Spark Connect server, %s", self._options.master)
            async with self._change:
                self._server = server = await connect_server.start(self._folder, self._options)
            log.info("Spark Connect server %d is ready on port %d", server.child.pid, server.port)
            self._tasks.spawn(self._watch(server))
            return server
        except ServerFailed as error:
            log.error("%s", error)
            raise
        finally:
            self._starting = None

    async def _watch(self, server: Server) -> None:
        """Restarts a server that died by itself while workers use it."""
        code = await server.ended()
        if self._server is not server:
            return
        self._server = None
        log.error("Spark Connect server %d ended with code %d", server.child.pid, code)
        async with self._change:
            await server.stop()
        if self._counted:
            with suppress(ServerFailed):  # the next worker that asks gets the error
                await self._running()

    def _rest(self) -> None:
        self._idle = None
        if self._server:
            log.info("no worker used Spark for %g s: its server is stopped", self._idle_seconds)
            self._tasks.spawn(self._stop_server())

    async def _stop_server(self) -> None:
        server, self._server = self._server, None
        if server:
            async with self._change:
                await server.stop()
            log.info("Spark Connect server %d is stopped", server.child.pid)

    # --- the end --------------------------------------------------------------------------------
    async def _end_when_alone(self) -> None:
        seconds = 0.0
        step = self._alone_seconds / 10
        while seconds < self._alone_seconds:
            await asyncio.sleep(step)
            alone = not self._counted and not is_held(self._lock)
            seconds = seconds + step if alone else 0.0
        log.info(
            "no executor and no worker for %g s: the Spark supervisor ends", self._alone_seconds
        )
        self.stopping.set()


def main(arguments: list[str] | None = None) -> int:
    """The process; its exit code is 0 also when another supervisor has this folder."""
    options = _parser().parse_args(arguments)
    lines.start("info", options.log_json)
    run_dir: Path = options.run_dir
    with (run_dir / "spark.lock").open("w") as own:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another Spark supervisor serves %s", run_dir)
            return 0
        try:
            asyncio.run(_serve(options))
        finally:
            (run_dir / SOCKET).unlink(missing_ok=True)
    return 0


async def _serve(options: argparse.Namespace) -> None:
    conf = {**_conf_from_environment(), **dict(options.conf)}
    server = Options(options.threads, options.memory, conf, options.ui)
    supervisor = Supervisor(options.run_dir, server, options.idle_seconds, options.alone_seconds)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stopping.set)
    with listener(options.run_dir / SOCKET) as own:
        await supervisor.run(own)


@contextmanager
def listener(path: Path) -> Iterator[socket.socket]:
    """A socket that only this user can connect to."""
    path.unlink(missing_ok=True)  # left by a supervisor that was killed: its lock is ours
    kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
    with socket_address(path) as address, socket.socket(socket.AF_UNIX, kind) as bound:
        before = os.umask(0o177)
        try:
            bound.bind(address)
        finally:
            os.umask(before)
        yield bound


def _conf_from_environment() -> dict[str, str]:
    return {str(k): str(v) for k, v in json.loads(os.environ.pop(_CONF_VARIABLE, "{}")).items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.executor.spark.supervisor",
        description="Keeps one Spark Connect server for the workers of this host.",
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="the host's run folder")
    parser.add_argument("--threads", type=int, default=0, help="local threads; 0: one per core")
    parser.add_argument("--memory", default="1g", help="Java heap")
    parser.add_argument(
        "--idle-seconds", type=float, default=300.0, help="stop it unused this long"
    )
    parser.add_argument(
        "--alone-seconds", type=float, default=ALONE_SECONDS, help="end alone so long"
    )
    parser.add_argument("--log-json", action="store_true", help="log one JSON object a line")
    parser.add_argument("--ui", action="store_true", help="Spark's web UI runs, on loopback")
    parser.add_argument(
        "--conf", type=_setting, action="append", default=[], help="spark.NAME=VALUE"
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected spark.NAME=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
