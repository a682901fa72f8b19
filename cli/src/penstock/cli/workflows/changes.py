"""`penstock workflow pause`, `resume` and `cancel`: by id, or all of a function."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

import click
import msgspec

from penstock.bus import bounded
from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.bulk import Caution, cautious
from penstock.cli.output import note, write_json, write_line
from penstock.cli.parameters import JOB_ID
from penstock.cli.session import Session
from penstock.cli.workflows import target as workflow_target
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.views import wording

_MOST, _AT_ONCE = 20_000, 50
_MOST_SHOWN = 10

Done = Literal["paused", "resumed", "cancelled"]
Act = Callable[[Client, str], Awaitable["Outcome"]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one workflow.

    Attributes:
        state: of its job or graph.
        is_changed: False where it was so already.
        text: the same in words.
        error: why it is as it was; empty where that is what was wanted.
    """

    id: str
    state: str = ""
    is_changed: bool = False
    text: str = ""
    error: str = ""


async def _pause(reason: str, client: Client, text: str) -> Outcome:
    target = await workflow_target.find(client, text)
    kind = client.graphs if target.is_graph else client.workflows
    read = client.graphs.show if target.is_graph else client.workflows.get
    before: GraphRecord | WorkflowView = await read(target.id)
    after = await kind.pause(target.id, reason)
    is_changed = before.paused_at != after.paused_at
    happened = "is paused" if is_changed else "was paused already"
    hint = f"; 'penstock workflow resume {target.id}' lets it go on"
    return Outcome(id=target.id, state=after.state, is_changed=is_changed, text=happened + hint)


async def _resume(reason: str, client: Client, text: str) -> Outcome:
    target = await workflow_target.find(client, text)
    kind = client.graphs if target.is_graph else client.workflows
    read = client.graphs.show if target.is_graph else client.workflows.get
    before: GraphRecord | WorkflowView = await read(target.id)
    after = await kind.resume(target.id, reason)
    is_changed = before.paused_at is not None
    text = "goes on" if is_changed else f"is not paused; it is {after.state}"
    return Outcome(id=target.id, state=after.state, is_changed=is_changed, text=text)


async def _cancel(reason: str, now: bool, client: Client, text: str) -> Outcome:
    target = await workflow_target.find(client, text)
    if target.is_graph:
        graph = await client.graphs.cancel(target.id, reason)
        return _cancelled(graph.id, graph.state)
    view = await client.workflows.cancel(target.id, reason, cleanup_seconds=0.0 if now else None)
    return _cancelled(view.id, view.state, None if view.state.ended else view.cancel_by)


def _cancelled(workflow_id: str, state: str, until: datetime | None = None) -> Outcome:
    if until is not None:
        text = f"is being cancelled; it may clean up until {wording.clock(until)}"
    elif state in (State.CANCELLED, GraphState.STOPPING):
        text = "is cancelled; its steps are cancelled next"
    else:
        error = f"workflow {workflow_id} had already ended: it is {state}"
        return Outcome(id=workflow_id, state=state, error=error)
    return Outcome(id=workflow_id, state=state, is_changed=True, text=text)


@click.command(
    cls=Command,
    example="penstock workflow pause 0193… --reason 'the gateway is down'\n"
    "penstock workflow pause --function shop.fulfil --dry-run",
)
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID]…")
@click.option("--function", default="", help="All of this function, instead of ids.")
@cautious
@click.pass_obj
def pause(session: Session, /, ids: tuple[str, ...], function: str, caution: Caution) -> None:
    """Pause workflows: none of them goes on until it is resumed.

    An advance that runs, and steps that were dispatched, go on to their end. Coded workflows and
    graphs are paused by id; all coded ones of a function by --function.
    """
    _change(session, ids, function, caution, partial(_pause, caution.reason), "paused")


@click.command(
    cls=Command,
    example="penstock workflow resume 0193…\npenstock workflow resume --function shop.fulfil --yes",
)
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID]…")
@click.option("--function", default="", help="All paused ones of this function, instead of ids.")
@cautious
@click.pass_obj
def resume(session: Session, /, ids: tuple[str, ...], function: str, caution: Caution) -> None:
    """Let paused workflows go on, at once where what they wait for came meanwhile."""
    _change(session, ids, function, caution, partial(_resume, caution.reason), "resumed")


