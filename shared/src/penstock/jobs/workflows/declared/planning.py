"""From a definition to the steps that are started: branches spelled out, names become positions.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.events.condition import Condition, Operand, Path, Reference
from penstock.events.graph import GraphStep, Join, Rule, Wait
from penstock.jobs.workflows import graph_order
from penstock.jobs.workflows.declared.definition import (
    DeclaredCall,
    DeclaredStep,
    Definition,
    ValueJoin,
)

OTHERWISE = "otherwise"
"""Name of the case that is none of the others."""


class PlannedStep(NamedTuple):
    """A step as it is started, but for its payload, and what that is made from.

    Attributes:
        step: with positions in place of names, and an empty payload.
        call: None for a join, and for a step that waits.
        terms: the declared step, whose queue, priority, tries and so on hold for the call.
    """

    step: GraphStep
    call: DeclaredCall | None
    terms: DeclaredStep


def case_name(step: str, case: str) -> str:
    """Name of the step that is one case of a branch."""
    return f"{step}/{case}"


def undoing_name(step: str) -> str:
    """Name of the step that undoes another."""
    return f"undo {step}"


def beginning_name(step: str) -> str:
    """Name of the join that begins a step which is a workflow."""
    return f"begin {step}"


def all_names(step: DeclaredStep) -> Iterator[str]:
    """The names of all steps that a declared one becomes."""
    yield step.name
    if step.branch is not None:
        yield from (case_name(step.name, case) for case in step.branch.cases)
        if step.branch.otherwise is not None:
            yield case_name(step.name, OTHERWISE)
    if step.compensate is not None:
        yield undoing_name(step.name)
    if step.workflow:
        yield beginning_name(step.name)


def plan(definition: Definition) -> tuple[PlannedStep, ...]:
    """All steps, in an order in which none needs a later one; compensations come last.

    Args:
        definition: a checked one, without inner workflows.

    Raises:
        BadGraph: see :func:`.graph_order.levels`.
    """
    spelled_out = {step.name: step for step in _spelled_out(definition.steps)}
    levels = graph_order.levels({step.name: step.needs for step in spelled_out.values()})
    ordered = [spelled_out[name] for level in levels for name in level]
    positions = {step.name: position for position, step in enumerate(ordered)}
    without_job = frozenset(step.name for step in ordered if step.call is None)
    planned = [_planned(step, positions, without_job) for step in ordered]
    return (*planned, *_compensations(ordered, positions, without_job))


class _Spelled(NamedTuple):
    """A step without alternatives."""

    name: str
    needs: tuple[str, ...]
    rule: Rule
    when: Condition | None
    call: DeclaredCall | None
    join: Join | None
    wait: Wait | None
    terms: DeclaredStep


def _spelled_out(steps: Sequence[DeclaredStep]) -> Iterator[_Spelled]:
    """Each case of a branch is a step of its own, and a join stands for the one that ran."""
    for step in steps:
        if step.branch is None:
            call = step.calls[0] if step.calls else None
            wait = step.awaits
            join = None if call or wait else _join(step)
            yield _Spelled(step.name, step.needs, step.rule, step.when, call, join, wait, step)
            continue
        cases = list(_cases(step))
        yield from cases
        names = tuple(case.name for case in cases)
        yield _Spelled(step.name, names, Rule.ANY_SUCCESS, None, None, Join.BRANCH, None, step)


def _join(step: DeclaredStep) -> Join:
    return Join.VALUES if step.takes or isinstance(step, ValueJoin) else Join.ALL


def _cases(step: DeclaredStep) -> Iterator[_Spelled]:
    assert step.branch is not None
    chosen_by, chosen = Reference(step.branch.on), tuple(step.branch.cases)
    conditions = {case: Condition(eq=(chosen_by, case)) for case in chosen}
    calls = dict(step.branch.cases)
    if step.branch.otherwise is not None:
        calls[OTHERWISE] = step.branch.otherwise
        conditions[OTHERWISE] = Condition(negated=Condition(within=(chosen_by, chosen)))
    for case, call in calls.items():
        when = conditions[case]
        if step.when is not None:
            when = Condition(all_of=(step.when, when))
        name = case_name(step.name, case)
        yield _Spelled(name, step.needs, step.rule, when, call, None, None, step)


def _planned(
    step: _Spelled, positions: Mapping[str, int], without_job: frozenset[str]
) -> PlannedStep:
    terms = step.terms
    takes, reads = _handed(step.call, positions, without_job) if step.call else ({}, {})
    if step.join is Join.VALUES:
        reads = {name: _position(path, positions) for name, path in terms.takes.items()}
    return PlannedStep(
        GraphStep(
            name=step.name,
            payload=b"",
            needs=tuple(positions[name] for name in step.needs),
            delay_seconds=terms.delay_seconds if step.call else 0.0,
            rule=step.rule,
            when=_positioned(step.when, positions) if step.when else None,
            takes=takes,
            reads=reads,
            sets={} if step.join is Join.BRANCH else dict(terms.sets),
            may_fail=terms.may_fail,
            join=step.join,
            wait=step.wait,
        ),
        step.call,
        terms,
    )


def _compensations(
    ordered: Sequence[_Spelled], positions: Mapping[str, int], without_job: frozenset[str]
) -> Iterator[PlannedStep]:
    for step in ordered:
        call, is_case = step.terms.compensate, step.name != step.terms.name
        if call is not None and not is_case:
            takes, reads = _handed(call, positions, without_job)
            undoing = GraphStep(
                name=undoing_name(step.name),
                payload=b"",
                compensates=positions[step.name],
                takes=takes,
                reads=reads,
            )
            yield PlannedStep(undoing, call, step.terms)


def _handed(
    call: DeclaredCall, positions: Mapping[str, int], without_job: frozenset[str]
) -> tuple[dict[str, int], dict[str, Path]]:
    """Whole results, which may be encrypted, and parts of results and of the context."""
    takes: dict[str, int] = {}
    reads: dict[str, Path] = {}
    for parameter, path in call.takes.items():
        if len(path) == 2 and path[0] == "results" and path[1] not in without_job:
            takes[parameter] = positions[str(path[1])]
        else:
            reads[parameter] = _position(path, positions)
    return takes, reads


def _position(path: Path, positions: Mapping[str, int]) -> Path:
    return _renamed_path(path, lambda name: positions[str(name)])


def _positioned(condition: Condition, positions: Mapping[str, int]) -> Condition:
    return renamed(condition, lambda name: positions[str(name)])


Rename = Callable[[str | int], str | int]


def renamed(condition: Condition, rename: Rename) -> Condition:
    """The condition with steps called otherwise.

    Args:
        condition: any.
        rename: from a step's name to its position, or the other way.
    """
    return with_paths(condition, lambda path: _renamed_path(path, rename))


def with_paths(condition: Condition, change: Callable[[Path], Path]) -> Condition:
    """The condition with other paths. Args: change: from each path to that in its place."""

    def operand(side: Operand) -> Operand:
        return Reference(change(side.ref)) if isinstance(side, Reference) else side

    operator = condition.operator
    if condition.exists is not None:
        return Condition(exists=change(condition.exists))
    if condition.negated is not None:
        return Condition(negated=with_paths(condition.negated, change))
    if condition.comparison is not None:
        left, right = condition.comparison
        return msgspec.structs.replace(condition, **{operator: (operand(left), operand(right))})
    parts = tuple(with_paths(part, change) for part in condition.parts)
    return msgspec.structs.replace(condition, **{operator: parts})


def _renamed_path(path: Path, rename: Rename) -> Path:
    root, name, *others = path
    return (root, rename(name), *others) if root == "results" else path
