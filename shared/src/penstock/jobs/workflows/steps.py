"""The steps of a graph as their author writes them, and as they are started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from penstock.config.topology import Priority
from penstock.events.condition import Condition, Path
from penstock.events.graph import MAX_STEPS, GraphStep, Rule
from penstock.events.subjects import check_name
from penstock.jobs import derived_ids
from penstock.jobs.dispatch.awaiting import Awaiting, split
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.dispatch.job_factory import Terms, due_at
from penstock.jobs.job_type import Call, JobType
from penstock.jobs.registry import check_tags
from penstock.jobs.retry import Backoff
from penstock.jobs.workflows import graph_order
from penstock.jobs.workflows.declared import text
from penstock.jobs.workflows.declared.definition import (
    Branch,
    DeclaredCall,
    DeclaredStep,
    Definition,
    SignalWait,
)
from penstock.jobs.workflows.declared.planning import (
    OTHERWISE,
    PlannedStep,
    case_name,
    plan,
    undoing_name,
)
from penstock.jobs.workflows.graph_order import BadGraph

AnyCall = Call | Awaiting

_MAX_NAME_LENGTH = 100
"""Of a graph, in the call of each of its steps."""


class Step(msgspec.Struct, frozen=True):
    """A job in a graph; or one of several jobs; or a join of other steps, without a job.

    Attributes:
        call: what runs; None for a join, and beside ``branch``.
        after: names of the steps that must have ended before.
        takes: parameters left open by ``awaiting`` and the step whose result each is given, or the
            part of a result or of the context: ``results.load.rows``, ``context.customer``. Not
            needed where one parameter is open and one step comes before.
        queue: instead of the graph's and of the function's own.
        priority: instead of the graph's, for queues that have priorities.
        delay: seconds between when its turn comes and when its job may start.
        tags: besides those of the graph and of the function.
        rule: how the steps in ``after`` must have ended: ``none_failed``, ``all_success``,
            ``all_done``, ``any_failed`` or ``any_success``.
        when: the step is skipped unless this holds: ``results.check.total > 100``.
        branch: calls of which one is made, by the value that chooses it.
        on: what chooses: ``context.gateway``.
        otherwise: the call where none is chosen; without it the step is skipped then.
        sets: keys of the context, each with the part of the result that becomes its value:
            ``result``, ``result.gateway``.
        may_fail: the graph does not fail because of this step.
        compensate: called if the step has completed and the graph fails or is cancelled.
        tries: attempts allowed; 0 leaves it to the function and the pool.
        timeout: seconds of an attempt; 0 leaves it to the function and the pool.
        backoff: between attempts, instead of the function's.
        sleep: without a call: the step ends so many seconds after its turn has come.
        wait: without a call: the step ends when this signal has come, whose value is its result.
        approval: likewise, with true or false; false fails the step.
    """

    call: AnyCall | None = None
    after: Sequence[str] = ()
    takes: Mapping[str, str] = {}
    queue: str = ""
    priority: Priority | None = None
    delay: float | timedelta = 0.0
    tags: Sequence[str] = ()
    rule: str = Rule.NONE_FAILED
    when: str | Condition | None = None
    branch: Mapping[str, AnyCall] = {}
    on: str = ""
    otherwise: AnyCall | None = None
    sets: Mapping[str, str] = {}
    may_fail: bool = False
    compensate: AnyCall | None = None
    tries: int = 0
    timeout: float | timedelta = 0.0
    backoff: Backoff | None = None
    sleep: float | timedelta = 0.0
    wait: SignalWait | None = None
    approval: SignalWait | None = None

    @property
    def cases(self) -> dict[str, AnyCall]:
        """The calls of a branch."""
        return {**self.branch, **({OTHERWISE: self.otherwise} if self.otherwise else {})}


class CommonTerms(NamedTuple):
    """What the steps of one graph have in common; ``workflow`` is its name."""

    queue: str = ""
    priority: Priority = "normal"
    delay: float | timedelta = 0.0
    tags: tuple[str, ...] = ()
    tries: int = 0
    workflow: str = ""


# --- to a definition ------------------------------------------------------------------------------
def declared(
    steps: Mapping[str, Step], by_level: bool, delay: float | timedelta
) -> Iterator[DeclaredStep]:
    """The steps as those of a definition.

    Args:
        steps: by name.
        by_level: each needs all of the group before its own.
        delay: of the first ones.

    Raises:
        BadGraph, BadTime, BadCondition
    """
    names = frozenset(steps)
    takes = {name: _takes(name, step, names) for name, step in steps.items()}
    needs = {
        name: list(dict.fromkeys([*step.after, *_taken_from(takes[name], names)]))
        for name, step in steps.items()
    }
    levels = graph_order.by_level(needs)  # also where they are not used: it checks the names
    if by_level:
        needs = levels
    for name, step in steps.items():
        yield _declared(name, step, names, takes[name], needs[name], delay)


def calls_of(steps: Mapping[str, Step]) -> dict[str, AnyCall]:
    """The calls of a graph by the names that its planned steps have."""
    calls: dict[str, AnyCall] = {}
    for name, step in steps.items():
        if step.call is not None:
            calls[name] = step.call
        calls |= {case_name(name, case): call for case, call in step.cases.items()}
        if step.compensate is not None:
            calls[undoing_name(name)] = step.compensate
    return calls


def _declared(
    name: str,
    step: Step,
    names: frozenset[str],
    takes: Mapping[str, Path],
    needs: Sequence[str],
    delay: float | timedelta,
) -> DeclaredStep:
    if step.rule not in list(Rule):
        raise BadGraph(f"step {name!r}: unknown rule {step.rule!r}; expected {', '.join(Rule)}")
    if bool(step.cases) + (step.call is not None) > 1:
        raise BadGraph(f"step {name!r} has a call and a branch; expected one of them")
    if step.queue:
        check_name("queue", step.queue)
    check_tags(step.tags)
    own = {} if step.call is None else _open(step.call, takes)
    branch = None
    if step.cases:
        branch = Branch(
            on=text.parse_path(step.on),
            cases={case: _call(call, takes) for case, call in step.branch.items()},
            otherwise=_call(step.otherwise, takes) if step.otherwise else None,
        )
    return DeclaredStep(
        name=name,
        function="" if step.call is None else step.call.job.name,
        takes=own,
        branch=branch,
        needs=tuple(needs),
        rule=Rule(step.rule),
        when=text.parse_condition(step.when) if isinstance(step.when, str) else step.when,
        sets={key: text.parse_result_path(path) for key, path in step.sets.items()},
        may_fail=step.may_fail,
        compensate=_undoing(name, step, names),
        queue=step.queue,
        priority=step.priority,
        delay_seconds=_delay_seconds(step, delay, is_first=not needs),
        sleep_seconds=seconds(step.sleep),
        wait=step.wait,
        approval=step.approval,
        tries=step.tries,
        timeout_seconds=seconds(step.timeout),
        backoff=step.backoff,
        tags=tuple(step.tags),
    )


def _call(call: AnyCall, takes: Mapping[str, Path]) -> DeclaredCall:
    return DeclaredCall(function=call.job.name, takes=_open(call, takes))


def _open(call: AnyCall, takes: Mapping[str, Path]) -> dict[str, Path]:
    """What the parameters are given that this call leaves open."""
    parameters = _parameters(call)
    return {name: path for name, path in takes.items() if name in parameters}


def _takes(name: str, step: Step, names: frozenset[str]) -> dict[str, Path]:
    """What each parameter is given that the step's calls leave open. Raises BadGraph."""
    calls = [call for call in (step.call, *step.cases.values()) if call is not None]
    takes: dict[str, Path] = {}
    for call in calls:
        missing = _parameters(call)
        takes |= _named(name, step, missing, names)
        left = [parameter for parameter in missing if parameter not in takes]
        if len(left) == len(step.after) == 1:
            takes[left[0]] = ("results", step.after[0])
        _check_given(name, missing, takes)
    open_parameters = {*takes, *(_parameters(step.compensate) if step.compensate else ())}
    if wrong := [parameter for parameter in step.takes if parameter not in open_parameters]:
        raise BadGraph(f"step {name!r} takes {wrong[0]!r}, which awaiting(...) did not leave open")
    return takes


