"""What happens to a graph: jobs that wait for each other. A chain is a graph in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

import msgspec

from penstock.events.batch import Callbacks
from penstock.events.brief import brief, brief_fields
from penstock.events.condition import MAX_PATH_LENGTH, Condition, Path, Text
from penstock.events.envelope import Codec, Event, Instant, Int64, check_instant


class Rule(StrEnum):
    """When a step may run: judged once, as soon as all steps that it needs have ended.

    So it never depends on which of them ended first.
    """

    NONE_FAILED = "none_failed"
    """All completed or were skipped. The usual one: a skipped step does not block."""
    ALL_SUCCESS = "all_success"
    """All completed; if one was skipped, this one is skipped, too."""
    ALL_DONE = "all_done"
    """In any case."""
    ANY_FAILED = "any_failed"
    """One failed; else this one is skipped."""
    ANY_SUCCESS = "any_success"
    """One completed; if all were skipped, this one is skipped, too."""


class Join(StrEnum):
    """A step without a job."""

    ALL = "all"
    """It ends when those before it have ended."""
    BRANCH = "branch"
    """Likewise; its result is that of the one that completed."""
    VALUES = "values"
    """Likewise; its result is an object of what it reads."""


OnFailure = Literal["stop", "continue"]
"""What follows a failed step: no other begins, or only those do not that need it."""


MAX_SIGNAL_NAME = 64
MAX_WAIT_SECONDS = 3_660 * 86_400.0
"""Ten years: what a step waits for at most."""


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step without a job waits for: a signal, or a time.

    Attributes:
        signal: its name; empty for a step that waits for its time alone.
        seconds: from when its turn comes; without a signal, 0 is no wait at all; with one, 0 is
            for ever.
        default: its result if no signal has come in time, as MessagePack; empty: it fails then.
        is_approval: the value is true or false, and false fails the step.
    """

    signal: str = ""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0.0
    default: bytes = b""
    is_approval: bool = False

    __repr__ = brief
    __rich_repr__ = brief_fields


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that was sent to a graph.

    Attributes:
        value: as MessagePack.
        signal_id: the sender's own id; empty for none.
        at: when it was sent.
    """

    value: bytes = b""
    signal_id: str = ""
    at: Instant | None = None

    def __post_init__(self) -> None:
        check_instant("at", self.at)

    __repr__ = brief
    __rich_repr__ = brief_fields


ResultPath = Annotated[tuple[Text | Int64, ...], msgspec.Meta(max_length=MAX_PATH_LENGTH)]
"""A part of a result; empty for all of it."""


class GraphStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a graph.

    Attributes:
        payload: the encoded call.
        needs: steps (by position) that must have completed before.
        takes: parameters that are given the result of one of them.
        delay_seconds: between when its turn comes and when its job may start.
        rule: how those in ``needs`` must have ended.
        when: it is skipped unless this holds, too.
        reads: parameters that are given a part of a result, or of the context.
        sets: keys of the context, each with the part of this step's result that becomes its value.
        may_fail: the whole does not fail because of it.
        join: it has no job.
        wait: it has no job, and ends when what it waits for has come.
        compensates: position of the step that its job undoes, should the whole fail.
    """

    name: str
    payload: bytes
    needs: tuple[Int64, ...] = ()
    takes: dict[str, Int64] = {}
    delay_seconds: float = 0.0
    rule: Rule = Rule.NONE_FAILED
    when: Condition | None = None
    reads: dict[str, Path] = {}
    sets: dict[str, ResultPath] = {}
    may_fail: bool = False
    join: Join | None = None
    wait: Wait | None = None
    compensates: Int64 | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields


MAX_STEPS = 1_000
"""Of one graph."""


def _check_steps(steps: Sequence[GraphStep]) -> None:
    """Refuses a graph that no client makes, and that would never get ready.

    Raises:
        ValueError: too many steps, one that needs, reads or undoes itself or a later one, or needs
            one twice.
    """
    if not 1 <= len(steps) <= MAX_STEPS:
        raise ValueError(f"found {len(steps)} steps, expected 1 to {MAX_STEPS}")
    for index, step in enumerate(steps):
        earlier = range(index)
        needs = set(step.needs)
        if len(needs) != len(step.needs) or not all(need in earlier for need in needs):
            raise ValueError(f"step {index} needs itself, a later step, or a step twice")
        if not _reads_earlier(step, earlier):
            raise ValueError(f"step {index} reads, or undoes, itself or a later step")


def _reads_earlier(step: GraphStep, earlier: range) -> bool:
    paths = [*(step.when.paths() if step.when else ()), *step.reads.values()]
    results = [path[1] for path in paths if path[0] == "results"]
    undone = () if step.compensates is None else (step.compensates,)
    return all(index in earlier for index in (*results, *undone)) and all(
        path[0] in {"results", "context"} for path in paths
    )


def _check_instants(waits: Mapping[int, datetime | None]) -> None:
    """Raises MalformedEvent."""
    for until in waits.values():
        check_instant("until", until)


class GraphEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "graph"
    key_field: ClassVar[str] = "graph_id"

    graph_id: str


