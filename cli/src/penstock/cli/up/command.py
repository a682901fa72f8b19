"""`penstock up`: everything on this machine, one command."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError, BusUnavailable, NotLetIn, StorageTooSmall
from penstock.cli.command import Command
from penstock.cli.config_remarks import lint, remarks
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import note
from penstock.cli.session import Session
from penstock.cli.up import cluster, own_broker, own_console, state
from penstock.cli.up.disk_guard import DiskGuard
from penstock.cli.up.processes import Processes, check_installed
from penstock.cli.up.reloading import Reloading
from penstock.cli.up.screen import Lines, Screen, Table
from penstock.cli.up.watch import watch
from penstock.config import Settings
from penstock.config.masking import masked
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.health.durability import in_one_line, posture
from penstock.health.survey import survey
from penstock.runtime import console_place, paths
from penstock.runtime.broker import Broker
from penstock.runtime.interpreter import HELD_BACK, PAUSING
from penstock.runtime.local_broker import run_folder, with_url
from penstock.runtime.paths import temporary_dir
from penstock.runtime.private_folders import private_dir, remove_private
from penstock.views import wording
from penstock.views.pool_board import Board

DRAW_SECONDS = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of this `up`."""

    live: bool
    ephemeral: bool
    port: int | None
    reload: bool = False


@click.command(
    cls=Command,
    service=True,
    example="penstock up\npenstock up --reload\npenstock up --ephemeral --no-live --port 4222",
)
@click.option(
    "--live/--no-live", default=None, help="A live table, or lines; else a table on a terminal."
)
@click.option(
    "--ephemeral", is_flag=True, help="Keep nothing: queues and event log end with this run."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the broker that it starts, 0 for any free one; else that of the last start here.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: replace the workers when a source file of jobs.modules changes.",
)
@click.pass_obj
def up(
    session: Session, live: bool | None, ephemeral: bool, port: int | None, reload: bool
) -> None:
    """Run everything on this machine: broker, services, workers. Ctrl-C ends it in order.

    Without nats.url, or where it names a port of this machine at which no server listens, a broker
    is started, which keeps its store and its port in .penstock/ here. Other commands and programs
    find it from the same folder. A second Ctrl-C does not wait for busy workers. SIGHUP reloads the
    job code, SIGUSR1 pauses the executor and SIGUSR2 resumes it.
    """
    settings = session.settings()
    configured = pools(settings)
    if not configured:
        raise Refused("there is no pool to run; add a table [pools.NAME] to penstock.toml")
    check_installed()
    for remark in (*remarks(settings), *lint(settings, configured)):
        note(f"warning: {remark.text}")
    shown_live = sys.stdout.isatty() if live is None else live
    is_live = shown_live and not session.as_json
    options = Options(live=is_live, ephemeral=ephemeral, port=port, reload=reload)
    if reload:  # two versions written within a second would share their compiled file
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with _prepared(settings, options) as (complete, broker, folder):
        asyncio.run(_Up(session, complete, broker, folder, options).run())


@contextmanager
def _prepared(
    settings: Settings, options: Options
) -> Iterator[tuple[Settings, Broker | None, Path]]:
    """Locks this folder and starts a broker where none is configured.

    Yields:
        Complete settings, the broker that was started, and the folder for files.
    """
    with ExitStack() as stack:
        here = stack.enter_context(state.held())
        folder = stack.enter_context(temporary_dir()) if options.ephemeral else here.resolve()
        broker = None
        if place := own_broker.place(settings, options.port, here):
            broker = stack.enter_context(Broker(folder / "nats", place.port, token=place.token))
            settings = with_url(settings, broker.url, broker.monitor_url)
            own_broker.remember(own_broker.Place(broker.port, place.token), here)
        if not settings.host.run_dir:
            names = run_folder(here)
            stack.callback(remove_private, *names)
            run_dir = str(private_dir(*names))
            settings = replace(settings, host=replace(settings.host, run_dir=run_dir))
        paths.run_dir(settings)  # a configured one too, before anything is started in it
        settings = cluster.with_secret(settings, here)
        configured, settings = settings, own_console.placed(settings, folder)
        os.environ |= console_place.handed_on(configured, settings)
        if taken := own_console.taken(configured, settings):
            note(f"warning: {taken}")
        state.write_url(settings.nats.url, settings.nats.monitor_url)
        yield settings, broker, folder


