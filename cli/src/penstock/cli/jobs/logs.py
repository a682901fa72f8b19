"""`penstock job logs`: what a job wrote, attempt by attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import NamedTuple

import click
import msgspec

from penstock.cli.command import Command
from penstock.cli.errors import Failed
from penstock.cli.output import note, write_json_line, write_line, write_lines
from penstock.cli.parameters import JOB_ID
from penstock.cli.session import Session
from penstock.events.log_lines import LogLine
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State
from penstock.jobs.reading.job_logs import AttemptLines

_CONTINUED = "  | "


@click.command(cls=Command, example="penstock job logs 0193… --follow")
@click.argument("id", type=JOB_ID)
@click.option("--follow", is_flag=True, help="Wait for further lines until the job has ended.")
@click.option(
    "--attempt", type=click.IntRange(min=1), default=None, help="Only lines of this attempt."
)
@click.pass_obj
def logs(session: Session, id: str, follow: bool, attempt: int | None) -> None:
    """Print what a job wrote: lines of its loggers, and what it printed.

    With --json one object a line. Lines are kept for logs.max_age_hours, within logs.max_bytes of
    all jobs; a worker publishes them each 0.2 s.
    """
    shown = _Shown(session.as_json)

    async def read(client: Client) -> None:
        job_id = await client.jobs.find_id(id)
        async for part in _parts(client, job_id, attempt or 0, follow):
            shown.write(part)
        if not shown.runs:
            await _check_known(client, job_id)
        elif cut_off := shown.runs - shown.ended:
            await _note_cut_off(client, job_id, cut_off)

    with suppress(KeyboardInterrupt):  # the usual end of following
        session.with_client(read)


async def _parts(
    client: Client, job_id: str, attempt: int, follow: bool
) -> AsyncIterator[AttemptLines]:
    if follow:
        async for part in client.jobs.follow_logs(job_id, attempt):
            yield part
        return
    for part in await client.jobs.logs(job_id, attempt):
        yield part


async def _check_known(client: Client, job_id: str) -> None:
    try:
        view = await client.job(job_id)
    except NotFound as error:
        raise Failed(str(error)) from error
    if view.attempts:
        note(
            f"job {job_id} is {view.state}: it wrote no lines, or they were older than "
            "logs.max_age_hours and have been removed"
        )
    else:
        note(f"job {job_id} is {view.state}: it has not run yet and has written no lines")


async def _note_cut_off(client: Client, job_id: str, runs: set[_Run]) -> None:
    """Names the runs that wrote something and did not end, but for one that goes on."""
    with suppress(NotFound):
        view = await client.job(job_id)
        if view.state is State.RUNNING:
            runs = runs - {_Run(view.attempts, view.worker)}
    for run in sorted(runs):
        note(
            f"attempt {run.attempt} was cut off with worker {run.worker}: lines of its last 0.2 s "
            "may be lost"
        )


class _Run(NamedTuple):
    """An attempt on one worker: one whose worker is lost is run again under the same number."""

    attempt: int
    worker: str


class _Shown:
    """What was printed already, so that each run has one heading."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.runs: set[_Run] = set()
        self.ended: set[_Run] = set()
        self._heading = ""

    def write(self, part: AttemptLines) -> None:
        run = _Run(part.attempt, part.worker)
        self.runs.add(run)
        if part.ended:
            self.ended.add(run)
        if self._as_json:
            for line in _json_lines(part):
                write_json_line(line)
        else:
            self._write_text(part)
        if part.unreadable:
            note(part.unreadable)
        if part.dropped:
            note(f"{part.dropped:,} lines of attempt {part.attempt} were dropped here")

    def _write_text(self, part: AttemptLines) -> None:
        heading = f"attempt {part.attempt}, worker {part.worker} on {part.host}"
        if part.lines and heading != self._heading:
            self._heading = heading
            write_line(heading)
        for line in part.lines:
            write_lines(text_of(line))


def text_of(line: LogLine) -> list[str]:
    """A stored line as services write theirs; its traceback and further lines are marked."""
    clock = line.at.astimezone().strftime("%H:%M:%S.%f")[:-3]
    text = "\n".join(filter(None, (line.text, line.traceback.rstrip())))
    first, *further = f"{clock} {line.level.upper():<7} {line.logger}  {text}".split("\n")
    return [first, *(f"{_CONTINUED}{text}" for text in further)]


def _json_lines(part: AttemptLines) -> Iterator[str]:
    about = {
        "job_id": part.job_id,
        "attempt": part.attempt,
        "worker": part.worker,
        "host": part.host,
    }
    for line in part.lines:
        yield msgspec.json.encode(about | msgspec.to_builtins(line)).decode()
    if part.dropped:
        yield msgspec.json.encode(about | {"dropped": part.dropped}).decode()
