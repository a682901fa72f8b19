"""`penstock worker`: run one job worker in this terminal, list the living ones, drain one."""

from __future__ import annotations

import difflib

import click
from msgspec.structs import replace

from penstock.bus.protocol import Bus
from penstock.cli import service
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.parameters import POOL, QUEUE
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.profiles import PoolTable
from penstock.config.serving import serving
from penstock.config.topology import pools
from penstock.events.draining import DrainOutcome
from penstock.events.subjects import Subjects
from penstock.operations.draining import drain_worker
from penstock.views import wording
from penstock.views.live_workers import WorkerRow, living_workers

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
    "penstock worker ls\n"
    "penstock worker drain node-3-1a2b3c4d-7 --reason 'uses too much memory'",
)
@click.option("--pool", type=POOL, help="Run one worker of this pool, without an executor.")
@click.option(
    "--queue", "queues", type=QUEUE, multiple=True, help="Run one worker of queues without a pool."
)
@click.option("--burst", is_flag=True, help="End when no job waits in its queues.")
@click.pass_context
def worker(context: click.Context, pool: str | None, queues: tuple[str, ...], burst: bool) -> None:
    """Run one job worker until Ctrl-C (--pool, --queue), list workers (ls), or end one (drain).

    With --queue it serves queues that no pool takes, excluded ones too; the settings of the
    profile 'balanced' hold for their jobs.
    """
    named = [option for option, value in (("--pool", pool), ("--queue", queues)) if value]
    if context.invoked_subcommand is not None:
        if named:
            raise click.UsageError(f"{named[0]} runs a worker and takes no command", context)
        return
    if len(named) != 1:
        text = "give --pool NAME or --queue NAME to run a worker, or a command: ls, drain"
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


@worker.command(example="penstock worker drain node-3-1a2b3c4d-7 --reason 'uses too much memory'")
@click.argument("name", metavar="WORKER")
@click.option("--reason", default="", help="Stands in the executor's log.")
@click.pass_obj
def drain(session: Session, name: str, reason: str) -> None:
    """End one worker: it finishes its jobs, and its executor starts another if one is planned.

    A busy worker may finish for host.drain_seconds. To have fewer workers, hold the pool
    (penstock pool hold) or drain the host (penstock host drain).
    """

    async def request(bus: Bus, settings: Settings) -> tuple[WorkerRow, DrainOutcome | None]:
        rows, _ = await living_workers(bus, settings)
        row = _living(name, rows)
        subjects = Subjects(settings.prefix)
        by = giver()
        return row, await drain_worker(bus, subjects, row.host, name, by=by, reason=reason)

    row, outcome = session.run(request)
    if outcome is None:
        raise Failed(f"the executor of host {row.host} did not answer; see 'penstock health'")
    if outcome == "unknown":
        raise Refused(
            f"no executor of host {row.host} runs worker {name}: where 'penstock worker --pool' "
            "runs it, Ctrl-C ends it after its jobs"
        )
    if session.as_json:
        write_json({"worker": name, "host": row.host, "outcome": outcome})
    else:
        text = "is draining already" if outcome == "already" else "is being drained"
        write_line(f"worker {name} of pool {row.pool} {text}")


def _living(name: str, rows: list[WorkerRow]) -> WorkerRow:
    """The worker's row. Raises Refused: none of this name reports."""
    row = next((row for row in rows if row.worker == name), None)
    if row is None:
        near = difflib.get_close_matches(name, [row.worker for row in rows], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "'penstock worker ls' lists them"
        raise Refused(f"no worker {name!r} reports; {hint}")
    return row
