"""Runs one service in this process, by its entry point, since each may be missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed
from penstock.cli.session import Session
from penstock.config.topology import pools

GROUP = "penstock.services"
"""Entry-point group: a service's name and its ``run(settings, reread)``."""


def installed(name: str) -> bool:
    return bool(entry_points(group=GROUP, name=name))


def find(name: str) -> Callable[..., Any]:
    """A service's ``run``.

    Raises:
        Failed: its distribution is not installed.
    """
    for point in entry_points(group=GROUP, name=name):
        run: Callable[..., Any] = point.load()
        return run
    raise Failed(f"the service {name!r} is not installed here; install the package penstock-{name}")


def _command(name: str, about: str) -> click.Command:
    @click.command(
        name, cls=Command, service=True, help=about, example=f"penstock {name} --log-level debug"
    )
    @click.pass_obj
    def run(session: Session) -> None:
        service = find(name)
        session.hand_on()
        settings = session.reachable_settings()
        pools(settings)  # refused here rather than half-way through
        service(settings, session.reachable_settings)

    return run


metrics = _command(
    "metrics", "Run the metrics service: a snapshot of each pool each second, until SIGTERM."
)
decider = _command(
    "decider", "Run the decider: it stands by while another one leads, until SIGTERM."
)
executor = _command(
    "executor", "Run this host's executor: it starts and ends workers as commanded, until SIGTERM."
)
orchestrator = _command(
    "orchestrator",
    "Run the orchestrator: it completes transitions that a crash cut off, until SIGTERM.",
)
scaler = _command(
    "scaler",
    "Run the external scaler: KEDA asks it what pools need, until SIGTERM.",
)
console = _command(
    "console", "Run the console: web pages and an HTTP API over the event log, until SIGTERM."
)
