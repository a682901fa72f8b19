"""`penstock job tag` and `untag`: tags that a job is given, or loses, after its dispatch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from penstock.cli.command import Command
from penstock.cli.output import write_json, write_line
from penstock.cli.parameters import JOB_ID
from penstock.cli.session import Session
from penstock.jobs.client import Client
from penstock.jobs.tagging import JobTags, Tags

Change = Callable[..., Awaitable[Tags]]


@click.command(cls=Command, example="penstock job tag 0193… looked-at ticket-4711")
@click.argument("id", type=JOB_ID)
@click.argument("tags", nargs=-1, required=True)
@click.pass_obj
def tag(session: Session, id: str, tags: tuple[str, ...]) -> None:
    """Tag a job in any state; 'penstock job ls --tag' finds it.

    A job has at most 20 tags, of 100 characters each.
    """
    _change(session, id, tags, JobTags.add)


@click.command(cls=Command, example="penstock job untag 0193… looked-at")
@click.argument("id", type=JOB_ID)
@click.argument("tags", nargs=-1, required=True)
@click.pass_obj
def untag(session: Session, id: str, tags: tuple[str, ...]) -> None:
    """Take tags from a job, in any state; one that it does not have changes nothing."""
    _change(session, id, tags, JobTags.remove)


def _change(session: Session, id: str, tags: tuple[str, ...], change: Change) -> None:
    async def request(client: Client) -> tuple[str, Tags]:
        job_id = await client.jobs.find_id(id)
        return job_id, await change(client.tags, job_id, *tags)

    job_id, now = session.with_client(request)
    if session.as_json:
        write_json({"id": job_id, "tags": now})
    else:
        write_line(f"job {job_id} has {'the tags ' + ', '.join(now) if now else 'no tags'}")
