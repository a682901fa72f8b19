"""`penstock recover`: jobs that make no progress though their worker lives."""

from __future__ import annotations

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import Column, note, write_rows
from penstock.cli.parameters import JOB_ID, QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.cli.workflows.recover_workflows import recover_workflows
from penstock.config import Settings
from penstock.events.envelope import new_id
from penstock.events.recovering import RecoverAsked, Strategy, Suspect
from penstock.events.subjects import Subjects
from penstock.operations.recovering import PATIENCE_SECONDS, recover_on_hosts, recover_silent
from penstock.views import wording

COLUMNS = (
    Column("job", lambda row: row.job_id),
    Column("queue", lambda row: row.queue),
    Column("worker", lambda row: f"{row.worker} on {row.host}"),
    Column("score", lambda row: f"{row.score:.2f}", number=True, rank=1),
    Column("heartbeat", lambda row: f"{row.heartbeat:.2f}", number=True),
    Column("run time", lambda row: f"{row.run_time:.2f}", number=True),
    Column("memory", lambda row: f"{row.memory:.2f}", number=True),
    Column("process", lambda row: f"{row.process_part:.2f} ({row.process})", rank=3),
    Column("silent", lambda row: wording.seconds(row.silent_seconds), number=True),
    Column("for", lambda row: wording.seconds(row.running_seconds), number=True),
    Column("outcome", lambda row: row.outcome, rank=1, sentence=True),
)


@click.command(
    cls=Command,
    example="penstock recover --dry-run\npenstock recover --queue reports --strategy restart\n"
    "penstock recover --workflows --dry-run",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be recovered.")
@click.option(
    "--strategy",
    type=click.Choice(["graceful", "checkpoint", "restart"]),
    default="graceful",
    show_default=True,
    help="Ask the job to stop, or kill its worker; restart forgets its checkpoint.",
)
@click.option("--job", "job_id", type=JOB_ID, help="Only this job.")
@click.option("--queue", type=QUEUE, help="Only jobs of this queue.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), help="Only scores above this; else stuck.threshold."
)
@click.option(
    "--silent-for",
    type=SECONDS,
    help="Only jobs silent for so long, such as 10m; whatever their score without --threshold. "
    "With --workflows: stuck for so long, else 30s.",
)
@click.option(
    "--workflows", is_flag=True, help="Workflows and graphs that should go on and do not, instead."
)
@click.pass_obj
def recover(
    session: Session,
    /,
    dry_run: bool,
    strategy: Strategy,
    job_id: str | None,
    queue: str | None,
    threshold: float | None,
    silent_for: float | None,
    workflows: bool,
) -> None:
    """Show and recover stuck jobs: 0.4 heartbeat + 0.3 run time + 0.15 memory + 0.15 process."""

    if workflows:
        if job_id or queue or threshold is not None:
            raise Refused("--job, --queue and --threshold choose jobs; leave out --workflows")
        recover_workflows(session, dry_run=dry_run, silent_seconds=silent_for)
        return

    async def request(bus: Bus, settings: Settings) -> tuple[list[Suspect], set[str]]:
        usual = settings.stuck.threshold if silent_for is None else 0.0
        order = RecoverAsked(
            answer_to=new_id(),
            threshold=usual if threshold is None else threshold,
            strategy="off" if dry_run else strategy,
            job_id=job_id or "",
            queue=queue or "",
        )
        subjects = Subjects(settings.prefix)
        if silent_for is not None:
            return await recover_silent(bus, subjects, order, silent_for)
        return await recover_on_hosts(bus, subjects, order)

    suspects, silent = session.run(request)
    write_rows(session, suspects, COLUMNS, "no job is stuck")
    for host in sorted(silent):
        note(f"host {host} did not answer within {PATIENCE_SECONDS:g} s")
    if failed := [suspect for suspect in suspects if suspect.outcome.startswith("failed")]:
        raise Failed(f"{len(failed)} jobs could not be recovered")
