"""Settings that change while a service runs: read anew, checked, taken over or refused.

A file that cannot be read or used changes nothing: the settings of before stay in force. What was
refused, and why, is logged and published with the settings in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import BusError
from penstock.config import ConfigError, Settings
from penstock.config.reloading import changed_names
from penstock.events.subjects import Subjects
from penstock.operations.settings_in_force import EVERY_SECONDS, Announcer
from penstock.runtime.service import Service
from penstock.runtime.tasks import within

log = logging.getLogger("penstock")

Reread = Callable[[], Settings]
"""Reads file and environment anew; raises ConfigError."""
Check = Callable[[Settings], object]
"""Raises ConfigError where a service could not work with these settings."""

_MOST_SHOWN = 10
_OWN = "settings of this machine alone, such as addresses and keys"
_MOST_REASON_LENGTH = 1000


class Reloader:
    """Reloads the settings of one service, and publishes those in force.

    Args:
        service: takes the settings over itself where it declared so (`Service.on_new_settings`);
            else it ends in order, and the caller starts it anew in this process.
        reread: None where there is nothing to read anew.
        check: of this service.
        refused: why this process does not start with the settings of the file; empty for none.

    Attributes:
        next: the settings that the service is to be started with anew; None for none.
    """

    def __init__(
        self, service: Service, reread: Reread | None, check: Check, refused: str = ""
    ) -> None:
        self._service, self._reread, self._check = service, reread, check
        self._announcer = Announcer(service.bus, service.name, service.settings)
        self._announcer.refused = refused[:_MOST_REASON_LENGTH]
        self._changed = asyncio.Event()
        self.next: Settings | None = None

    def reload(self) -> None:
        """Reads the settings anew and takes them over. Never raises: errors are logged."""
        if self._service.stopping.is_set() and self.next is None:
            return
        if self._reread is None:
            log.info("this process was started without a file: its settings stay as they are")
            return
        self._announcer.refused = ""
        try:
            settings = self._reread()
            self._check(settings)
            self._take(settings)
        except (ConfigError, ValueError, OSError) as error:
            self._announcer.refused = str(error)[:_MOST_REASON_LENGTH]
            log.error("settings are not reloaded, those of before stay in force: %s", error)
        self._changed.set()

    async def run(self) -> None:
        """Publishes the settings in force, and reloads when an operator asks. Ends never."""
        subjects = Subjects(self._service.settings.prefix)
        with suppress(BusError):
            await self._service.bus.listen(subjects.settings_reload(), lambda *_: self.reload())
        with suppress(BusError):  # else their records count until they are too old
            await self._announcer.mark_dead()
        while True:
            self._changed.clear()
            try:
                if self.next is None:  # else the record of the next start is the answer
                    await self._announcer.publish()
            except NotPermitted as error:
                log.info("the settings in force are not published: %s", error)
                return
            except BusError as error:
                log.debug("the settings in force are not published: %s", error)
            await within(EVERY_SECONDS, self._changed.wait())

    async def say_ended(self) -> None:
        """Publishes that this process has ended, unless it goes on with other settings."""
        if self.next is None:
            with suppress(BusError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._announcer.publish(ended=True)

    def _take(self, new: Settings) -> None:
        current = self.next or self._announcer.settings  # a second change while it ends counts too
        if new == current:
            log.info("settings are reloaded: nothing has changed")
            return
        changes = changed_names(new, current) or [_OWN]
        shown = ", ".join(changes[:_MOST_SHOWN]) + (", ..." if len(changes) > _MOST_SHOWN else "")
        take = self._service.take_settings
        if take is None:
            log.info("settings are reloaded, the service starts anew with them: %s", shown)
            self.next = new
            self._service.stopping.set()
            return
        self._announcer.settings, self._announcer.waiting = take(new)
        log.info("settings are reloaded: %s", shown)
        if waiting := self._announcer.waiting:
            log.warning("settings that wait for a restart: %s", ", ".join(waiting[:_MOST_SHOWN]))
