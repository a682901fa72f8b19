"""Chains and graphs as definitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.events.condition import Path
from penstock.events.graph import GraphStep
from penstock.jobs.payloads import payload
from penstock.jobs.retry import DEFAULT_BACKOFF
from penstock.jobs.workflows.declared.definition import DeclaredStep, Definition
from penstock.jobs.workflows.declared.validation import checked


def of_chain(name: str, steps: Iterable[DeclaredStep], version: int = 1) -> Definition:
    """A definition in which each step needs the one before it.

    Args:
        name: of the definition.
        steps: in their order; what they need is replaced.
        version: of the definition.

    Raises:
        BadDefinition
    """
    linked: list[DeclaredStep] = []
    for step in steps:
        before = (linked[-1].name,) if linked else ()
        linked.append(msgspec.structs.replace(step, needs=before))
    return checked(Definition(name=name, version=version, steps=tuple(linked), on_failure="stop"))


def of_graph(name: str, steps: Sequence[GraphStep], version: int = 1) -> Definition:
    """A definition whose steps are those of a graph, or of a chain, that was started.

    Args:
        name: of the definition.
        steps: as they were started, by :meth:`.Graphs.dispatch` say.
        version: of the definition.

    Raises:
        BadDefinition: its steps have conditions already, so that it came from a definition.
        msgspec.MsgspecError: a call that cannot be read: it is encrypted, say.
    """
    names = [step.name for step in steps]
    return checked(
        Definition(
            name=name,
            version=version,
            steps=tuple(_declared(step, names) for step in steps),
            on_failure="stop",
        )
    )


def _declared(step: GraphStep, names: Sequence[str]) -> DeclaredStep:
    call = payload.decode(step.payload)
    takes: dict[str, Path] = {
        parameter: ("results", names[position]) for parameter, position in step.takes.items()
    }
    return DeclaredStep(
        name=step.name,
        function=call.function,
        arguments=msgspec.msgpack.decode(call.arguments, type=dict),
        takes=takes,
        needs=tuple(names[need] for need in step.needs),
        rule=step.rule,
        queue=call.queue,
        delay_seconds=step.delay_seconds,
        tries=call.tries,
        timeout_seconds=call.timeout_seconds,
        backoff=None if call.backoff == DEFAULT_BACKOFF else call.backoff,
        tags=call.tags,
    )
