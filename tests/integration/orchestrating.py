"""An orchestrator as a process of its own, which dies at a chosen moment.

``python -m tests.integration.orchestrating SETTINGS [BEFORE|AFTER PATTERN]``: it kills itself
before (or after) it stores the first message whose subject matches the pattern.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.config import Settings
from penstock.orchestrator.app import Orchestrator
from penstock.runtime import children, service_process
from penstock.runtime.children import Child
from penstock.runtime.service import Service

RECONCILED_AFTER_SECONDS = 1.0

Start = Callable[..., Child]
"""Starts an orchestrator that ends with the test; arguments as of :func:`start`."""


class Doomed:
    """A bus whose process dies at its first message that matches."""

    def __init__(self, bus: Bus, when: str, pattern: str) -> None:
        self._bus, self._when, self._pattern = bus, when, re.compile(pattern)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def _die(self, when: str, messages: Sequence[Outgoing]) -> None:
        if when == self._when and any(self._pattern.search(each.subject) for each in messages):
            os.kill(os.getpid(), signal.SIGKILL)

    async def append(self, message: Outgoing) -> int:
        self._die("BEFORE", [message])
        sequence = await self._bus.append(message)
        self._die("AFTER", [message])
        return sequence

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        self._die("BEFORE", messages)
        answers = await self._bus.append_many(messages)
        self._die("AFTER", messages)
        return answers


def start(settings: Settings, *doom: str, environment: Mapping[str, str] | None = None) -> Child:
    """The process; its log lies beside the run folder."""
    written = msgspec.json.encode(settings).decode()
    argv = [sys.executable, "-m", "tests.integration.orchestrating", written, *doom]
    log = Path(settings.host.run_dir).parent / "orchestrator.log"
    return children.start(argv, name="orchestrator", log=log, env=environment)


def main(arguments: list[str]) -> None:
    settings = msgspec.json.decode(arguments[0], type=Settings)

    async def body(running: Service) -> None:
        if doom := arguments[1:]:
            running.bus = Doomed(running.bus, *doom)  # type: ignore[assignment,arg-type]
        await Orchestrator(running, after_seconds=RECONCILED_AFTER_SECONDS).run()

    service_process.run("orchestrator", settings, body)


if __name__ == "__main__":
    main(sys.argv[1:])
