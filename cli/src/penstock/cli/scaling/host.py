"""`penstock host`: hosts, and an operator's orders about them."""

from __future__ import annotations

import difflib

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import HOST
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.orders import HostDrained, HostOrder, HostPaused, HostResumed
from penstock.events.subjects import Subjects
from penstock.operations.orders import OperatorOrders
from penstock.views import wording
from penstock.views.pool_board import HostRow, host_rows

COLUMNS = (
    Column("host", lambda row: row.host),
    Column("state", lambda row: row.state, rank=1),
    Column("cores", lambda row: f"{row.cpu_busy_cores:.1f} of {row.cpu_cores:g}", number=True),
    Column(
        "memory",
        lambda row: (
            f"{wording.memory(row.memory_used_bytes)} of {wording.memory(row.memory_bytes)}"
        ),
        number=True,
    ),
    Column("planned", lambda row: str(row.planned), number=True),
    Column("started", lambda row: str(row.started), number=True),
    Column("ready", lambda row: str(row.ready), number=True),
    Column("draining", lambda row: str(row.draining), number=True),
    Column("measured", lambda row: wording.ago(row.age_seconds)),
    Column("reason", lambda row: row.reason or wording.UNKNOWN, rank=3, sentence=True),
)
_REASON = click.option("--reason", default="", help="Shown with the host.")
_FORCE = click.option("--force", is_flag=True, help="Also a host that has not been seen here.")


@click.group(cls=Group, example="penstock host ls")
def host() -> None:
    """Hosts: their load and their workers; take one out of service and back."""


@host.command(name="ls", example="penstock host ls --json")
@click.pass_obj
def list_hosts(session: Session) -> None:
    """List every host that was seen lately, with an operator's orders."""
    rows = session.run(host_rows)
    write_rows(session, rows, COLUMNS, "no host was seen; does an executor run?")


@host.command(example="penstock host drain node-3 --reason 'new kernel'")
@click.argument("name", metavar="HOST", type=HOST)
@_REASON
@_FORCE
@click.pass_obj
def drain(session: Session, name: str, reason: str, force: bool) -> None:
    """Empty a host: its workers finish their jobs and are replaced on other hosts.

    Its executor goes on, so that the host can be resumed. A busy worker may finish for
    host.drain_seconds; until the last one has ended, 'penstock host ls' says "draining", then
    "drained". Where no other host has room, jobs wait.
    """
    rows = _order(session, HostDrained, name, reason, force)
    others = [row for row in rows if row.host != name and row.state == "ok"]
    if not others:
        note(
            "no other host takes workers: jobs wait until one does, or until "
            f"'penstock host resume {name}'"
        )


@host.command(example="penstock host pause node-3 --reason 'disk is slow'")
@click.argument("name", metavar="HOST", type=HOST)
@_REASON
@_FORCE
@click.pass_obj
def pause(session: Session, name: str, reason: str, force: bool) -> None:
    """Keep a host at the workers it has: it gets no more, and a lost worker is replaced."""
    _order(session, HostPaused, name, reason, force)


@host.command(example="penstock host resume node-3")
@click.argument("name", metavar="HOST", type=HOST)
@_FORCE
@click.pass_obj
def resume(session: Session, name: str, force: bool) -> None:
    """Let a paused or drained host take workers again."""
    _order(session, HostResumed, name, "", force)


_STATES = {HostDrained: "being drained", HostPaused: "paused", HostResumed: "in service"}


def _order(
    session: Session, kind: type[HostOrder], name: str, reason: str, force: bool
) -> list[HostRow]:
    async def request(bus: Bus, settings: Settings) -> list[HostRow]:
        rows = await host_rows(bus, settings)
        if not force:
            _check_seen(name, rows)
        orders = OperatorOrders(bus, Subjects(settings.prefix), giver())
        await orders.set_host(kind, name, reason)
        return rows

    rows = session.run(request)
    if session.as_json:
        write_json({"host": name, "state": _STATES[kind]})
    else:
        write_line(f"host {name} is {_STATES[kind]}")
    return rows


def _check_seen(name: str, rows: list[HostRow]) -> None:
    """Raises Refused: an order about a misspelt name would have no effect."""
    names = [row.host for row in rows]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
        raise Refused(f"no host {name!r} was seen here; {hint} (or --force)")
