"""One service in this process: found through its entry point, so that each can be left out."""

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
"""Entry-point group: a service's name and its ``run(settings)``."""


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
        service(settings)

    return run


metrics = _command(
    "metrics", "Run the measuring service: a snapshot of each pool each second, until SIGTERM."
)
decider = _command(
    "decider", "Run the deciding service: it stands by while another leads, until SIGTERM."
)
executor = _command(
    "executor", "Run this host's executor: it starts and ends workers as commanded, until SIGTERM."
)
orchestrator = _command(
    "orchestrator", "Run the orchestrator: it heals half-finished transitions, until SIGTERM."
)