class _Up:
    """One run, from the first child's start to the last one's end."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        broker: Broker | None,
        folder: Path,
        options: Options,
    ) -> None:
        self._session, self._settings, self._folder = session, settings, folder
        self._board = Board()
        self._screen = self._make_screen(options)
        self._logs = _fresh_logs(folder) if options.live else None
        self._processes = Processes(
            settings, session.flags(), broker, self._logs, self._screen.report
        )
        report = self._screen.report
        self._guard = DiskGuard(broker, folder / "nats", report) if broker else None
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        self._reloaded = asyncio.Event()
        self._reloading = Reloading(settings, report, self._reloaded.set)
        self._watches_files = options.reload

    async def run(self) -> None:
        """Runs until Ctrl-C or SIGTERM, and until everything has ended."""
        patience = self._settings.nats.connect_timeout_seconds
        try:
            async with self._session.bus(self._settings, patience) as bus:
                self._listen_to_signals()
                self._processes.start()
                self._screen.report(
                    f"starting all services; broker at {masked(self._settings.nats.url)}"
                )
                if own_console.names(self._settings):
                    self._screen.report(f"console at {own_console.url(self._settings)}")
                if self._logs:
                    self._screen.report(f"all log lines are in {self._logs}")
                if spark_master := cluster.about(self._settings):
                    self._screen.report(spark_master)
                await self._report_durability(bus)
                await self._show(bus)
        except StorageTooSmall as error:
            raise Failed(f"{error}{_disk(self._folder)}") from error
        except BusUnavailable as error:
            if self._processes.broker or isinstance(error, NotLetIn):
                raise
            problem = str(error).partition(";")[0]
            raise Failed(
                f"{problem}; nats.url names this broker: start it, or leave nats.url out, and "
                "'penstock up' starts one"
            ) from error
        finally:
            await self._processes.end(self._hurry)
            await self._processes.end_broker()
            self._screen.report("everything has ended")
            self._screen.close()

    async def _report_durability(self, bus: Bus) -> None:
        with suppress(BusError):
            durability = posture(await survey(bus, self._settings))  # type: ignore[arg-type]
            if durability:
                self._screen.report(in_one_line(durability))

    async def _show(self, bus: Bus) -> None:
        """Draws while everything runs, and while it ends; raises what stops it from drawing."""
        subjects = Subjects(self._settings.prefix)
        wrote = self._screen.wrote if self._settings.logs.enabled and self._logs else None
        watching = watch(bus, subjects, self._board, self._screen.happened, wrote)
        storing = asyncio.create_task(self._store_schedules(bus, subjects))
        tasks = [asyncio.create_task(watching), asyncio.create_task(self._draw())]
        tasks.append(asyncio.create_task(self._reloading.run(bus)))
        if self._watches_files:
            tasks.append(asyncio.create_task(self._reloading.watch()))
        if self._guard:
            tasks.append(asyncio.create_task(self._guard.run()))
        for task in tasks:
            task.add_done_callback(lambda _: self._stopping.set())
        await self._stopping.wait()
        self._screen.report("ending; busy workers may finish, Ctrl-C again does not wait for them")
        await self._processes.end(self._hurry)
        storing.cancel()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _store_schedules(self, bus: Bus, subjects: Subjects) -> None:
        """Stores what is declared, once the services have made the streams, and after reloads."""
        if not (self._settings.jobs.modules or self._settings.schedules):
            return
        while True:
            try:
                await bus.extent(subjects.state_stream)
                break
            except BusError:
                await asyncio.sleep(DRAW_SECONDS)
        while True:
            if problem := await self._processes.store_schedules():
                self._screen.report(f"declared schedules are not stored: {problem}")
            await self._reloaded.wait()
            self._reloaded.clear()

    async def _draw(self) -> None:
        while True:
            self._screen.draw(self._board, self._processes.all)
            await asyncio.sleep(DRAW_SECONDS)

    def _listen_to_signals(self) -> None:
        loop, executor = asyncio.get_running_loop(), self._processes.services["executor"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            loop.add_signal_handler(number, self._end_requested)
        loop.add_signal_handler(signal.SIGHUP, self._reloading.hangup, self._end_requested)
        for number in PAUSING:
            loop.add_signal_handler(number, executor.signal, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)

    def _end_requested(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def _make_screen(self, options: Options) -> Screen:
        if options.live:
            return Table(self._settings, f"Penstock at {masked(self._settings.nats.url)}")
        return Lines(self._settings, self._session.as_json)


def _fresh_logs(folder: Path) -> Path:
    """An empty folder for this run's logs."""
    logs = folder / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(mode=0o700)
    return logs


def _disk(folder: Path) -> str:
    """The free disk space, of which the broker takes three quarters at its start."""
    free = shutil.disk_usage(folder).free
    return f"; the disk with {folder} has {wording.memory(free)} free, of which it takes 75 %"
