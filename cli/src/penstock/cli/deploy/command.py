"""`penstock deploy keys`: users, permissions and certificates of an installation."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from penstock.cli.command import Group
from penstock.cli.deploy.roles import ROLES
from penstock.cli.errors import Failed
from penstock.cli.output import note, write_json, write_line
from penstock.cli.session import Session

_RELOAD = "the broker applies it after two reloads: docker-compose kill -s HUP nats, twice"


@click.group(cls=Group, example="penstock deploy keys deploy/secrets")
def deploy() -> None:
    """Keys, certificates and limits of an installation on several hosts."""


@deploy.command(
    example="penstock deploy keys deploy/secrets\n"
    "penstock deploy keys deploy/secrets --name nats.example.org --uid 10001"
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", "names", multiple=True, help="The broker's name or address, beside nats.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=825,
    help="Days for which the TLS certificates are valid.",
)
@click.option(
    "--uid", type=click.IntRange(0), help="User id that owns the files; only root may set it."
)
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
        write_json({"files": [str(path) for path in made]})
        return
    for path in made:
        write_line(str(path))
    owner = os.getuid() if uid is None else uid
    note(f"only user {owner} can read them: containers that use them run as that user")


@deploy.group(cls=Group, example="penstock deploy key ls deploy/secrets")
def key() -> None:
    """Single keys: one for a host, an application or a team, each revocable alone.

    The broker applies a change when it reads its configuration again: `docker-compose kill -s HUP
    nats`, or `nats-server --signal reload`; for a new key twice, since nats-server 2.15.1 links a
    new account only at the next reload. Other keys stay connected.
    """


@key.command(
    example="penstock deploy key add deploy/secrets executor executor-h1 --host h1\n"
    "penstock deploy key add deploy/secrets dispatcher shop --queue mail --queue reports"
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("role", type=click.Choice(list(ROLES)))
@click.argument("name")
@click.option("--host", default="", help="Valid for this host alone.")
@click.option(
    "--queue", "queues", multiple=True, help="Valid for this queue alone; may be repeated."
)
@click.option("--team", default="", help="Prefix of another installation on this broker.")
@click.pass_obj
def add(
    session: Session,
    folder: Path,
    role: str,
    name: str,
    host: str,
    queues: tuple[str, ...],
    team: str,
) -> None:
    """Make one more key of a role, in a folder of its name below FOLDER.

    A bound holds as far as subjects carry it: events of jobs name their queue in the body, and the
    orchestrator makes the message. To keep an application apart, give it a team.
    """
    from penstock.cli.deploy import keys as made_keys  # noqa: PLC0415 - keeps `--help` quick
    from penstock.cli.deploy.accounts import Key  # noqa: PLC0415
    from penstock.events.subjects import check_name  # noqa: PLC0415

    for kind, names in (("key", [name]), ("host", [host]), ("queue", queues), ("team", [team])):
        for checked in filter(None, names):
            check_name(kind, checked)
    prefix = team or session.settings().prefix
    made = made_keys.add(
        folder, Key(name=name, role=role, public="", prefix=prefix, host=host, queues=queues)
    )
    if session.as_json:
        write_json({"files": [str(path) for path in made]})
        return
    for path in made:
        write_line(str(path))
    note(_RELOAD)


@key.command(example="penstock deploy key revoke deploy/secrets executor-h1")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("name")
@click.option("--team", default="", help="Prefix of another installation on this broker.")
@click.pass_obj
def revoke(session: Session, folder: Path, name: str, team: str) -> None:
    """Take one key out of the broker's configuration; all others stay as they are."""
    from penstock.cli.deploy import keys as made_keys  # noqa: PLC0415 - keeps `--help` quick

    revoked = made_keys.revoke(folder, team or session.settings().prefix, name)
    if session.as_json:
        write_json({"revoked": revoked.name})
        return
    write_line(f"{revoked.name} ({revoked.role}) is revoked")
    note(_RELOAD)


@key.command("ls", example="penstock deploy key ls deploy/secrets")
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_obj
def ls(session: Session, folder: Path) -> None:
    """List the keys in the broker's configuration."""
    from penstock.cli.deploy import keys as made_keys  # noqa: PLC0415 - keeps `--help` quick

    registered = made_keys.listed(folder)
    if session.as_json:
        write_json(registered)
        return
    for key in registered:
        bounds = " ".join(filter(None, [key.host, *key.queues]))
        write_line(f"{key.prefix}  {key.role:<12}  {key.name}  {bounds}".rstrip())


@deploy.command(example="penstock deploy limit deploy/secrets --team b --max-bytes 20000000000")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--team", default="", help="Prefix of another installation on this broker.")
@click.option(
    "--max-bytes",
    type=click.IntRange(0),
    required=True,
    help="Bytes of all streams together; 0: no bound.",
)
@click.pass_obj
def limit(session: Session, folder: Path, team: str, max_bytes: int) -> None:
    """Bound the storage that the streams of one installation may use.

    Without it, a team whose JOBS stream is filled takes the storage of all. The bound must hold the
    event log (`streams.events_max_bytes` and a quarter) and the jobs that may wait; beyond it new
    messages of this team alone are refused. In a cluster each copy counts.
    """
    from penstock.cli.deploy import keys as made_keys  # noqa: PLC0415 - keeps `--help` quick

    prefix = team or session.settings().prefix
    made_keys.limit(folder, prefix, max_bytes)
    if session.as_json:
        write_json({"prefix": prefix, "max_bytes": max_bytes})
        return
    write_line(f"{prefix}: {f'{max_bytes:,} bytes' if max_bytes else 'no bound'}")
    note(_RELOAD)


@deploy.command(example="penstock deploy check executor")
@click.argument("role", type=click.Choice(["metrics", "decider", "orchestrator", "executor"]))
@click.pass_obj
def check(session: Session, role: str) -> None:
    """Check whether a service does its work, as the health check of its container.

    It reads the last message that the service stored on the broker; an executor is that of this
    host. Exit code 1: silent for too long.
    """
    from penstock.cli.deploy.check import activity  # noqa: PLC0415 - keeps `--help` quick

    checked = session.run(lambda bus, settings: activity(bus, settings, role))
    if session.as_json:
        write_json(checked)
    silent = checked.silent_seconds
    active = "never active" if silent is None else f"active {silent:.1f} s ago"
    sentence = f"{role}: {active}, at most {checked.allowed_seconds:g} s are allowed"
    if not checked.is_recent:
        raise Failed(sentence)
    if not session.as_json:
        write_line(sentence)


def _hand_over(folder: Path, made: list[Path], uid: int) -> None:
    try:
        for path in {folder, *made, *(path.parent for path in made)}:
            os.chown(path, uid, uid)
    except PermissionError:
        raise Failed(f"--uid {uid}: only root may give files away; leave it out") from None
