"""`ls` of batches and of graphs: the commands that list the newest ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.output import Column, write_rows
from penstock.cli.parameters import MOST_ROWS
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.jobs.client import Client
from penstock.views.workflow_list import Record, newest

_PLURALS = {"batch": "batches", "graph": "graphs"}


def list_command(
    noun: Literal["batch", "graph"],
    states: type[StrEnum],
    *,
    help: str,
    example: str,
    show: Callable[[Client, str], Awaitable[Record]],
    moment: Callable[[Record], datetime],
    row: Callable[[Record], Any],
    columns: Sequence[Column],
    nothing: str,
) -> click.Command:
    """The command ``ls`` of a group.

    Args:
        noun: what is listed.
        states: that one may be in.
        help: of the command.
        example: likewise.
        show: reads one by its id.
        moment: the time to sort by, the latest first.
        row: one as an entry of the list.
        columns: of the list.
        nothing: printed where the list is empty.
    """
    names = [state.value for state in states]

    @click.command(name="ls", cls=Command, help=help, example=example)
    @click.option("--state", type=click.Choice(names), help=f"Only {_PLURALS[noun]} in this state.")
    @MOST_ROWS
    @click.pass_obj
    def list_newest(session: Session, state: str | None, limit: int) -> None:
        async def request(bus: Bus, settings: Settings) -> list[Any]:
            client = Client.over(bus, settings, "cli")
            records = await newest(bus, settings, noun, lambda one: show(client, one), moment)
            return [row(record) for record in records if state in {None, record.state}][:limit]

        write_rows(session, session.run(request), columns, nothing)

    return list_newest
