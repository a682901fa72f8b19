"""`penstock api mute`: functions whose failures the console counts and does not list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from penstock.bus.protocol import Bus, WrongSequence
from penstock.cli.command import Command
from penstock.cli.errors import Refused
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.muting import FunctionMuted
from penstock.events.subjects import Subjects
from penstock.operations.audit_log import AuditLog
from penstock.operations.muted_functions import MutedFunctions, MuteRefused

COLUMNS = (
    Column("function", lambda muted: muted.function),
    Column("since", lambda muted: muted.at.strftime("%Y-%m-%d %H:%M"), rank=1),
    Column("by", lambda muted: muted.by, rank=1),
    Column("reason", lambda muted: muted.reason),
)


@click.command(cls=Command, example="penstock api mute shop.load --reason 'a known fault, #4711'")
@click.argument("function")
@click.option("--reason", default="", help="Shown with it.")
@click.pass_obj
def mute(session: Session, function: str, reason: str) -> None:
    """Count a function's failures, and list them no more: not among alerts either.

    Its jobs run as before. 'penstock api muted' and the page Silenced list it.
    """
    _acted(
        session,
        "function.mute",
        function,
        lambda functions: functions.mute(function, giver(), reason),
        {"reason": reason} if reason else {},
    )
    _report(session, function, "muted")


@click.command(cls=Command, example="penstock api unmute shop.load")
@click.argument("function")
@click.pass_obj
def unmute(session: Session, function: str) -> None:
    """List a function's failures again."""
    _acted(
        session, "function.unmute", function, lambda functions: functions.unmute(function, giver())
    )
    _report(session, function, "not muted")


@click.command(cls=Command, example="penstock api muted --json")
@click.pass_obj
def muted(session: Session) -> None:
    """List the functions that are muted, with who did so and why."""

    async def read(bus: Bus, settings: Settings) -> list[FunctionMuted]:
        functions = MutedFunctions(bus, Subjects(settings.prefix), giver())
        return [*reversed((await functions.all()).values())]

    rows = session.run(read)
    if session.as_json:
        write_json(
            [{"function": m.function, "since": m.at, "by": m.by, "reason": m.reason} for m in rows]
        )
        return
    write_rows(session, rows, COLUMNS, "no function is muted")


def _acted(
    session: Session,
    action: str,
    function: str,
    work: Callable[[MutedFunctions], Awaitable[int]],
    after: dict[str, str] | None = None,
) -> None:
    """Does something between two entries of the audit log."""

    async def run(bus: Bus, settings: Settings) -> None:
        subjects, actor = Subjects(settings.prefix), giver()
        log, target = AuditLog(bus, subjects, actor), f"function:{function[:200]}"
        begun = await log.record(actor, action, "begun", target=target)
        try:
            await work(MutedFunctions(bus, subjects, actor))
        except (MuteRefused, WrongSequence) as error:
            await log.record(
                actor, action, "refused", target=target, of=begun.number, detail=str(error)
            )
            raise Refused(str(error)) from None
        await asyncio.shield(
            log.record(actor, action, "done", target=target, of=begun.number, after=after)
        )

    session.run(run)


def _report(session: Session, function: str, state: str) -> None:
    if session.as_json:
        write_json({"function": function, "state": state})
    else:
        write_line(f"function {function} is {state}")
