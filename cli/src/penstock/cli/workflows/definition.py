"""`penstock workflow`: definitions of declared workflows, whose instances are graphs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli.command import Command
from penstock.cli.errors import Refused
from penstock.cli.jobs.call import load_modules, read_values
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.parameters import Name
from penstock.cli.session import Session
from penstock.cli.workflows.graph_run import FILE, read_definition
from penstock.events.subjects import BadName
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.workflows.declared import nesting, reading
from penstock.jobs.workflows.declared.definition import Definition, digest
from penstock.jobs.workflows.definitions import StoredDefinition, calls_of
from penstock.views import wording

NAME = Name("workflow")
Start = Callable[[Client], Awaitable[str | None]]


class DefinitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One definition; ``defined_at`` is None of one that is not stored."""

    name: str
    version: int
    digest: str
    step_count: int
    required: tuple[str, ...]
    description: str
    defined_at: datetime | None = None


COLUMNS = (
    Column("workflow", lambda row: row.name),
    Column("version", lambda row: str(row.version), number=True),
    Column("steps", lambda row: str(row.step_count), number=True),
    Column("requires", lambda row: ", ".join(row.required), rank=2, sentence=True),
    Column("defined", lambda row: wording.clock(row.defined_at) if row.defined_at else ""),
    Column("note", lambda row: row.description, rank=3, sentence=True),
)


def _row(definition: Definition, defined_at: datetime | None = None) -> DefinitionRow:
    return DefinitionRow(
        name=definition.name,
        version=definition.version,
        digest=digest(definition),
        step_count=len(definition.steps),
        required=definition.required,
        description=definition.description,
        defined_at=defined_at,
    )


def _stored(record: StoredDefinition) -> DefinitionRow:
    return _row(record.definition, record.defined_at)


def check(session: Session, files: Sequence[Path]) -> None:
    """Checks definitions and their calls, without a broker; see `penstock workflow check`.

    Raises:
        Refused, BadDefinition
    """
    definitions = [read_definition(file) for file in files]
    load_modules(session.settings())
    lookup = nesting.among({definition.name: definition for definition in definitions})
    for definition in definitions:
        calls_of(nesting.spelled_out(definition, lookup))
    if session.as_json:
        rows = [_row(definition) for definition in definitions]
        write_json(rows[0] if len(rows) == 1 else rows)
        return
    for definition in definitions:
        write_line(f"{_named(definition)}: {len(definition.steps)} steps, nothing is wrong")


@click.command(cls=Command, example="penstock workflow define orders.toml")
@click.argument("file", type=FILE)
@click.pass_obj
def define(session: Session, file: Path) -> None:
    """Store a definition, or a new version of it; instances that run keep theirs."""
    definition = read_definition(file)
    record = session.with_client(lambda client: client.definitions.define(definition))
    if session.as_json:
        write_json(_stored(record))
    else:
        write_line(f"{_named(record.definition)} is stored, digest {record.digest}")


@click.command(cls=Command, example="penstock workflow definitions --json")
@click.pass_obj
def definitions(session: Session) -> None:
    """List the stored definitions."""
    records = session.with_client(lambda client: client.definitions.all())
    rows = [_stored(record) for record in records]
    write_rows(session, rows, COLUMNS, "no workflow is defined; see 'workflow define --help'")


@click.command(cls=Command, example="penstock workflow definition orders > orders.json")
@click.argument("name", type=NAME)
@click.pass_obj
def definition(session: Session, name: str) -> None:
    """Print a stored definition as JSON, as 'define' reads it."""
    record = session.with_client(lambda client: client.definitions.get(name))
    write_json(msgspec.Raw(reading.to_json(record.definition)))


@click.command(cls=Command, example="penstock workflow undefine orders")
@click.argument("name", type=NAME)
@click.pass_obj
def undefine(session: Session, name: str) -> None:
    """Remove a stored definition; instances that run go on."""
    session.with_client(lambda client: client.definitions.remove(name))
    if not session.as_json:
        write_line(f"workflow {name} is no longer defined")


COMMANDS = (define, definitions, definition, undefine)
"""Beside those of coded workflows."""


def starting(name: str, arguments: Iterable[str], options: Mapping[str, Any]) -> Start:
    """Starts an instance of a stored definition, and returns its id; None: there is none.

    Args:
        name: of the definition.
        arguments: values of its context, each KEY=VALUE.
        options: of `penstock workflow run`; None where they were not given.

    Raises:
        Refused: an option that instances do not have.
    """
    context = read_values(arguments)
    terms = {option: value for option, value in options.items() if value is not None}
    if "unique_for" in terms:
        raise Refused(
            f"no function {name!r} is known here, and a definition takes no --unique-for: give an "
            "--id, which is run once"
        )
    graph_id = terms.pop("job_id", "")

    async def start(client: Client) -> str | None:
        try:
            stored = (await client.definitions.get(name)).definition
        except (NotFound, BadName):
            return None
        return await client.definitions.run(stored, context, graph_id=graph_id, **terms)

    return start


def _named(definition: Definition) -> str:
    return f"workflow {definition.name} version {definition.version}"
