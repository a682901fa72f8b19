"""`penstock worker`: run one job worker in this terminal, or list the living ones."""

from __future__ import annotations

import click

from penstock.cli import service
from penstock.cli.command import Group
from penstock.cli.errors import Refused
from penstock.cli.output import Column, note, write_rows
from penstock.cli.parameters import POOL
from penstock.cli.session import Session
from penstock.config.topology import pools
from penstock.views import wording
from penstock.views.live_workers import living_workers

COLUMNS = (
    Column("worker", lambda row: row.worker),
    Column("pool", lambda row: row.pool),
    Column("host", lambda row: row.host),
    Column("pid", lambda row: str(row.pid), number=True),
    Column("state", lambda row: row.state),
    Column("slots", lambda row: wording.used(row.slots_used, row.slots), number=True),
    Column("job", lambda row: row.job_id or wording.UNKNOWN),
    Column("for", lambda row: wording.seconds(row.job_seconds), number=True),
    Column("lived", lambda row: wording.seconds(row.lived_seconds), number=True),
    Column("cpu", lambda row: wording.seconds(row.cpu_seconds), number=True),
    Column("memory", lambda row: wording.memory(row.memory_bytes), number=True),
    Column("build", lambda row: row.build or wording.UNKNOWN),
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    service=True,
    example="penstock worker --pool reports\n"
    "penstock worker --pool reports --burst\n"
    "penstock worker ls",
)
@click.option("--pool", type=POOL, help="Run one worker of this pool, without an executor.")
@click.option("--burst", is_flag=True, help="With --pool: end when no job waits in its queues.")
@click.pass_context
def worker(context: click.Context, pool: str | None, burst: bool) -> None:
    """Run one job worker until Ctrl-C (--pool), or list workers (ls)."""
    if context.invoked_subcommand is not None:
        if pool:
            raise click.UsageError("--pool runs a worker and takes no command", context)
        return
    if pool is None:
        raise click.UsageError("give --pool NAME to run a worker, or the command ls", context)
    _run(context.ensure_object(Session), pool, burst)


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
