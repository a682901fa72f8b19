"""`penstock worker`: run one job worker in this terminal, or list the living ones."""

from __future__ import annotations

import click
from msgspec.structs import replace

from penstock.cli import service
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import Column, note, write_rows
from penstock.cli.parameters import POOL, QUEUE
from penstock.cli.session import Session
from penstock.config.profiles import PoolTable
from penstock.config.serving import serving
from penstock.config.topology import pools
from penstock.views import wording
from penstock.views.live_workers import living_workers

COLUMNS = (
    Column("worker", lambda row: row.worker),
    Column("pool", lambda row: row.pool),
    Column("host", lambda row: row.host),
    Column("pid", lambda row: str(row.pid), number=True, rank=3),
    Column("state", lambda row: row.state, rank=1),
    Column("slots", lambda row: wording.used(row.slots_used, row.slots), number=True),
    Column("job", lambda row: row.job_id or wording.UNKNOWN, rank=1),
    Column("for", lambda row: wording.seconds(row.job_seconds), number=True),
    Column("lived", lambda row: wording.seconds(row.lived_seconds), number=True, rank=3),
    Column("cpu", lambda row: wording.seconds(row.cpu_seconds), number=True, rank=4),
    Column("memory", lambda row: wording.memory(row.memory_bytes), number=True),
    Column("build", lambda row: row.build or wording.UNKNOWN, rank=4),
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    service=True,
    example="penstock worker --pool reports\n"
    "penstock worker --pool reports --burst\n"
    "penstock worker --queue old-imports --burst\n"
    "penstock worker ls",
)
@click.option("--pool", type=POOL, help="Run one worker of this pool, without an executor.")
@click.option(
    "--queue", "queues", type=QUEUE, multiple=True, help="Run one worker of queues without a pool."
)
@click.option("--burst", is_flag=True, help="End when no job waits in its queues.")
@click.pass_context
def worker(context: click.Context, pool: str | None, queues: tuple[str, ...], burst: bool) -> None:
    """Run one job worker until Ctrl-C (--pool, --queue), or list workers (ls).

    With --queue it serves queues that no pool takes, excluded ones too; the settings of the
    profile 'balanced' hold for their jobs.
    """
    named = [option for option, value in (("--pool", pool), ("--queue", queues)) if value]
    if context.invoked_subcommand is not None:
        if named:
            raise click.UsageError(f"{named[0]} runs a worker and takes no command", context)
        return
    if len(named) != 1:
        text = "give --pool NAME or --queue NAME to run a worker, or the command ls"
        raise click.UsageError(text, context)
    session = context.ensure_object(Session)
    if queues:
        _run_without_pool(session, queues, burst)
    else:
        _run(session, str(pool), burst)


def _run_without_pool(session: Session, queues: tuple[str, ...], burst: bool) -> None:
    """A worker of a pool that only this process knows. Raises Refused, Failed."""
    run = service.find("worker")
    session.hand_on()
    settings = session.reachable_settings()
    owners = serving(settings)
    for queue in queues:
        if owner := owners.pool(queue):
            raise Refused(f"queue {queue!r} is served by pool {owner!r}; use --pool {owner}")
    names = tuple(dict.fromkeys(queues))
    table = PoolTable(kind="queue" if len(names) == 1 else "group", queues=names)
    own = replace(settings, pools={names[0]: table}, excluded=(), default_pool="")
    run(own, names[0], burst)


def _run(session: Session, pool: str, burst: bool) -> None:
    run = service.find("worker")
    session.hand_on()
    settings = session.reachable_settings()
    configured = pools(settings)
    if pool not in configured:
        names = ", ".join(configured) or "none is configured"
        raise Refused(f"there is no pool {pool!r}; configured pools: {names}")
    run(settings, pool, burst)


@worker.command(name="ls", example="penstock worker ls --json")
@click.pass_obj
def list_workers(session: Session) -> None:
    """List the workers that report now; listens for two seconds at most."""
    rows, silent = session.run(living_workers)
    write_rows(session, rows, COLUMNS, "no worker reports")
    if silent > 0:
        note(f"{silent} started workers did not report within two seconds")
