"""`penstock recover --workflows`: workflows that should go on and do not."""

from __future__ import annotations

from datetime import timedelta

from penstock.cli.errors import Failed
from penstock.cli.output import Column, write_rows
from penstock.cli.session import Session
from penstock.jobs.client import Client
from penstock.jobs.workflows.recovery import DEFAULT_SILENT
from penstock.jobs.workflows.stuck import StuckWorkflow
from penstock.views import wording

COLUMNS = (
    Column("workflow", lambda row: row.id),
    Column("kind", lambda row: row.kind, rank=3),
    Column("function", lambda row: row.function, rank=2, sentence=True),
    Column("since", lambda row: wording.clock(row.since), rank=2),
    Column("found", lambda row: row.reason, rank=1, sentence=True),
    Column("outcome", lambda row: row.outcome, rank=1, sentence=True),
)


def recover_workflows(session: Session, *, dry_run: bool, silent_seconds: float | None) -> None:
    """Lists the workflows that are stuck; unless ``dry_run``, lets them go on.

    Args:
        session: of the command.
        dry_run: only list them.
        silent_seconds: only those that should have gone on so long ago; None for the usual time.

    Raises:
        Failed: one is still stuck.
    """
    silent = DEFAULT_SILENT if silent_seconds is None else timedelta(seconds=silent_seconds)

    async def request(client: Client) -> list[StuckWorkflow]:
        stuck = await client.stuck_workflows.find(silent)
        return stuck if dry_run else await client.stuck_workflows.recover(stuck)

    rows = session.with_client(request)
    write_rows(session, rows, COLUMNS, "no workflow is stuck")
    if failed := [row for row in rows if row.outcome.startswith("failed")]:
        count = "1 workflow" if len(failed) == 1 else f"{len(failed):,} workflows"
        raise Failed(f"{count} could not be recovered")