def _undoing(name: str, step: Step, names: frozenset[str]) -> DeclaredCall | None:
    """The call that undoes a step; one open parameter is given the step's own result."""
    if step.compensate is None:
        return None
    parameters = _parameters(step.compensate)
    takes = _named(name, step, parameters, names)
    left = [parameter for parameter in parameters if parameter not in takes]
    if len(left) == 1:
        takes[left[0]] = ("results", name)
    _check_given(name, parameters, takes)
    return DeclaredCall(function=step.compensate.job.name, takes=takes)


def _named(
    name: str, step: Step, parameters: Sequence[str], names: frozenset[str]
) -> dict[str, Path]:
    """Those of the parameters that the step names."""
    return {
        parameter: ("results", source) if source in names else _path(source)
        for parameter, source in step.takes.items()
        if parameter in parameters
    }


def _check_given(name: str, parameters: Sequence[str], takes: Mapping[str, Path]) -> None:
    """Raises BadGraph."""
    if missing := [parameter for parameter in parameters if parameter not in takes]:
        raise BadGraph(
            f"step {name!r}: parameter {missing[0]!r} is left open and takes no step's result; "
            "name the step in takes"
        )


def _parameters(call: AnyCall) -> tuple[str, ...]:
    """Those that the call leaves open."""
    return split(call, MAX_STEPS)[1]


