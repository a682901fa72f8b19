"""Checked calls of registered functions, from arguments on the command line."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from penstock.cli.errors import Refused
from penstock.config import Settings
from penstock.jobs import registry
from penstock.jobs.errors import BadArguments
from penstock.jobs.job_type import Call, JobType, NamedJob
from penstock.jobs.workflows.coded.workflow_type import NamedWorkflow

_AT_FAULT = re.compile(r"\$\.(?P<name>\w+)")


def make_call(settings: Settings, function: str, arguments: Iterable[str]) -> Call:
    """The call, checked against the function's signature.

    Each value is read as JSON; what is no JSON, or does not fit as such, is taken as text.

    Args:
        settings: name the modules of jobs.
        function: the name that the function is registered by.
        arguments: each NAME=VALUE.

    Raises:
        Refused: a module cannot be imported, or an argument is not NAME=VALUE.
        UnknownJob, BadArguments: no such function, or the arguments do not fit it.
    """
    texts = dict(_split(argument) for argument in arguments)
    load_modules(settings)
    return _fit(registry.find(function), texts)


def make_named_call(function: str, queue: str | None, arguments: Iterable[str]) -> Call:
    """A call of a function whose module is not imported here; the worker checks the arguments.

    Args:
        function: the name that the function is registered by.
        queue: where the job waits.
        arguments: each NAME=VALUE, the value JSON or text.

    Raises:
        Refused: there is no queue, or an argument is not NAME=VALUE.
        UnknownJob: no function can have this name.
    """
    return _named(NamedJob, function, queue, arguments)


def make_named_workflow(function: str, queue: str | None, arguments: Iterable[str]) -> Call:
    """The same for a workflow."""
    return _named(NamedWorkflow, function, queue, arguments)


def _named(
    kind: type[NamedJob], function: str, queue: str | None, arguments: Iterable[str]
) -> Call:
    if queue is None:
        raise Refused("--by-name needs --queue: the function's own queue is not known here")
    texts = dict(_split(argument) for argument in arguments)
    return kind(function, queue=queue)(**{name: read_value(text) for name, text in texts.items()})


def read_values(arguments: Iterable[str]) -> dict[str, Any]:
    """Values by name: JSON, or text where that is no JSON.

    Args:
        arguments: each NAME=VALUE.

    Raises:
        Refused: one is not NAME=VALUE.
    """
    return {name: read_value(text) for name, text in map(_split, arguments)}


CHANGES = click.option(
    "--arg", "-a", "changes", multiple=True, metavar="NAME=VALUE", help="Replace an argument."
)
"""The option of commands that retry jobs."""


def read_changes(settings: Settings, function: str, changes: Iterable[str]) -> dict[str, Any]:
    """Arguments to be replaced: JSON where that fits the parameter's type, else text.

    They are checked with the others of each job when it is retried.

    Args:
        settings: name the modules of jobs.
        function: the name of the jobs' function.
        changes: each NAME=VALUE.

    Raises:
        Refused: a module cannot be imported, or an argument is not NAME=VALUE.
        UnknownJob, BadArguments: no such function, or no such parameter.
    """
    texts = dict(_split(change) for change in changes)
    if not texts:
        return {}
    load_modules(settings)
    kind = registry.find(function)
    return {name: _fitting(kind, name, text) for name, text in texts.items()}


def _fitting(kind: JobType[Any, Any], name: str, text: str) -> Any:
    names = [parameter.name for parameter in kind.parameters]
    if name not in names:
        raise BadArguments(f"{kind.name} has no argument {name!r}; it has {', '.join(names)}")
    hint = typing.get_type_hints(kind.function, include_extras=True).get(name, Any)
    try:
        msgspec.convert(read_value(text), hint)
    except msgspec.ValidationError:
        return text
    return read_value(text)


def load_modules(settings: Settings) -> None:
    """Imports the modules of jobs. Raises Refused."""
    try:
        registry.load(settings.jobs.modules)
    except ImportError as error:
        raise Refused(
            f"jobs.modules: {error}; run this where the modules can be imported"
        ) from error


def _fit(kind: JobType[Any, Any], texts: dict[str, str]) -> Call:
    values = {name: read_value(text) for name, text in texts.items()}
    while True:
        try:
            return kind(**values)
        except BadArguments as error:
            fault = _AT_FAULT.search(str(error))
            name = fault["name"] if fault else ""
            if values.get(name) == texts.get(name):  # is text already, or is not an argument
                raise
            values[name] = texts[name]


def _split(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not equals or not name.isidentifier():
        raise Refused(f"found {argument!r}, expected NAME=VALUE such as table=orders")
    return name, text


def read_value(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text
