"""One call of `penstock`: its global options, the settings, the connection to the broker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.bus.protocol import Bus
    from penstock.config import Settings
    from penstock.jobs.client import Client

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""How long a command waits for the broker; services wait `nats.connect_timeout_seconds`."""


@dataclass
class Session:
    """The global options; None for one that was not given."""

    config_file: str | None = None
    nats_url: str | None = None
    as_json: bool = False
    wide: bool = False
    log_level: str | None = None
    log_json: bool = False

    def start_logging(self, service: bool) -> None:
        """Log lines on standard error: from INFO for a service, from WARNING for a command."""
        from penstock.telemetry.lines import start  # noqa: PLC0415 - keeps `--help` quick

        start(self.log_level or ("info" if service else "warning"), self.log_json)

    def flags(self) -> list[str]:
        """The options that this command passes on to the services that it starts."""
        named = (("--config", self.config_file), ("--log-level", self.log_level))
        flags = [part for name, value in named if value for part in (name, value)]
        return [*flags, *(["--log-json"] if self.log_json else [])]

    def hand_on(self) -> None:
        """Puts the settings into the environment, for commands that jobs of this service start."""
        if self.config_file:
            os.environ["PENSTOCK_CONFIG"] = os.path.abspath(self.config_file)  # noqa: PTH100
        if self.nats_url:
            os.environ["PENSTOCK_NATS__URL"] = self.nats_url

    def settings(self) -> Settings:
        """The settings in force. Raises ConfigError."""
        from penstock.config import load  # noqa: PLC0415 - keeps `--help` quick

        return load(self.config_file, flags={"nats.url": self.nats_url})

    def reachable_settings(self) -> Settings:
        """The settings with a broker in them: the configured one, else that of `penstock up` here.

        Raises:
            ConfigError: neither is there.
        """
        from penstock.runtime.local_broker import reachable  # noqa: PLC0415

        return reachable(self.settings())

    @asynccontextmanager
    async def bus(
        self, settings: Settings, patience_seconds: float = PATIENCE_SECONDS
    ) -> AsyncIterator[Bus]:
        """A connection, which is closed with the block."""
        from penstock.bus.nats import connect  # noqa: PLC0415

        bus = await connect(_with_timeout(settings, patience_seconds))
        async with self._using(bus, settings):
            yield bus

    @asynccontextmanager
    async def _late_bus(self, settings: Settings) -> AsyncIterator[Bus]:
        """The same, with a bus whose broker may be away."""
        from penstock.bus.late import late_bus  # noqa: PLC0415
        from penstock.runtime.local_broker import reachable  # noqa: PLC0415

        bus = await late_bus(_with_timeout(settings, PATIENCE_SECONDS), "penstock-cli", reachable)
        async with self._using(bus, settings):
            yield bus

    @asynccontextmanager
    async def _using(self, bus: Bus, settings: Settings) -> AsyncIterator[Bus]:
        from penstock import telemetry  # noqa: PLC0415

        end_telemetry = telemetry.setup("penstock-cli", str(os.getpid()), settings)
        try:
            yield bus
        finally:
            await bus.close()
            end_telemetry()

    def run(self, request: Callable[[Bus, Settings], Awaitable[T]]) -> T:
        """Connects, runs the request, disconnects: the whole of most commands."""
        import asyncio  # noqa: PLC0415 - keeps `--help` quick

        settings = self.reachable_settings()

        async def connected() -> Any:
            async with self.bus(settings) as bus:
                return await request(bus, settings)

        answer: T = asyncio.run(connected())
        return answer

    def with_client(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """The same, with a client of jobs."""
        from penstock.jobs.client import Client  # noqa: PLC0415 - keeps `--help` quick

        return self.run(lambda bus, settings: request(Client.over(bus, settings, "cli")))

    def run_offline(self, request: Callable[[Bus, Settings], Awaitable[T]]) -> T:
        """The same, also while the broker is away: calls of the bus raise BusUnavailable then."""
        import asyncio  # noqa: PLC0415

        settings = self.settings()

        async def connected() -> Any:
            async with self._late_bus(settings) as bus:
                return await request(bus, settings)

        answer: T = asyncio.run(connected())
        return answer


def _with_timeout(settings: Settings, seconds: float) -> Settings:
    """The settings with a connect timeout of at most so many seconds."""
    from msgspec.structs import replace  # noqa: PLC0415

    timeout = min(seconds, settings.nats.connect_timeout_seconds)
    return replace(settings, nats=replace(settings.nats, connect_timeout_seconds=timeout))
