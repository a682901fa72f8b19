"""`penstock job`: submit jobs, list, show, tag, cancel and retry them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.bulk import Caution, act, cautious
from penstock.cli.jobs.call import CHANGES, make_call, make_named_call, read_changes
from penstock.cli.jobs.job_view import COLUMNS, description
from penstock.cli.jobs.logs import logs
from penstock.cli.jobs.submission import Submitted, may_be_away, submitter, where_it_waits
from penstock.cli.jobs.tags import tag, untag
from penstock.cli.output import note, write_json, write_line, write_lines, write_rows
from penstock.cli.parameters import JOB_ID, MOST_ROWS, QUEUE, SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.config.topology import PRIORITIES, lanes_of
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.dispatch.job_factory import due_at, expiry
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.views.job_history import job_detail, job_row


@click.group(cls=Group, example="penstock job submit reports.rebuild --arg table=orders --wait")
def job() -> None:
    """Submit, list, show, tag, cancel and retry jobs."""


@job.command(
    example="penstock job submit reports.rebuild --arg table=orders --arg day=2026-11-20 --wait"
)
@click.argument("function")
@click.option(
    "--arg", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument: JSON or text."
)
@click.option("--id", "job_id", type=JOB_ID, help="An id of your own; refused if it exists.")
@click.option("--queue", type=QUEUE, help="Queue, instead of the function's own.")
@click.option(
    "--delay",
    type=SECONDS,
    default=0.0,
    help="Start no earlier than after this time, such as 30s, 10m.",
)
@click.option("--expires", type=SECONDS, help="The job expires unless it starts within this time.")
@click.option("--unique-for", type=SECONDS, help="Refused if an equal job is younger than this.")
@click.option(
    "--priority", type=click.Choice(PRIORITIES), help="Priority, where the queue has priorities."
)
@click.option("--tag", "tags", multiple=True, help="Tag besides the function's own; repeatable.")
@click.option("--by-name", is_flag=True, help="Without the function's module here; needs --queue.")
@click.option(
    "--wait", is_flag=True, help="Wait for the job's end; exit code 1 unless it completed."
)
@click.option("--timeout", type=SECONDS, help="Wait no longer than this.")
@click.pass_obj
def submit(session: Session, /, function: str, arguments: tuple[str, ...], **options: Any) -> None:
    """Submit a job: FUNCTION as registered in one of the jobs.modules, or with --by-name elsewhere.

    While the broker is away, dispatch.when_away decides. Exit code 0: the broker keeps the
    job, or the outbox does (then standard error says which file, and how many jobs wait there; with
    --json: "outbox" and "waiting"). 1: neither does, or with --wait: it has not completed.
    """
    _check_times(options["delay"], options["expires"])
    settings = session.settings()
    by_name = options.pop("by_name")
    call = (
        make_named_call(function, options["queue"], arguments)
        if by_name
        else make_call(settings, function, arguments)
    )
    wait, timeout = options.pop("wait"), options.pop("timeout")
    to = {name: value for name, value in options.items() if value is not None}

    async def request(bus: Bus, settings: Settings) -> Submitted | JobView:
        async with submitter(bus, settings) as submitting:
            job_id = await submitting.submit(call, to)
            if not wait:
                return await submitting.result(job_id)
            if not session.as_json:
                note(f"job {job_id}")
            return await submitting.wait(job_id, timeout)

    answer = (session.run_offline if may_be_away(settings) else session.run)(request)
    if isinstance(answer, JobView):
        _show(session, answer)
        _fail_unless_completed(answer)
        return
    if session.as_json:
        write_json(answer)
    else:
        write_line(answer.id)
    if answer.outbox:
        note(where_it_waits(answer))


def _check_times(delay: float, expires: float | None) -> None:
    """What dispatching would refuse, before a broker is asked for. Raises BadTime or Refused."""
    if expires is not None and expires <= delay:
        raise Refused(
            f"the job would expire after {expires:g} s, before it is due after {delay:g} s: "
            "give a longer --expires or a shorter --delay"
        )
    due = due_at(delay, None, now := utc_now())
    expiry(expires, due, now)


@job.command(name="ls", example="penstock job ls --state dead --function shop.charge --since 1h")
@click.option(
    "--state", type=click.Choice([state.value for state in State]), help="Only jobs in this state."
)
@click.option("--function", help="Only jobs of this function.")
@click.option("--queue", type=QUEUE, help="Only jobs of this queue, of all its priorities.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--batch", type=Name("batch"), help="Only jobs of this batch.")
@click.option("--worker", type=Name("worker"), help="Only jobs that this worker runs or ran last.")
@click.option("--since", type=SECONDS, help="Only jobs that changed within this time, such as 2h.")
@click.option("--until", type=SECONDS, help="Only jobs that last changed longer ago than this.")
@MOST_ROWS
@click.pass_obj
def list_jobs(
    session: Session,
    /,
    state: str | None,
    since: float | None,
    until: float | None,
    limit: int,
    **fields: str | None,
) -> None:
    """List the jobs that changed last, of those that fit all options.

    The event log is read backwards, its last 64,000 messages at most; where older jobs may fit,
    too, a note names the time to which it was read.
    """
    jobs = session.with_client(
        lambda client: client.jobs.list(
            state=State(state) if state else None,
            since=None if since is None else timedelta(seconds=since),
            until=None if until is None else timedelta(seconds=until),
            limit=limit,
            **{name: value for name, value in fields.items() if value},
        )
    )
    write_rows(session, [job_row(view) for view in jobs], COLUMNS, _nothing(state))
    if jobs.cut_off and jobs.reaches_back_to is not None:
        reached = jobs.reaches_back_to.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        note(f"the event log was read back to {reached}; older jobs may fit, too")


def _nothing(state: str | None) -> str:
    if state != State.DEAD:
        return "no matching jobs"
    return "no matching jobs; 'penstock dead ls' lists dead ones, kept for longer than the log"


@job.command(example="penstock job show 0193…")
@click.argument("id", type=JOB_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one job: state, attempts, timeline, result, error."""

    async def read(client: Client) -> JobView:
        return await client.job(await client.jobs.find_id(id))

    _show(session, session.with_client(read))


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose jobs of a queue, or of all; the command receives them by name."""
    for option in (
        click.option("--older-than", type=SECONDS, help="Only jobs dispatched so long ago: 2h."),
        click.option("--batch", default="", help="Only jobs of this batch."),
        click.option("--tag", default="", help="Only jobs with this tag."),
        click.option("--function", default="", help="Only jobs of this name."),
    ):
        command = option(command)
    return command


@job.command(
    example="penstock job cancel 0193… --reason 'wrong table'\n"
    "penstock job cancel --function reports.rebuild --tag sales --older-than 2h --dry-run"
)
@click.argument("id", type=JOB_ID, required=False)
@click.option("--queue", type=QUEUE, help="Only jobs of this queue, in all its lanes.")
@choosing
@click.option("--running", is_flag=True, help="Also jobs that run; their workers are notified.")
@cautious
@click.pass_obj
def cancel(
    session: Session,
    /,
    id: str | None,
    queue: str | None,
    running: bool,
    caution: Caution,
    **choice: Any,
) -> None:
    """Cancel a job that has not ended; or, with filters instead of an id, all that match.

    A running job is notified at once; of many, the running ones are cancelled with --running. Each
    is cancelled once: call it again if it was interrupted.
    """
    if id is not None:
        if queue or any(choice.values()):
            raise Refused("give either a job's id or filters; see 'penstock job cancel --help'")
        _cancel_one(session, id, caution.reason or "cancelled by an operator")
        return
    if not queue and not any(choice.values()):
        raise click.UsageError("give a job's id, or a filter", click.get_current_context())
    matching = _filter(session.settings(), queue, **choice)
    act(
        session,
        caution,
        matching,
        lambda bulk: bulk.cancel(
            matching,
            reason=caution.reason or "cancelled by an operator",
            running=running,
            limit=caution.limit,
        ),
        ("is cancelled", "are cancelled"),
    )


@job.command(example="penstock job move --from slow --to fast --function reports.rebuild --dry-run")
@click.option("--from", "source", type=QUEUE, required=True, help="The queue that they wait on.")
@click.option(
    "--to", "target", type=QUEUE, required=True, help="The queue that they shall wait on."
)
@choosing
@click.option("--force", is_flag=True, help="Act even if no pool takes the other queue.")
@cautious
@click.pass_obj
def move(
    session: Session,
    /,
    source: str,
    target: str,
    force: bool,
    caution: Caution,
    **choice: Any,
) -> None:
    """Move jobs that wait, are delayed or will be retried to another queue; running ones stay.

    Each keeps its id, its attempts and its time. Call it again if it was interrupted.
    """
    settings = session.settings()
    served = serving(settings)
    if not force and served.is_known and (problem := served.why_not(target)):
        raise Refused(f"queue {target!r}: {problem}; --force moves jobs there now")
    matching = _filter(settings, source, **choice)
    act(
        session,
        caution,
        matching,
        lambda bulk: bulk.move(
            source, target, matching, reason=caution.reason, limit=caution.limit
        ),
        (f"is moved to {target}", f"are moved to {target}"),
    )


def _filter(
    settings: Settings,
    queue: str | None,
    *,
    function: str,
    tag: str,
    batch: str,
    older_than: float | None,
) -> JobFilter:
    before = None if older_than is None else utc_now() - timedelta(seconds=older_than)
    return JobFilter(
        queues=lanes_of(settings, queue) if queue else (),
        function=function,
        tag=tag,
        batch=batch,
        dispatched_before=before,
    )


def _cancel_one(session: Session, id: str, reason: str) -> None:
    async def request(client: Client) -> JobView:
        return await client.cancel(await client.jobs.find_id(id), reason)

    view = session.with_client(request)
    if session.as_json:
        write_json(job_row(view))
    if view.state is not State.CANCELLED:
        raise Failed(f"job {view.id} had already ended: it is {view.state}")
    if not session.as_json:
        write_line(f"job {view.id} is cancelled")


@job.command(example="penstock job retry 0193… --arg table=orders")
@click.argument("id", type=JOB_ID)
@CHANGES
@click.pass_obj
def retry(session: Session, id: str, changes: tuple[str, ...]) -> None:
    """Retry a dead or cancelled job; for many at once see 'penstock dead'."""

    async def request(bus: Bus, settings: Settings) -> str:
        client = Client.over(bus, settings, "cli")
        job_id = await client.jobs.find_id(id)
        function = (await client.job(job_id)).record.function if changes else ""
        await client.retry(job_id, read_changes(settings, function, changes))
        return job_id

    job_id = session.run(request)
    if session.as_json:
        write_json({"id": job_id})
    else:
        write_line(f"job {job_id} is retried")


for command in (logs, tag, untag):
    job.add_command(command)


def _show(session: Session, view: JobView) -> None:
    if session.as_json:
        write_json(job_detail(view))
    else:
        write_lines(description(view))


def _fail_unless_completed(view: JobView) -> None:
    if view.state is not State.COMPLETED:
        raise Failed(f"job {view.record.id} ended {view.state}")
