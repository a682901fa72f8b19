"""Reloads the job code under `penstock up`: at SIGHUP, with ``--reload`` when a file changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.bus.protocol import Bus, BusError
from penstock.cli.scaling.reload import BEYOND_DRAIN_SECONDS, reload_hosts
from penstock.cli.up.source_files import SourceFiles
from penstock.config import Settings
from penstock.config.foreign_pools import longest_drain_seconds
from penstock.events.envelope import new_id
from penstock.events.reloading import ReloadReported, ReloadRequested
from penstock.events.subjects import Subjects
from penstock.runtime.interpreter import has_terminal

LOOK_SECONDS = 0.5
_SHOWN_FILES = 3


class Reloading:
    """Has this machine's executor reload, and reports how it went.

    Args:
        settings: of this `up`.
        report: shows a sentence.
        reloaded: called when the workers have the new code.
    """

    def __init__(
        self,
        settings: Settings,
        report: Callable[[str], None],
        reloaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._report, self._reloaded = settings, report, reloaded
        self._requested = asyncio.Event()
        self._had_terminal = has_terminal()

    def begin(self, why: str) -> None:
        """Begins a reload; one under way is superseded."""
        self._report(f"reloading the job code: {why}")
        self._requested.set()

    def hangup(self, end: Callable[[], None]) -> None:
        """Handles SIGHUP: a reload, unless it came because the terminal was closed."""
        if self._had_terminal and not has_terminal():
            end()
        else:
            self.begin("SIGHUP")

    async def run(self, bus: Bus) -> None:
        """Without end: one reload after the other."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            reloading = asyncio.create_task(self._reload(bus))
            superseding = asyncio.create_task(self._requested.wait())
            try:
                await asyncio.wait((reloading, superseding), return_when=asyncio.FIRST_COMPLETED)
            finally:
                reloading.cancel()
                superseding.cancel()

    async def _reload(self, bus: Bus) -> None:
        subjects, host = Subjects(self._settings.prefix), self._settings.host
        patience = longest_drain_seconds(self._settings) + BEYOND_DRAIN_SECONDS
        order = ReloadRequested(id=new_id())
        try:
            [outcome] = await reload_hosts(bus, subjects, order, [host.name], patience)
        except BusError as error:
            self._report(f"the job code is not reloaded: {error}")
        else:
            self._report(_sentence(outcome))
            if outcome.state == "done":
                self._reloaded()

    async def watch(self) -> None:
        """Without end: a reload when source files of the job modules have changed."""
        files = SourceFiles(self._settings.jobs.modules)
        places = ", ".join(map(str, files.folders)) or "nothing: jobs.modules names no module here"
        self._report(f"watching for changes: {places}")
        changed: set[Path] = set()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if now_changed := await asyncio.to_thread(files.changed):
                changed.update(now_changed)  # an editor or a checkout is still writing
            elif changed:
                self.begin(f"{_names(sorted(changed))} changed")
                changed.clear()


def _sentence(outcome: ReloadReported) -> str:
    if outcome.state == "done":
        return f"the job code is reloaded; {outcome.workers} workers were replaced"
    return f"the job code is not reloaded, the old workers go on: {outcome.error or outcome.state}"


def _names(paths: Sequence[Path]) -> str:
    names = ", ".join(os.path.relpath(path) for path in paths[:_SHOWN_FILES])
    further = len(paths) - _SHOWN_FILES
    return f"{names} and {further} more files" if further > 0 else names