@click.command(
    cls=Command,
    example="penstock workflow cancel 0193… --reason 'the customer called'\n"
    "penstock workflow cancel --function shop.fulfil --dry-run",
)
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID]…")
@click.option("--function", default="", help="All of this function, instead of ids.")
@click.option("--now", is_flag=True, help="At once: their code does not clean up.")
@cautious
@click.pass_obj
def cancel(
    session: Session, /, ids: tuple[str, ...], function: str, now: bool, caution: Caution
) -> None:
    """Cancel workflows that have not ended, with their steps.

    The code of a coded one is given `Cancelled` where it waits, and may clean up for
    `workflows.cleanup_seconds`.
    """
    reason = caution.reason or "cancelled by an operator"
    _change(session, ids, function, caution, partial(_cancel, reason, now), "cancelled")


COMMANDS = (pause, resume, cancel)


def _change(
    session: Session,
    ids: tuple[str, ...],
    function: str,
    caution: Caution,
    act: Act,
    done: Done,
) -> None:
    if bool(ids) == bool(function):
        raise click.UsageError("give ids, or --function", click.get_current_context())
    if function:
        ids = tuple(session.with_client(partial(_of_function, function, done)))
        ids = ids[: caution.limit or None]
        if caution.dry_run or not ids:
            _report_matches(session, len(ids))
            return
        _confirm(len(ids), caution, done)
    elif caution.dry_run:
        raise Refused("--dry-run counts the matches of --function; ids are named already")

    async def request(client: Client) -> list[Outcome]:
        return await bounded.gather(partial(_outcome, client, act), ids, _AT_ONCE)

    _report(session, session.with_client(request), done)


async def _of_function(function: str, done: Done, client: Client) -> list[str]:
    """Ids of the coded workflows that the verb can change."""
    workflows = client.workflows
    if done == "resumed":
        paused = await workflows.list(function=function, paused=True, limit=_MOST)
        return [view.id for view in paused]
    waiting = await workflows.list(function=function, waiting_longer=timedelta(), limit=_MOST)
    newest = await workflows.list(function=function, limit=_MOST)
    if waiting.cut_off or newest.cut_off:
        note(
            "not all of the event log was read: call it again where it lists fewer than you expect"
        )
    live = [view for view in (*waiting, *newest) if not view.state.ended]
    if done == "paused":
        live = [view for view in live if view.paused_at is None]
    return list(dict.fromkeys(view.id for view in live))


async def _outcome(client: Client, act: Act, text: str) -> Outcome:
    try:
        return await act(client, text)
    except JobsError as error:
        return Outcome(id=text, error=str(error))


def _confirm(count: int, caution: Caution, done: Done) -> None:
    if caution.yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{_matches(count)}: add --yes to act on them, or --dry-run to count")
    click.confirm(f"{_matches(count)}. Shall they be {done}?", err=True, abort=True)


def _report_matches(session: Session, count: int) -> None:
    if session.as_json:
        write_json({"workflows": count, "done": 0, "left": []})
    else:
        write_line(f"{_matches(count)}; nothing was done")


def _report(session: Session, outcomes: list[Outcome], done: Done) -> None:
    failed = [outcome for outcome in outcomes if outcome.error]
    if session.as_json:
        write_json(outcomes)
    elif len(outcomes) - len(failed) > _MOST_SHOWN:
        changed = sum(outcome.is_changed for outcome in outcomes)
        write_line(f"{_workflows(changed)} {'is' if changed == 1 else 'are'} {done}")
    else:
        for outcome in outcomes:
            if not outcome.error:
                write_line(f"workflow {outcome.id} {outcome.text}")
    if len(failed) == 1:
        raise Failed(failed[0].error)
    if failed:
        for outcome in failed[:_MOST_SHOWN]:
            note(f"{outcome.id}: {outcome.error}")
        raise Failed(f"{_workflows(len(failed))} could not be {done}")


def _matches(count: int) -> str:
    return f"{_workflows(count)} {'matches' if count == 1 else 'match'}"


def _workflows(count: int) -> str:
    return "1 workflow" if count == 1 else f"{count:,} workflows"