def _path(source: str) -> Path:
    """Raises BadGraph."""
    if source.startswith(("results.", "results[", "context.", "context[")):
        return text.parse_path(source)
    return ("results", source)  # no step has this name: the order of the steps reports it


def _taken_from(takes: Mapping[str, Path], names: frozenset[str]) -> list[str]:
    return [str(path[1]) for path in takes.values() if path[0] == "results"]


def _delay_seconds(step: Step, common: float | timedelta, *, is_first: bool) -> float:
    """Raises BadTime."""
    is_job = step.call is not None or bool(step.cases)
    return delay_seconds(step.delay) + (delay_seconds(common) if is_first and is_job else 0.0)


def delay_seconds(delay: float | timedelta) -> float:
    """The seconds that a job may be delayed by. Raises BadTime."""
    at = datetime.now(UTC)
    return ((due_at(delay, None, at) or at) - at).total_seconds()


def seconds(length: float | timedelta) -> float:
    """A length of time as seconds."""
    return length.total_seconds() if isinstance(length, timedelta) else float(length)


# --- to what is started ---------------------------------------------------------------------------
def encoded(
    definition: Definition,
    calls: Mapping[str, AnyCall],
    dispatcher: Dispatcher,
    graph_id: str,
    common: CommonTerms,
) -> tuple[GraphStep, ...]:
    """The steps with their encoded calls.

    Args:
        definition: a checked one.
        calls: by the names of the planned steps.
        dispatcher: encodes them.
        graph_id: of the graph.
        common: terms of all steps.

    Raises:
        BadGraph: a step takes a result that is not stored, or looks into an encrypted one.
        JobRefused, BadName: a call that cannot be dispatched.
    """
    planned = plan(definition)
    whole = [split(calls[step.step.name], MAX_STEPS)[0] if step.call else None for step in planned]
    sealed: set[int] = set()
    started = []
    for position, (plan_step, call) in enumerate(zip(planned, whole, strict=True)):
        step = plan_step.step
        _check_results(step, planned, whole, sealed)
        if call is None:
            started.append(step)
            continue
        if dispatcher.factory.seals(call) or sealed.intersection(step.takes.values()):
            sealed.add(position)
        terms = _terms(plan_step, common, graph_id, is_sealed=position in sealed)
        job_id, queue = derived_ids.step_id(graph_id, position), _queue(plan_step, common)
        payload = dispatcher.prepare(call, job_id, queue, terms).payload
        started.append(msgspec.structs.replace(step, payload=payload))
    return tuple(started)


def _queue(planned: PlannedStep, common: CommonTerms) -> str:
    own = planned.call.queue if planned.call else ""
    of_the_step = planned.terms.queue if planned.step.compensates is None else ""
    return own or of_the_step or common.queue


def _terms(planned: PlannedStep, common: CommonTerms, graph_id: str, *, is_sealed: bool) -> Terms:
    """How often and how long a step may be tried is not how a compensation may."""
    step, terms = planned.step, planned.terms
    takes = {
        parameter: derived_ids.step_id(graph_id, position)
        for parameter, position in step.takes.items()
    }
    priority, tags = terms.priority or common.priority, check_tags((*common.tags, *terms.tags))
    made = Terms(
        step=step.name,
        workflow=common.workflow[:_MAX_NAME_LENGTH],
        sealed=is_sealed,
        takes=takes,
        priority=priority,
        tags=tags,
    )
    if step.compensates is not None:
        return made
    return msgspec.structs.replace(
        made,
        tries=terms.tries or common.tries,
        timeout_seconds=terms.timeout_seconds,
        backoff=terms.backoff,
    )


def _check_results(
    step: GraphStep,
    planned: Sequence[PlannedStep],
    calls: Sequence[Call | None],
    sealed: set[int],
) -> None:
    """Raises BadGraph: a result that the step needs is not stored, or not readable."""
    paths = [*(step.when.paths() if step.when else ()), *step.reads.values()]
    looked_into = {int(path[1]) for path in paths if path[0] == "results"}
    for position in (*step.takes.values(), *looked_into):
        call, other = calls[position], planned[position].step.name
        if call and isinstance(call.job, JobType) and not call.job.store_result:
            raise BadGraph(
                f"step {step.name!r} takes the result of step {other!r}, and {call.job.name} "
                "stores none (store_result=False)"
            )
        if position in looked_into & sealed:
            raise BadGraph(
                f"step {step.name!r} looks into the result of step {other!r}, which is encrypted; "
                "an encrypted result is only taken as a whole"
            )
