"""Workflows as steps of others: their steps take its place when an instance is started. Pure.

So an instance holds all of its steps, and waits, rules, pauses and compensation mean the same in
each of them. A step ``pay`` that is a workflow becomes a join ``begin pay``, which gives values to
the context of the inner one, the inner steps, ``pay/charge`` say, and a join ``pay``, whose result
is what the inner workflow returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.config.topology import Priority
from penstock.events.condition import Condition, Path
from penstock.events.graph import MAX_STEPS, Rule
from penstock.jobs.errors import NotFound
from penstock.jobs.workflows.declared import bounds
from penstock.jobs.workflows.declared.definition import (
    MAX_BYTES,
    Branch,
    DeclaredCall,
    DeclaredStep,
    Definition,
    SignalWait,
    ValueJoin,
    canonical,
)
from penstock.jobs.workflows.declared.planning import all_names, beginning_name, with_paths
from penstock.jobs.workflows.declared.validation import BadDefinition, checked

MAX_LEVELS = 8
"""Of workflows that contain each other, the outermost included."""
MAX_NESTED_BYTES = 4_000_000
"""Of all inner workflows: half of the largest message that a broker is set up for."""

Lookup = Callable[[str], Definition]
"""The definition of a name. Raises NotFound."""


def inner_names(definition: Definition) -> frozenset[str]:
    """The workflows that are steps of this one."""
    return frozenset(step.workflow for step in definition.steps if step.workflow)


def among(definitions: Mapping[str, Definition]) -> Lookup:
    """Finds definitions among these.

    Args:
        definitions: by name.
    """

    def lookup(name: str) -> Definition:
        if name not in definitions:
            raise NotFound(f"no workflow {name!r} is defined, or given")
        return definitions[name]

    return lookup


def spelled_out(definition: Definition, lookup: Lookup) -> Definition:
    """A definition with the steps of inner workflows in their places.

    Args:
        definition: a checked one.
        lookup: finds the inner ones.

    Raises:
        BadDefinition: workflows that contain each other, with the path; more steps, or larger
            contexts, than an instance may have; what an inner workflow requires is not given; or it
            cannot run in this place.
        NotFound: there is no such inner workflow.
    """
    if not inner_names(definition):
        return definition
    whole = _Nesting(lookup).within(definition, (definition.name,))
    counts = Counter(name for step in whole.steps for name in all_names(step))
    if several := [name for name, count in counts.items() if count > 1]:
        raise BadDefinition(
            f"workflow {definition.name!r}: {counts[several[0]]} steps have the name "
            f"{several[0]!r}, those of inner workflows included"
        )
    if refusal := bounds.refusal(bounds.declared_work(whole.steps)):
        raise BadDefinition(f"workflow {definition.name!r}: {refusal}")
    return whole


class _Inner(NamedTuple):
    """A workflow that is a step, and its size as JSON."""

    definition: Definition
    definition_bytes: int
    context_bytes: int


class _Nesting:
    """Counts steps and bytes while they take their places.

    So nothing is made that would be refused afterwards, however often a workflow is a step.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._count = lookup, 0
        self._bytes = self._context_bytes = 0
        self._inner_workflows: dict[str, _Inner] = {}

    def within(self, definition: Definition, outer: tuple[str, ...]) -> Definition:
        """The definition without inner workflows.

        Args:
            definition: may have some.
            outer: the names of those that it is in, and its own.
        """
        steps: list[DeclaredStep] = []
        context = dict(definition.context)
        for step in definition.steps:
            if step.workflow:
                inner = self._inner(step, outer)
                try:
                    steps += _in_place(step, inner)
                except ValueError as error:  # of a condition
                    raise BadDefinition(f"{_where(step, outer)}: {error}") from None
                context |= {_prefixed(step, key): value for key, value in inner.context.items()}
            else:
                self._count += sum(1 for _ in all_names(step))
                steps.append(step)
            if self._count > MAX_STEPS:
                raise BadDefinition(
                    f"workflow {outer[0]!r}: with its inner workflows it has more than {MAX_STEPS} "
                    "steps"
                )
        return replace(definition, steps=tuple(steps), context=context)

    def _inner(self, step: DeclaredStep, outer: tuple[str, ...]) -> Definition:
        """The inner workflow of a step, with the context that the step gives it."""
        where = _where(step, outer)
        if step.workflow in outer:
            path = " → ".join((*outer[outer.index(step.workflow) :], step.workflow))
            raise BadDefinition(f"{where}: workflows contain each other: {path}")
        if len(outer) >= MAX_LEVELS:
            raise BadDefinition(
                f"{where}: workflows are nested more than {MAX_LEVELS} levels deep: "
                f"{' → '.join((*outer, step.workflow))}"
            )
        inner, definition_bytes, context_bytes = self._inner_of(step.workflow)
        given = step.arguments.keys() | step.takes.keys()
        if unknown := sorted(given - inner.keys):
            declared = ", ".join(sorted(inner.keys)) or "none"
            raise BadDefinition(
                f"{where} gives {unknown[0]!r} to workflow {inner.name!r}, whose context has no "
                f"such key; it has {declared}"
            )
        if missing := sorted(set(inner.required) - given):
            raise BadDefinition(
                f"{where}: workflow {inner.name!r} requires a value of "
                f"{', '.join(map(repr, missing))}"
            )
        self._count += 2  # the joins before and after it
        self._context_bytes += context_bytes
        self._bytes += definition_bytes
        for size, most, what in (
            (self._context_bytes, MAX_BYTES, "the contexts of its inner workflows"),
            (self._bytes, MAX_NESTED_BYTES, "its inner workflows, each as often as it is a step,"),
        ):
            if size > most:
                raise BadDefinition(
                    f"workflow {outer[0]!r}: {what} have more than {most:,} bytes together"
                )
        whole = self.within(inner, (*outer, inner.name))
        context = {key: value for key, value in whole.context.items() if key not in step.takes}
        return _named_within(step, replace(whole, context={**context, **step.arguments}))

    def _inner_of(self, name: str) -> _Inner:
        """Raises BadDefinition, NotFound."""
        inner = self._inner_workflows.get(name)
        if inner is None:
            definition = checked(self._lookup(name))
            context_bytes = len(msgspec.json.encode(definition.context))
            inner = _Inner(definition, len(canonical(definition)), context_bytes)
            self._inner_workflows[name] = inner
        return inner


