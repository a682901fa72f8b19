"""`penstock deploy keys`: users, permissions and certificates of an installation."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.output import note, say, say_json
from penstock.cli.session import Session


@click.group(cls=Group, example="penstock deploy keys deploy/secrets")
def deploy() -> None:
    """What an installation on several hosts needs before it starts."""


@deploy.command(
    example="penstock deploy keys deploy/secrets\n"
    "penstock deploy keys deploy/secrets --name nats.example.org --uid 10001"
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", "names", multiple=True, help="The broker's name or address, beside nats.")
@click.option("--days", type=click.IntRange(1, 3650), default=825, help="How long TLS is valid.")
@click.option("--uid", type=click.IntRange(0), help="Who shall own the files; only root may say.")
@click.pass_obj
def keys(
    session: Session, folder: Path, names: tuple[str, ...], days: int, uid: int | None
) -> None:
    """Make a key for each role, the broker's users with their permissions, and TLS certificates.

    FOLDER must not exist: keys in use are never overwritten. Only the owner can read the files.
    """
    from penstock.cli.deploy.keys import write  # noqa: PLC0415 - keeps `--help` quick

    reached_by = dict.fromkeys(("nats", "localhost", "127.0.0.1", *names))
    prefix = session.settings().prefix
    made = write(folder, prefix, tuple(reached_by), datetime.now(UTC), days)
    if uid is not None:
        _hand_over(folder, made, uid)
    if session.as_json:
        say_json({"files": [str(path) for path in made]})
        return
    for path in made:
        say(str(path))
    owner = os.getuid() if uid is None else uid
    note(f"only user {owner} can read them: containers that use them run as that user")


@deploy.command(example="penstock deploy check executor")
@click.argument("role", type=click.Choice(["metrics", "decider", "orchestrator", "executor"]))
@click.pass_obj
def check(session: Session, role: str) -> None:
    """Whether a service does its work: the health check of its container.

    Looks at what the service leaves on the broker; an executor is that of this host. Exit code 1:
    silent for too long.
    """
    from penstock.cli.deploy.check import look  # noqa: PLC0415 - keeps `--help` quick

    found = session.ask(lambda bus, settings: look(bus, settings, role))
    if session.as_json:
        say_json(found)
    silent = found.silent_seconds
    heard = "never heard" if silent is None else f"heard {silent:.1f} s ago"
    said = f"{role}: {heard}, at most {found.allowed_seconds:g} s are allowed"
    if not found.fine:
        raise Failed(said)
    if not session.as_json:
        say(said)


def _hand_over(folder: Path, made: list[Path], uid: int) -> None:
    try:
        for path in {folder, *made, *(path.parent for path in made)}:
            os.chown(path, uid, uid)
    except PermissionError:
        raise Failed(f"--uid {uid}: only root may give files away; leave it out") from None
