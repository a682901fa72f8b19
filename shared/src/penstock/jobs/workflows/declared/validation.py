"""What a definition must fulfil, so that each of its steps can run or be skipped. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from penstock.events.condition import Path
from penstock.events.graph import MAX_STEPS, OnFailure, Rule
from penstock.events.subjects import BadName, check_name
from penstock.events.workflow_memo import MAX_SIGNAL_BYTES
from penstock.jobs.registry import check_tags
from penstock.jobs.workflows import near_names
from penstock.jobs.workflows.declared import bounds
from penstock.jobs.workflows.declared.definition import (
    MAX_BYTES,
    Branch,
    DeclaredCall,
    DeclaredStep,
    Definition,
    SignalWait,
    canonical,
)
from penstock.jobs.workflows.declared.planning import all_names
from penstock.jobs.workflows.declared.text import written_path
from penstock.jobs.workflows.graph_order import BadGraph

_MOST_SHOWN = 20
_MAX_DELAY_SECONDS = 366 * 86_400.0
_NEEDS_ONE = (Rule.ANY_FAILED, Rule.ANY_SUCCESS)


class _Before(NamedTuple):
    """A step, and those that have ended before it, as bits of one number."""

    own: int
    earlier: int


_ALL = -1
"""All steps, as such a number."""


class BadDefinition(BadGraph):
    """A definition that cannot run: each line of the text names a step and what is wrong."""


def checked(definition: Definition, *, max_bytes: int | None = MAX_BYTES) -> Definition:
    """The definition, if each of its steps can run or be skipped.

    Args:
        definition: any.
        max_bytes: of a stored one, encoded; None for any.

    Raises:
        BadDefinition: with all that is wrong, 20 lines at most.
    """
    try:
        size = 0 if max_bytes is None else len(canonical(definition))
        if max_bytes is not None and size > max_bytes:
            raise BadDefinition(
                f"{definition.name}: it has {size:,} bytes, a definition has at most {max_bytes:,}"
            )
        problems = list(islice(_problems(definition), _MOST_SHOWN + 1))
    except (TypeError, OverflowError, RecursionError) as error:
        raise BadDefinition(f"{definition.name}: it cannot be encoded: {error}") from None
    if problems:
        shown = problems[:_MOST_SHOWN]
        hidden = ["and more"] if len(problems) > _MOST_SHOWN else []
        raise BadDefinition("\n".join([f"workflow {definition.name!r}:", *shown, *hidden]))
    return definition


def _problems(definition: Definition) -> Iterator[str]:
    names = [name for step in definition.steps for name in all_names(step)]
    if not 1 <= len(names) <= MAX_STEPS:
        yield (
            f"it has 1 to {MAX_STEPS} steps, cases of branches and compensations included; "
            f"found {len(names)}"
        )
        return
    yield from _of_the_whole(definition, names)
    steps = {step.name: step for step in definition.steps}
    needs = {step.name: [name for name in step.needs if name in steps] for step in steps.values()}
    for step in definition.steps:
        problems = _of_a_step(step, definition, steps.keys())
        yield from (f"step {step.name!r} {problem}" for problem in problems)
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        yield f"steps need each other: {' → '.join(reversed(error.args[1]))}"
        return
    if refusal := bounds.refusal(bounds.declared_work(definition.steps)):
        yield refusal
        return
    before = _before(order, needs)
    for step in definition.steps:
        yield from (
            f"step {step.name!r} {problem}"
            for problem in _of_references(step, before, definition.keys)
        )
    for path in definition.returns.values():
        for problem in _of_a_path(path, _ALL, before, definition.keys):
            yield f"what it returns {problem}"


def _before(order: Sequence[str], needs: Mapping[str, Sequence[str]]) -> dict[str, _Before]:
    """Of each step, by name, all that have ended before it."""
    before: dict[str, _Before] = {}
    for number, name in enumerate(order):
        earlier = 0
        for need in needs[name]:
            earlier |= before[need].earlier | before[need].own
        before[name] = _Before(1 << number, earlier)
    return before


def _of_the_whole(definition: Definition, names: Sequence[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} steps have the name {name!r}"
        if not name.isprintable() or name != name.strip():
            yield f"step name {name!r}: expected printable characters, without blanks around them"
    for key, value in definition.context.items():
        if not _is_plain(value):
            yield f"key {key!r} of the context has a value that JSON cannot hold"
    if both := definition.context.keys() & set(definition.required):
        yield f"key {min(both)!r} of the context is required, and has a value"
    awaited = Counter(wait.signal for step in definition.steps if (wait := step.awaits))
    for signal, count in awaited.items():
        if signal and count > 1:
            yield f"{count} steps wait for the signal {signal!r}; each has one of its own"
    yield from _of_terms(definition.queue, definition.tags)


def _of_terms(queue: str, tags: Iterable[str]) -> Iterator[str]:
    try:
        if queue:
            check_name("queue", queue)
        check_tags(tuple(tags))
    except (BadName, ValueError) as error:
        yield str(error)


def _of_a_step(step: DeclaredStep, definition: Definition, names: Collection[str]) -> Iterator[str]:
    yield from _of_needs(step.needs, names)
    yield from _of_its_kind(step)
    if step.branch is not None:
        yield from _of_a_branch(step, step.branch)
    for call in (*step.calls, *((step.compensate,) if step.compensate else ())):
        yield from _of_a_call(call)
    if step.delay_seconds > _MAX_DELAY_SECONDS:
        yield f"is delayed by {step.delay_seconds:g} s, more than a year"
    yield from _of_terms(step.queue, (*definition.tags, *step.tags))
    yield from _of_a_rule(step, definition.on_failure)


def _of_needs(needs: Sequence[str], names: Collection[str]) -> Iterator[str]:
    for name in needs:
        if name not in names:
            yield f"needs {name!r}, which is no step{near_names.hint(name, names)}"
    if len(set(needs)) != len(needs):
        yield "needs a step twice"


def _of_its_kind(step: DeclaredStep) -> Iterator[str]:
    if not step.function and step.branch is None:
        yield from _of_a_step_without_job(step)
    kinds = {"function": step.function, "branch": step.branch, **_waits(step)}
    if len(given := [name for name, value in kinds.items() if value]) > 1:
        yield f"has {' and '.join(given)}; expected one of them"
    for awaited in (step.wait, step.approval):
        if awaited is not None:
            yield from _of_a_signal(awaited, is_approval=awaited is step.approval)


def _of_a_branch(step: DeclaredStep, branch: Branch) -> Iterator[str]:
    if not branch.cases:
        yield "has a branch without cases"
    if step.arguments or step.takes:
        yield "has a branch: arguments and takes stand in its cases"


def _of_a_call(call: DeclaredCall) -> Iterator[str]:
    for name, value in call.arguments.items():
        if not _is_plain(value):
            yield f"gives {call.function} the argument {name!r}, which JSON cannot hold"
    if both := call.arguments.keys() & call.takes.keys():
        yield f"gives the argument {min(both)!r} of {call.function} twice"
    yield from _of_terms(call.queue, ())


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, str)


def _waits(step: DeclaredStep) -> dict[str, Any]:
    return {
        "workflow": step.workflow,
        "sleep_seconds": step.sleep_seconds,
        "wait": step.wait is not None,
        "approval": step.approval is not None,
    }


def _of_a_step_without_job(step: DeclaredStep) -> Iterator[str]:
    is_join = step.awaits is None and not step.workflow
    if is_join and not step.needs and not step.takes:
        yield "has no function and needs no step: nothing would run"
    what = "is a join, without a function" if is_join else "waits, without a function"
    without_effect = ["delay_seconds", "tries", "timeout_seconds", "backoff"]
    if step.workflow:
        what = "is a workflow"
        inner = DeclaredCall(function=step.workflow, arguments=step.arguments, takes=step.takes)
        yield from _of_a_call(inner)
    elif is_join:
        without_effect += ["arguments", "compensate", *([] if step.takes else ["sets"])]
    else:
        without_effect += ["arguments", "takes"]
    for field in without_effect:
        if getattr(step, field):
            yield f"{what}; {field} would have no effect"


def _of_a_signal(awaited: SignalWait, *, is_approval: bool) -> Iterator[str]:
    has_default = awaited.default is not UNSET
    if has_default and not awaited.timeout_seconds:
        yield "has a default, and no timeout_seconds after which it would count"
    if has_default and is_approval and not isinstance(awaited.default, bool):
        yield "is an approval; its default is true or false"
    if has_default and not _is_plain(awaited.default):
        yield "has a default that JSON cannot hold"
    if has_default and len(msgspec.msgpack.encode(awaited.default)) > MAX_SIGNAL_BYTES:
        yield f"has a default of more than {MAX_SIGNAL_BYTES:,} bytes"


def _of_a_rule(step: DeclaredStep, on_failure: OnFailure) -> Iterator[str]:
    if step.rule in _NEEDS_ONE and not step.needs:
        yield f"can never run: its rule is {step.rule}, and it needs no step"
    if step.rule is Rule.ANY_FAILED and on_failure == "stop":
        yield (
            "can never run: its rule is any_failed, and no step begins after a failure; set "
            "on_failure to continue"
        )


def _of_references(
    step: DeclaredStep, before: Mapping[str, _Before], keys: frozenset[str]
) -> Iterator[str]:
    own, earlier = before[step.name]
    for path in _paths(step):
        yield from _of_a_path(path, earlier, before, keys)
    for path in step.compensate.takes.values() if step.compensate else ():
        yield from _of_a_path(path, earlier | own, before, keys)
    for key in step.sets:
        if key not in keys:
            yield f"sets {key!r}, which is no key of the context; expected {_listed(keys)}"


def _paths(step: DeclaredStep) -> Iterator[Path]:
    if not step.calls:
        yield from step.takes.values()
    if step.when is not None:
        yield from step.when.paths()
    if step.branch is not None:
        yield step.branch.on
    for call in step.calls:
        yield from call.takes.values()


def _of_a_path(
    path: Path, earlier: int, before: Mapping[str, _Before], keys: frozenset[str]
) -> Iterator[str]:
    root, name = path[0], str(path[1])
    shown = written_path(path)
    if root == "context":
        if name not in keys:
            yield f"refers to {shown}; expected a key of the context: {_listed(keys)}"
    elif root != "results":
        yield f"refers to {shown}; a path begins with results.STEP or context.KEY"
    elif name not in before:
        yield f"refers to {shown}, and {name!r} is no step{near_names.hint(name, before)}"
    elif not before[name].own & earlier:
        yield f"refers to {shown}, and {name!r} need not have ended before; add it to needs"


def _listed(keys: frozenset[str]) -> str:
    return ", ".join(sorted(keys)) or "none are declared"
