"""The processes of `penstock up`: a broker where none is configured, and the services."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.cli import service
from penstock.cli.errors import Failed
from penstock.cli.up import cluster, descendants, own_console
from penstock.config import Settings
from penstock.config.foreign_pools import longest_drain_seconds
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child, ChildFailed
from penstock.runtime.interpreter import HELD_BACK, module_command
from penstock.runtime.supervised import Supervised

SERVICES = ("metrics", "decider", "orchestrator", "executor")
_FIRST_TO_END = ("decider", "executor")
_GRACE_SECONDS = 5.0
_BEYOND_DRAIN_SECONDS = 10.0


def check_installed() -> None:
    """Raises Failed with the names of the services that are missing."""
    if missing := [name for name in SERVICES if not service.installed(name)]:
        packages = " ".join(f"penstock-{name}" for name in missing)
        raise Failed(f"services are missing: {', '.join(missing)}; install {packages}")


def _scaler(settings: Settings) -> tuple[str, ...]:
    """The external scaler, where it is switched on."""
    return ("scaler",) if settings.scaler.enabled else ()


class Processes:
    """Starts and ends the processes of `penstock up`.

    Args:
        settings: with the broker's address and the run folder.
        flags: global options of each service.
        broker: the running broker that `up` started; None where another is used.
        logs: folder for each service's log; None lets them write to this process's output.
        report: called with a sentence about each start and end.
    """

    def __init__(
        self,
        settings: Settings,
        flags: list[str],
        broker: Broker | None,
        logs: Path | None,
        report: Callable[[str], None],
    ) -> None:
        self._settings, self._flags, self._broker, self._logs = settings, flags, broker, logs
        self.services = {
            name: Supervised(name, partial(self._begin, name), report, self._log(name))
            for name in (*SERVICES, *own_console.names(settings), *_scaler(settings))
        }
        self.broker = (
            Supervised("nats-server", self._begin_broker, report, None) if broker else None
        )
        self.master: Supervised | None = None
        if cluster.is_local(settings):
            cluster.forget(settings)
            log = self._log("spark-master")
            self.master = Supervised("spark-master", self._begin_master, report, log)
        self._tasks: list[asyncio.Task[None]] = []
        self._syncing: Child | None = None

    @property
    def all(self) -> list[Supervised]:
        return [process for process in (self.broker, self.master) if process] + [
            *self.services.values()
        ]

    def start(self) -> None:
        """Starts all processes, and restarts each that ends before :meth:`end`."""
        descendants.adopt_orphans()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        self._tasks = [
            asyncio.create_task(process.keep(), name=process.name) for process in self.all
        ]

    async def store_schedules(self) -> str:
        """Stores the declared schedules, by a command that imports the modules of the jobs.

        Returns:
            Why they are not stored; empty if they are.
        """
        try:
            self._syncing = children.start(
                module_command("penstock.cli.main", "schedule", "sync", *self._flags),
                name="schedules",
                output=subprocess.PIPE,  # its table is no log line
                env=self._environment(),
            )
        except ChildFailed as error:
            return str(error)
        assert self._syncing.process.stdout
        printed = await asyncio.to_thread(self._syncing.process.stdout.read)
        code = await self._syncing.ended()
        self._syncing.end(0.0)  # has ended: this only closes what belonged to it
        text = printed.decode("utf-8", "replace").strip()
        return f"'penstock schedule sync' ended with {code}: {text}" if code else ""

    async def end(self, hurry: asyncio.Event) -> None:
        """Ends the services; the broker goes on, so that workers can record the ends of their jobs.

        First the decider, and the executor, which drains its workers; then the others.

        Args:
            hurry: once set, busy workers are not waited for.
        """
        drain = longest_drain_seconds(self._settings) + _BEYOND_DRAIN_SECONDS
        await asyncio.gather(
            self.services["decider"].end(_GRACE_SECONDS, hurry),
            self.services["executor"].end(drain, hurry),
        )
        last = [process for name, process in self.services.items() if name not in _FIRST_TO_END]
        last += [self.master] if self.master else []
        await asyncio.gather(*(process.end(_GRACE_SECONDS, hurry) for process in last))

    async def end_broker(self) -> None:
        """Ends the broker, then all processes that are left below this one."""
        if self.broker:
            await self.broker.end(_GRACE_SECONDS, asyncio.Event())
        await asyncio.gather(*self._tasks)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        descendants.end_all(grace_seconds=1.0)

    def _begin(self, name: str) -> Child:
        return children.start(
            module_command("penstock.cli.main", name, *self._flags),
            name=name,
            log=self._log(name),
            held_back=HELD_BACK,
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        """What the processes are to know of this run, beside the settings that they read."""
        return {
            "PENSTOCK_NATS__URL": self._settings.nats.url,
            "PENSTOCK_NATS__MONITOR_URL": self._settings.nats.monitor_url,
            "PENSTOCK_HOST__RUN_DIR": self._settings.host.run_dir,
            "PENSTOCK_CLUSTER__SECRET_FILE": self._settings.cluster.secret_file,
        }

    def _begin_master(self) -> Child:
        return children.start(
            cluster.command(self._settings), name="spark-master", log=self._log("spark-master")
        )

    def _begin_broker(self) -> Child:
        assert self._broker
        if self._broker.child is None or self._broker.child.exit_code is not None:
            self._broker.start()
        if self._broker.child is None:
            raise ChildFailed("nats-server did not start")
        return self._broker.child

    def _log(self, name: str) -> Path | None:
        return self._logs / f"{name}.log" if self._logs else None

    def _reap(self) -> None:
        own = {process.pid for process in self.all if process.pid}
        descendants.reap_adopted(own | ({self._syncing.pid} if self._syncing else set()))