class GraphStarted(GraphEvent, frozen=True, kw_only=True, tag=True):
    """A graph or chain was accepted; each step's job is dispatched when its turn comes.

    Attributes:
        steps: in an order in which none needs a later one; compensations come last.
        on_failure: whether other steps begin after one has failed.
        context: values that its steps share, by key, as MessagePack.
        definition: name of the stored definition that it was made from; empty for none.
        version: of that definition.
        digest: of that definition.
        timeout_seconds: how long it may take; 0 for no bound.
    """

    steps: tuple[GraphStep, ...]
    title: str = ""
    callbacks: Callbacks = Callbacks()
    on_failure: OnFailure = "stop"
    context: bytes = b""
    definition: str = ""
    version: Int64 = 0
    digest: str = ""
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0.0

    def __post_init__(self) -> None:
        _check_steps(self.steps)


class GraphWaiting(GraphEvent, frozen=True, kw_only=True, tag=True):
    """The turn of steps has come that wait for a time or for a signal.

    Attributes:
        until: by the positions of these steps; None for one that waits for ever.
    """

    until: dict[Int64, Instant | None]

    def __post_init__(self) -> None:
        _check_instants(self.until)


class GraphSignalled(GraphEvent, frozen=True, kw_only=True, tag=True):
    """Someone sent a value to the step that waits for it, or will.

    Attributes:
        signal: its name.
        value: as MessagePack.
        signal_id: the sender's own id; empty for none.
    """

    signal: str
    value: bytes
    signal_id: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields


class GraphElapsed(GraphEvent, frozen=True, kw_only=True, tag=True):
    """The time of steps has come that waited for it, or for a signal until then.

    Attributes:
        steps: their positions.
    """

    steps: tuple[Int64, ...]


class GraphTimedOut(GraphEvent, frozen=True, kw_only=True, tag=True):
    """It took longer than it may: as if it were cancelled, but it ends as failed."""

    reason: str


class GraphStopping(GraphEvent, frozen=True, kw_only=True, tag=True):
    """A client cancelled it: no step is dispatched any more, those that run are cancelled."""

    reason: str


class GraphCompleted(GraphEvent, frozen=True, kw_only=True, tag=True):
    """All steps have completed."""


class GraphFailed(GraphEvent, frozen=True, kw_only=True, tag=True):
    """A step failed: later ones are not dispatched, and those that ran have ended."""

    step: str
    job_id: str
    reason: str


class GraphCancelled(GraphEvent, frozen=True, kw_only=True, tag=True):
    reason: str


class GraphReopened(GraphEvent, frozen=True, kw_only=True, tag=True):
    """It goes on where it ended: the jobs of steps that failed or were cancelled run again.

    Attributes:
        round: 1 for the first time.
    """

    round: Int64


class GraphPaused(GraphEvent, frozen=True, kw_only=True, tag=True):
    """A client paused it: no further step is dispatched, and it does not end, until it is resumed.

    Attributes:
        reason: given by the person who paused it.
    """

    reason: str = ""


class GraphResumed(GraphEvent, frozen=True, kw_only=True, tag=True):
    """A paused graph goes on; one that is not paused is looked at again by the orchestrator.

    Attributes:
        reason: given by the person who resumed it.
    """

    reason: str = ""


class GraphCarried(GraphEvent, frozen=True, kw_only=True, tag=True):
    """All that the graph's earlier events led to: they leave the log, and this takes their place.

    Attributes:
        slots: how the jobs of its steps stand, by the steps' positions; None where that is not
            known, of a graph that has ended.
        again: steps whose jobs are to be given another life.
        counted_to: the log's sequence up to which jobs are counted in ``slots``.
        waits: until when steps wait that began to, by their positions; None for ever.
        elapsed: those whose time has come.
        signals: the first of each name.
        paused_at: since when it is paused; None where it is not.
        pause_reason: as in GraphPaused.
    """

    state: str
    steps: tuple[GraphStep, ...]
    title: str
    callbacks: Callbacks
    first_sequence: Int64
    started_at: Instant
    ended_at: Instant | None = None
    reason: str = ""
    failed_step: str = ""
    failed_job: str = ""
    round: Int64 = 0
    slots: dict[Int64, Int64] | None = None
    again: tuple[Int64, ...] = ()
    counted_to: Int64 = 0
    on_failure: OnFailure = "stop"
    context: bytes = b""
    definition: str = ""
    version: Int64 = 0
    digest: str = ""
    waits: dict[Int64, Instant | None] = {}
    elapsed: tuple[Int64, ...] = ()
    signals: dict[str, Signal] = {}
    timeout_seconds: float = 0.0
    deadline: Instant | None = None
    timed_out: bool = False
    paused_at: Instant | None = None
    pause_reason: str = ""

    def __post_init__(self) -> None:
        _check_steps(self.steps)
        _check_instants(self.waits)


GRAPH_EVENTS = Codec(
    GraphStarted,
    GraphWaiting,
    GraphSignalled,
    GraphElapsed,
    GraphTimedOut,
    GraphStopping,
    GraphCompleted,
    GraphFailed,
    GraphCancelled,
    GraphReopened,
    GraphPaused,
    GraphResumed,
    GraphCarried,
)
