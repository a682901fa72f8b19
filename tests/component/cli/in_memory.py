"""Commands in this process, over a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from click.testing import CliRunner, Result

from penstock.bus.protocol import Bus
from penstock.cli.main import cli
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.jobs import Client, State
from penstock.testing import Bench


class InMemory(Session):
    """Commands that reach a broker in memory.

    Attributes:
        bench: that broker, with workers and an orchestrator.
    """

    def __init__(self, bench: Bench | None = None) -> None:
        super().__init__()
        self.loop, self.bench = asyncio.new_event_loop(), bench or Bench()

    def settings(self) -> Settings:
        return self.bench.settings

    def run(self, request: Callable[[Bus, Settings], Awaitable[Any]]) -> Any:
        return self.loop.run_until_complete(request(self.bench.bus, self.settings()))

    def with_client(self, request: Callable[[Client], Awaitable[Any]]) -> Any:
        return self.loop.run_until_complete(request(self.bench.client))

    def call(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, obj=self)

    def state(self, workflow_id: str) -> State:
        view: Any = self.with_client(lambda client: client.job(workflow_id))
        state: State = view.state
        return state
