"""Calls with arguments that follow later: the result of a step, the outcome of a batch."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.jobs.errors import BadArguments
from penstock.jobs.job_type import Call, JobType, NamedJob, argument_struct, encode


class Awaiting(msgspec.Struct, frozen=True):
    """A call that lacks some of its arguments.

    Attributes:
        job: what is called.
        arguments: those that were given, encoded.
        parameters: names of those that follow later.
    """

    job: JobType[Any, Any] | NamedJob
    arguments: bytes
    parameters: tuple[str, ...]

    __repr__ = brief
    __rich_repr__ = brief_fields


def awaiting(job: JobType[Any, Any] | NamedJob, /, *parameters: str, **arguments: Any) -> Awaiting:
    """A call of ``job`` whose ``parameters`` are filled in when it is dispatched.

    Args:
        parameters: names of the function's parameters that are left open.
        arguments: all others, checked now (those of a :class:`NamedJob` by the worker).

    Raises:
        BadArguments: no such parameter, or the arguments do not fit.

    Example::

        await client.graphs.chain([extract(table="orders"), awaiting(load, "rows", into="lake")])
    """
    if isinstance(job, NamedJob):
        return Awaiting(job, job(**arguments).arguments, parameters)
    names = {parameter.name for parameter in job.parameters}
    if missing := [name for name in parameters if name not in names]:
        raise BadArguments(f"{job.name}{job.signature}: there is no parameter {missing[0]!r}")
    rest = [parameter for parameter in job.parameters if parameter.name not in parameters]
    try:
        checked = msgspec.convert(arguments, argument_struct(job.function, job.name, rest))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadArguments(f"{job.name}{job.signature}: {error}") from error
    return Awaiting(job, encode(checked), parameters)


def split(call: Call | Awaiting, most: int = 1) -> tuple[Call, tuple[str, ...]]:
    """The call without the arguments that follow later, and the names of these.

    Args:
        call: as its author wrote it.
        most: how many parameters can be filled.

    Raises:
        BadArguments: more parameters are open than can be filled.
    """
    if isinstance(call, Call):
        return call, ()
    if len(call.parameters) > most:
        raise BadArguments(
            f"{call.job.name}: {len(call.parameters)} parameters are left open, "
            f"{most} can be filled here: {', '.join(call.parameters)}"
        )
    return Call(call.job, call.arguments), call.parameters
