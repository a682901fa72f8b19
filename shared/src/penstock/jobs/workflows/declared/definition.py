"""The definition of a workflow as a value: its steps, what they need, and when they run."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from penstock.config.topology import Priority
from penstock.events.condition import Condition, Path
from penstock.events.graph import MAX_SIGNAL_NAME, OnFailure, ResultPath, Rule, Wait
from penstock.jobs.retry import Backoff

MAX_BYTES = 256_000
"""Of a definition, encoded: it is stored in one message."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3_660 * 86_400.0)]


class _Declared(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What people write: a field that does not exist is an error, not ignored."""


class DeclaredCall(_Declared, frozen=True, kw_only=True):
    """A function and its arguments.

    Attributes:
        function: as it is registered.
        arguments: plain values.
        takes: parameters that are given a part of a result, or of the context. One whose value
            does not exist, of a skipped step say, is left out of the call.
        queue: instead of the step's, the definition's and the function's own.
    """

    function: Name
    arguments: dict[str, Any] = {}
    takes: dict[str, Path] = {}
    queue: str = ""


class Branch(_Declared, frozen=True, kw_only=True):
    """Which one of several calls a step makes.

    Attributes:
        on: the value that chooses; as text it is the name of a case.
        cases: calls by the value that chooses them.
        otherwise: where no case is chosen; without it the step is skipped then.
    """

    on: Path
    cases: dict[Name, DeclaredCall]
    otherwise: DeclaredCall | None = None


class SignalWait(_Declared, frozen=True, kw_only=True):
    """A value that someone sends to the workflow.

    Attributes:
        signal: its name; that of the step where it is empty.
        timeout_seconds: how long it is waited for, once the turn of the step has come; 0: for ever.
        default: the result if none has come by then; without it the step fails.
    """

    signal: Annotated[str, msgspec.Meta(max_length=MAX_SIGNAL_NAME)] = ""
    timeout_seconds: Seconds = 0.0
    default: Any = msgspec.UNSET


class DeclaredStep(_Declared, frozen=True, kw_only=True):
    """A step of a definition: a job, one of several jobs, a wait, or a join without any of these.

    Attributes:
        function: as it is registered; only of a job.
        arguments: plain values.
        takes: see :class:`DeclaredCall`. The result of a join is an object of these values.
        branch: calls of which one is made.
        workflow: name of a stored definition, whose steps take the place of this one; arguments and
            takes are its context.
        sleep_seconds: the step ends this long after its turn has come.
        wait: the step ends when this signal has come; its result is the value.
        approval: likewise, with a value that is true or false; false fails the step.
        needs: steps that must have ended before.
        rule: how they must have ended.
        when: the step is skipped unless this holds.
        sets: keys of the context, each with the part of the result that becomes its value.
        may_fail: the workflow does not fail because of this step.
        compensate: called if the step has completed and the workflow fails or is cancelled.
        queue: instead of the definition's and of the function's own.
        priority: for queues that have priorities.
        delay_seconds: between when its turn comes and when its job may start.
        tries: attempts allowed; 0 leaves it to the function and the pool.
        timeout_seconds: per attempt; 0 leaves it to the function and the pool.
        backoff: between attempts, instead of the function's.
        tags: besides the definition's and the function's.
    """

    name: Name
    function: str = ""
    arguments: dict[str, Any] = {}
    takes: dict[str, Path] = {}
    branch: Branch | None = None
    workflow: Annotated[str, msgspec.Meta(max_length=100)] = ""
    sleep_seconds: Seconds = 0.0
    wait: SignalWait | None = None
    approval: SignalWait | None = None
    needs: tuple[str, ...] = ()
    rule: Rule = Rule.NONE_FAILED
    when: Condition | None = None
    sets: dict[Name, ResultPath] = {}
    may_fail: bool = False
    compensate: DeclaredCall | None = None
    queue: str = ""
    priority: Priority | None = None
    delay_seconds: Seconds = 0.0
    tries: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    timeout_seconds: Seconds = 0.0
    backoff: Backoff | None = None
    tags: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[DeclaredCall, ...]:
        """All that it may call; none for a join."""
        if self.branch is not None:
            otherwise = (self.branch.otherwise,) if self.branch.otherwise else ()
            return (*self.branch.cases.values(), *otherwise)
        if not self.function:
            return ()
        return (DeclaredCall(function=self.function, arguments=self.arguments, takes=self.takes),)

    @property
    def awaits(self) -> Wait | None:
        """What it waits for instead of a job's end."""
        awaited = self.wait or self.approval
        if awaited is None:
            return Wait(seconds=self.sleep_seconds) if self.sleep_seconds else None
        has_default = awaited.default is not msgspec.UNSET
        return Wait(
            signal=awaited.signal or self.name,
            seconds=awaited.timeout_seconds,
            default=msgspec.msgpack.encode(awaited.default) if has_default else b"",
            is_approval=self.approval is not None,
        )


class ValueJoin(DeclaredStep, frozen=True, kw_only=True):
    """A join that has a result even if it takes nothing: an inner workflow begins and ends so."""


class Definition(_Declared, frozen=True, kw_only=True):
    """A workflow that can be started any number of times; one that runs keeps its own copy.

    Attributes:
        name: what it is started by.
        version: grows with each change.
        steps: in any order.
        context: keys that all steps share, with their values at the start.
        required: further keys, whose values are given when it is started.
        returns: where it is a step of another workflow, the step's result: an object of parts of
            results and of the context.
        on_failure: after a failed step either no other begins, or only those do not that need it.
        timeout_seconds: how long it may take; then its steps are cancelled, and it has failed. 0
            for no bound.
        queue: of steps that name none, instead of the functions' own.
        priority: of steps that name none.
        tries: of steps that name none; 0 leaves them to the functions and pools.
        tags: of all steps, besides the functions' own.
        description: for people.
        metadata: for people.
    """

    name: Name
    version: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = 1
    steps: tuple[DeclaredStep, ...]
    context: dict[Name, Any] = {}
    required: tuple[Name, ...] = ()
    returns: dict[Name, Path] = {}
    on_failure: OnFailure = "continue"
    timeout_seconds: Seconds = 0.0
    queue: str = ""
    priority: Priority = "normal"
    tries: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    tags: tuple[str, ...] = ()
    description: str = ""
    metadata: dict[str, str] = {}

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the context."""
        return frozenset((*self.context, *self.required))


def canonical(definition: Definition) -> bytes:
    """The one JSON form of a definition: fields and keys sorted, defaults left out."""
    return msgspec.json.encode(definition, order="sorted")


def digest(definition: Definition) -> str:
    """What two definitions share only if they are equal: 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(definition), digest_size=16).hexdigest()