def _where(step: DeclaredStep, outer: tuple[str, ...]) -> str:
    return f"workflow {outer[-1]!r}: step {step.name!r}"


def _in_place(step: DeclaredStep, inner: Definition) -> Iterator[DeclaredStep]:
    """The steps that take the place of one that is a workflow. Raises ValueError: see Condition.

    Args:
        step: is the inner workflow.
        inner: has the names of the outer one.
    """
    begins = beginning_name(step.name)
    has_begun = Condition(exists=("results", begins))
    yield ValueJoin(
        name=begins,
        takes=step.takes,
        needs=step.needs,
        rule=step.rule,
        when=step.when,
        sets={_prefixed(step, key): (key,) for key in step.takes},
        may_fail=step.may_fail,
    )
    for part in inner.steps:
        yield replace(
            part,
            needs=part.needs or (begins,),
            rule=part.rule if part.needs else Rule.ALL_SUCCESS,
            when=_both(has_begun, part.when),
            may_fail=part.may_fail or step.may_fail,
            queue=part.queue or inner.queue or step.queue,
            priority=part.priority or _priority(inner) or step.priority,
            tries=part.tries or (inner.tries if part.calls else 0),
            tags=tuple(dict.fromkeys((*step.tags, *inner.tags, *part.tags))),
        )
    must_succeed = [part.name for part in inner.steps if not part.may_fail]
    may_fail = [part.name for part in inner.steps if part.may_fail]
    settled = f"settle {step.name}"
    if may_fail:
        yield DeclaredStep(
            name=settled,
            needs=tuple(may_fail),
            rule=Rule.ALL_DONE,
            when=has_begun,
            may_fail=step.may_fail,
        )
    yield ValueJoin(
        name=step.name,
        needs=(begins, *must_succeed, *([settled] if may_fail else [])),
        when=has_begun,
        takes=inner.returns,
        sets=step.sets,
        compensate=step.compensate,
        may_fail=step.may_fail,
    )


def _priority(inner: Definition) -> Priority | None:
    return None if inner.priority == "normal" else inner.priority


def _both(first: Condition, other: Condition | None) -> Condition:
    """Both, as flat as may be: the depth of conditions is bounded. Raises ValueError."""
    if other is None:
        return first
    return Condition(all_of=(first, *(other.all_of if other.all_of is not None else (other,))))


# --- names within the outer workflow --------------------------------------------------------------
def _prefixed(step: DeclaredStep, name: str) -> str:
    return f"{step.name}/{name}"


def _named_within(step: DeclaredStep, inner: Definition) -> Definition:
    """The inner workflow; its steps, signals and context have their names in the outer one."""

    def path(inside: Path) -> Path:
        root, name, *others = inside
        return (root, _prefixed(step, str(name)), *others)

    def call(one: DeclaredCall) -> DeclaredCall:
        return replace(one, takes={name: path(source) for name, source in one.takes.items()})

    def branch(one: Branch) -> Branch:
        cases = {name: call(case) for name, case in one.cases.items()}
        otherwise = call(one.otherwise) if one.otherwise else None
        return Branch(on=path(one.on), cases=cases, otherwise=otherwise)

    def awaited(one: SignalWait | None, part: DeclaredStep) -> SignalWait | None:
        return (
            None if one is None else replace(one, signal=_prefixed(step, one.signal or part.name))
        )

    steps = tuple(
        replace(
            part,
            name=_prefixed(step, part.name),
            needs=tuple(_prefixed(step, need) for need in part.needs),
            takes={name: path(source) for name, source in part.takes.items()},
            branch=branch(part.branch) if part.branch else None,
            when=with_paths(part.when, path) if part.when else None,
            sets={_prefixed(step, key): source for key, source in part.sets.items()},
            compensate=call(part.compensate) if part.compensate else None,
            wait=awaited(part.wait, part),
            approval=awaited(part.approval, part),
        )
        for part in inner.steps
    )
    returns = {name: path(source) for name, source in inner.returns.items()}
    return replace(inner, steps=steps, returns=returns)
