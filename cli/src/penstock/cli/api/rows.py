"""`penstock api rows`: what a console has read of the event log, and to have it read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.bus.protocol import Bus, BusError
from penstock.cli.api.console_caller import ConsoleCaller, NotLetIn
from penstock.cli.api.recorded import acted
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import note, write_json, write_line, write_lines
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import ConfigError, Settings
from penstock.events.subjects import Subjects
from penstock.operations.settings_in_force import services
from penstock.runtime.console_place import as_configured, find

Answer = dict[str, Any]
Call = Callable[[ConsoleCaller, str], Answer]

_TOKEN_NAME = "penstock api rows"  # noqa: S105 - no password
_KNOWN_SECONDS, _LOOK_SECONDS = 10.0, 0.1
"""A console knows a token once it has read of it."""
_MIB = 2**20
_URL = click.option("--url", default="", help="Of the console; by default as the settings say.")
_TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with an API token. Without it one is made for this call, and revoked.",
)
_CA_FILE = click.option(
    "--ca-file",
    default="",
    help="PEM of the authority that signed the console's certificate; by default nats.ca_file.",
)


@click.group(cls=Group, example="penstock api rows show")
def rows() -> None:
    """The console's rows: what it has read of the event log."""


@rows.command(
    example="penstock api rows show\npenstock api rows show --url https://console:9470 --json"
)
@_URL
@_TOKEN_FILE
@_CA_FILE
@click.pass_obj
def show(session: Session, url: str, token_file: Path | None, ca_file: str) -> None:
    """Show how current a console's rows are, how large, and what they lack."""

    def ask(console: ConsoleCaller, token: str) -> Answer:
        return {"url": console.url, **console.get("/health", token)}

    answer = _request(session, ask, "read", url, token_file, ca_file, may_ask_without=True)
    if not url and not find(session.settings()):
        _refuse_foreign(session, answer)
    if session.as_json:
        write_json(answer)
    else:
        write_lines(_lines(answer))


@rows.command(
    example='penstock api rows rebuild --reason "restored from a backup"\n'
    "penstock api rows rebuild --url https://console:9470 --token-file admin.token"
)
@click.option("--reason", default="", help="For people; pages show it until the rows are there.")
@_URL
@_TOKEN_FILE
@_CA_FILE
@click.pass_obj
def rebuild(session: Session, reason: str, url: str, token_file: Path | None, ca_file: str) -> None:
    """Have a console make its rows anew from the event log, beside those that serve.

    A read-only console takes no such request: stop it, remove its files (console.folder), and start
    it again.
    """

    def ask(console: ConsoleCaller, token: str) -> Answer:
        return {"url": console.url, **console.post("/rebuild", {"reason": reason}, token)}

    answer = _request(session, ask, "admin", url, token_file, ca_file)
    if session.as_json:
        write_json(answer)
        return
    write_line(f"begun: {answer.get('rebuilding') or 'the rows are made anew already'}")
    note("the former rows serve until the new ones are whole; see 'penstock api rows show'")


def _request(
    session: Session,
    call: Call,
    scope: str,
    url: str,
    token_file: Path | None,
    ca_file: str,
    *,
    may_ask_without: bool = False,
) -> Answer:
    """What the console answers: without a token where it lets anyone in, else with one.

    Args:
        scope: that the call needs.
        may_ask_without: first ask without a token, as on loopback.
    """
    settings = session.settings()
    console = ConsoleCaller(
        url or find(settings) or as_configured(settings), ca_file or settings.nats.ca_file
    )
    try:
        if token_file is not None:
            return call(console, _token_in(token_file))
        if may_ask_without:
            return call(console, "")
    except NotLetIn:
        if token_file is not None:
            raise Failed(f"{console.url} does not know the token in {token_file}") from None
    return session.run(lambda bus, own: _with_own_token(bus, own, console, call, scope))


def _refuse_foreign(session: Session, answer: Answer) -> None:
    """Refuses a console that only happens to listen where these settings say.

    Raises:
        Refused: it is of another installation.
    """
    process: Answer = answer.get("process") or {}
    where = (process.get("host"), process.get("pid"))

    async def own(bus: Bus, settings: Settings) -> bool:
        running = await services(bus, Subjects(settings.prefix))
        return any((one.host, one.pid) == where for one in running if one.service == "console")

    try:
        is_own = session.run(own)
    except (BusError, ConfigError):  # which installation is asked for is not known
        is_own = process.get("prefix") == session.settings().prefix
    if not is_own:
        raise Refused(
            f"the console at {answer['url']} is of another installation (prefix "
            f"{process.get('prefix', 'unknown')}, process {where[1]} on {where[0]}); give the "
            "address of the one that is meant with --url"
        )


async def _with_own_token(
    bus: Bus, settings: Settings, console: ConsoleCaller, call: Call, scope: str
) -> Answer:
    """Calls with a token that is valid for this call alone, as the key of the broker allows."""
    token, made = await acted(
        bus,
        settings,
        "token.create",
        f"token:{_TOKEN_NAME}",
        lambda access: access.create_token(_TOKEN_NAME, [scope], owner=giver(), days=1),
    )
    try:
        async with asyncio.timeout(_KNOWN_SECONDS):
            while True:
                try:
                    return await asyncio.to_thread(call, console, token)
                except NotLetIn:
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise Failed(
            f"{console.url} does not know tokens of this installation: is it the console of "
            f"another one (nats.url, prefix {settings.prefix!r})?"
        ) from None
    finally:
        await acted(
            bus,
            settings,
            "token.revoke",
            f"token:{made.token_id}",
            lambda access: access.revoke_token(made.token_id),
        )


def _token_in(file: Path) -> str:
    text = file.read_text("utf-8", "replace").strip()
    if not text or not text.isascii() or len(text.split()) != 1:
        raise Refused(f"{file}: expected one token and nothing else")
    return text


def _lines(answer: Answer) -> list[str]:
    standing: Answer = answer.get("standing") or {}
    since, as_of = standing.get("complete_since"), standing.get("as_of")
    size = answer.get("database_bytes", 0) / _MIB
    facts = {
        "console": answer["url"],
        "rows": f"{answer.get('state')}, up to event {standing.get('position', 0):,}"
        f" of {as_of or 'none yet'}",
        "behind": f"{standing.get('behind_seconds', 0.0):.1f} s",
        "size": f"{size:,.1f} MiB",
        "missing": standing.get("gap") or "nothing",
        "complete": f"since {since}" if since else "from the first event on",
        "made anew": standing.get("rebuilding") or "no",
        "held back": "; ".join(standing.get("held_back") or ()) or "nothing",
    }
    return [f"{name:<10} {text}" for name, text in facts.items()]
