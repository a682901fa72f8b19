"""`penstock graph run` and `chain`: start a graph from a file, or a chain from its functions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.call import load_modules, read_values
from penstock.cli.output import note, write_json, write_line
from penstock.cli.parameters import QUEUE, SECONDS, Name
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import PRIORITIES
from penstock.jobs import registry
from penstock.jobs.client import Client
from penstock.jobs.dispatch.awaiting import awaiting
from penstock.jobs.job_type import JobType, NamedJob
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import MAX_BYTES, Definition
from penstock.jobs.workflows.declared.validation import BadDefinition
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.steps import AnyCall

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Start = Callable[[Client], Awaitable[str]]
"""Starts a graph and returns its id."""

_F = TypeVar("_F", bound=Callable[..., Any])
_STEP = re.compile(
    r"(?P<function>[\w.-]+)(\((?P<open>\w+)\))?(\s+(?P<arguments>\{.*\}))?", re.DOTALL
)


class Waiting(NamedTuple):
    """Whether, and how long, a command waits for the end.

    Attributes:
        timeout: seconds; None: for ever.
    """

    no_wait: bool
    timeout: float | None


def _starting(command: _F) -> _F:
    """The options of both commands."""
    for option in (
        click.option("--timeout", type=SECONDS, help="Wait no longer than this; it goes on."),
        click.option("--no-wait", is_flag=True, help="Return as soon as the broker keeps it."),
        click.option("--tag", "tags", multiple=True, help="Tag of all steps; repeatable."),
        click.option("--delay", type=SECONDS, help="The first steps start no earlier."),
        click.option(
            "--priority",
            type=click.Choice(PRIORITIES),
            help="Of all steps, where their queues have priorities.",
        ),
        click.option("--queue", type=QUEUE, help="Queue of all steps that name none."),
        click.option("--title", default="", help="For people."),
        click.option(
            "--id",
            "graph_id",
            type=Name("graph", "id"),
            help="An id of your own: it is started once.",
        ),
    ):
        command = option(command)
    return command


@click.command(cls=Command, example="penstock graph run orders.toml -a order='{\"id\": 17}'")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--arg", "-a", "arguments", multiple=True, metavar="KEY=VALUE", help="Context: JSON or text."
)
@_starting
@click.pass_obj
def run(
    session: Session,
    /,
    files: tuple[Path, ...],
    arguments: tuple[str, ...],
    no_wait: bool,
    timeout: float | None,
    **options: Any,
) -> None:
    """Run the definition in FILE without storing it, and wait for its end.

    Further files are workflows that are steps of the first one.
    """
    load_modules(session.settings())
    definition, *inner = map(read_definition, files)
    context, terms = read_values(arguments), _given(options)

    async def start(client: Client) -> str:
        return await client.definitions.run(definition, context, inner=inner, **terms)

    started_and_ended(session, start, Waiting(no_wait, timeout))


@click.command(
    cls=Command,
    example="penstock graph chain 'shop.extract {\"table\": \"orders\"}' 'shop.load(rows)' "
    "--queue nightly",
)
@click.argument("steps", nargs=-1, required=True, metavar="STEP…")
@_starting
@click.pass_obj
def chain(
    session: Session,
    /,
    steps: tuple[str, ...],
    no_wait: bool,
    timeout: float | None,
    **options: Any,
) -> None:
    """Run functions one after another, each when the one before has completed.

    STEP is a function, with its arguments as JSON: 'shop.extract {"table": "orders"}'. In
    'shop.load(rows)' the parameter rows is given the result of the step before. A function that no
    module of jobs.modules has runs by its name, in the queue that --queue names.
    """
    terms = _given(options)
    calls = [_call(session.settings(), step, terms.get("queue", "")) for step in steps]

    async def start(client: Client) -> str:
        return await client.graphs.chain(calls, **terms)

    started_and_ended(session, start, Waiting(no_wait, timeout))


COMMANDS = (run, chain)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def started_and_ended(session: Session, start: Start, waiting: Waiting) -> None:
    """Starts a graph, waits for its end, and writes how it ended.

    Args:
        session: of the command.
        start: starts it.
        waiting: whether and how long it is waited for.

    Raises:
        Failed: it did not complete, or not in time.
    """

    async def request(client: Client) -> GraphRecord:
        graph_id = await start(client)
        if waiting.no_wait:
            return await client.graphs.show(graph_id)
        if not session.as_json:
            note(f"graph {graph_id}")
        try:
            return await client.graphs.wait(graph_id, waiting.timeout)
        except TimeoutError:
            raise Failed(
                f"graph {graph_id} has not ended after {waiting.timeout:g} s; see 'penstock graph "
                f"show {graph_id}'"
            ) from None

    record = session.with_client(request)
    if session.as_json:
        write_json({"id": record.id, "state": record.state, "reason": record.reason})
    else:
        write_line(record.id if waiting.no_wait else f"graph {record.id} has {record.state}")
    if not waiting.no_wait and record.state is not GraphState.COMPLETED:
        raise Failed(f"graph {record.id} {record.state}: {record.reason}")


def read_definition(file: Path) -> Definition:
    """The definition in a file: TOML, or JSON if its name ends so. Raises Refused."""
    if file.stat().st_size > MAX_BYTES:
        raise Refused(f"{file} is larger than {MAX_BYTES:,} bytes, the most of a definition")
    document = file.read_bytes()
    is_json = file.suffix.lower() == ".json"
    try:
        return reading.from_json(document) if is_json else reading.from_toml(document)
    except BadDefinition as error:
        raise Refused(f"{file}: {error}") from None


def _call(settings: Settings, step: str, queue: str) -> AnyCall:
    """Raises Refused, UnknownJob, BadArguments."""
    if (match := _STEP.fullmatch(step.strip())) is None:
        raise Refused(
            f"{step[:200]!r} is no step; expected FUNCTION, 'FUNCTION {{\"name\": value}}' or "
            "'FUNCTION(parameter)'"
        )
    try:
        arguments = msgspec.json.decode(match["arguments"] or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refused(f"the arguments of step {match['function']!r} are no JSON: {error}") from None
    load_modules(settings)
    open_parameters: Iterable[str] = [match["open"]] if match["open"] else []
    return awaiting(_function(match["function"], queue), *open_parameters, **arguments)


def _function(name: str, queue: str) -> JobType[Any, Any] | NamedJob:
    """Raises UnknownJob."""
    if name in registry.REGISTRY or not queue:
        return registry.find(name)
    return NamedJob(name, queue=queue)
