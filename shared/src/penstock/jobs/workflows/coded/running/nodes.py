"""What the code of a workflow awaits, as a tree of parts with keys; and where a run stops. Pure."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.workflow import (
    StepRecorded,
    StepsScheduled,
)
from penstock.events.workflow_memo import (
    MAX_KEY_LENGTH,
    InlineResult,
    RefusedSignal,
    Resolution,
    ScheduledStep,
    Status,
    StepKind,
    WaitGroup,
)
from penstock.jobs.errors import WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded.commands import Command, Join, RunBatch, RunInline, RunJob, Sleep


class Diverged(Exception):
    """The code calls something else than what was recorded. Says both."""


class Ended(msgspec.Struct, frozen=True):
    """The workflow returned this value."""

    value: Any


class Stopped(msgspec.Struct, frozen=True):
    """The workflow was cancelled, and its code is at its end.

    Attributes:
        is_timed_out: it took longer than the whole of it may.
    """

    reason: str
    is_timed_out: bool = False


class Continued(msgspec.Struct, frozen=True):
    """The workflow begins anew with the arguments of this call."""

    call: Call


class Calls(msgspec.Struct, frozen=True):
    """A function is to run inside of the advance, and to be given to :meth:`Driver.record`."""

    key: str
    command: RunInline[Any]


class Quiet(msgspec.Struct, frozen=True):
    """Nothing goes on until one of the open steps ends."""


class Suspension(msgspec.Struct, frozen=True):
    """What an advance leads to; as the fields of ``WorkflowAdvanced``."""

    now: datetime
    consumed: tuple[Resolution, ...]
    scheduled: tuple[ScheduledStep, ...]
    cancelled: tuple[int, ...]
    wait: tuple[WaitGroup, ...]
    due_at: datetime | None
    status: Status
    parts: int = 0
    patches: tuple[str, ...] = ()
    sealed_status: bytes = b""
    refused: tuple[RefusedSignal, ...] = ()
    read_to: int = 0
    read_ids: tuple[str, ...] = ()

    __repr__ = brief
    __rich_repr__ = brief_fields


class Part(msgspec.Struct, frozen=True):
    """What is to be recorded before an advance goes on."""

    now: datetime
    consumed: tuple[Resolution, ...]
    scheduled: tuple[ScheduledStep, ...] = ()
    cancelled: tuple[int, ...] = ()
    inline: InlineResult | None = None
    patches: tuple[str, ...] = ()

    def event(self, about: Mapping[str, Any], function: str = "") -> StepRecorded | StepsScheduled:
        """What is stored of it.

        Args:
            about: further fields of the event.
            function: name of the workflow's.
        """
        shared: dict[str, Any] = {
            "now": self.now,
            "consumed": self.consumed,
            "patches": self.patches,
            **about,
        }
        if self.inline is not None:
            return StepRecorded(inline=self.inline, **shared)
        return StepsScheduled(
            function=function, scheduled=self.scheduled, cancelled=self.cancelled, **shared
        )


class Scope:
    """A part of a workflow in which names are counted.

    Attributes:
        is_over: its code was interrupted; what it has not awaited it will not.
    """

    def __init__(self, path: str = "") -> None:
        self.path, self.is_over = path, False
        self._occurrences: dict[str, int] = {}

    def key(self, name: str) -> str:
        """The next key of this name. Raises WorkflowError."""
        count = self._occurrences[name] = self._occurrences.get(name, 0) + 1
        key = f"{self.path}{name}" + (f"#{count}" if count > 1 else "")
        if not name or len(key) > MAX_KEY_LENGTH or "/" in name or "#" in name:
            raise WorkflowError(
                f"the key {key[:80]!r} is not allowed: a name has no '/' and no '#', and a key 1 "
                f"to {MAX_KEY_LENGTH} characters with its scopes"
            )
        return key


class Node:
    """Something that is awaited. ``error`` and ``value`` count once it has ended."""

    def __init__(self, parent: Node | None) -> None:
        self.parent = parent
        self.has_ended = False
        self.value: Any = None
        self.error: BaseException | None = None


class Leaf(Node):
    """A step, a timer, a signal, or an inline function.

    Attributes:
        n: its number; None until it is recorded.
        is_compensated: as it was recorded: its end is noted also after it was given up.
        starts_at: its job does not start before; None: at once.
        arguments: see `results.argument_digest`.
    """

    def __init__(
        self,
        parent: Node | None,
        key: str,
        command: Command[Any],
        digest: str,
        due_at: datetime | None,
    ) -> None:
        super().__init__(parent)
        self.key, self.command, self.digest, self.due_at = key, command, digest, due_at
        self.n: int | None = None
        self.is_compensated = False
        self.starts_at: datetime | None = None
        self.arguments = ""

    @property
    def kind(self) -> StepKind:
        match self.command:
            case RunJob(call=call):
                return "workflow" if call.job.kind else "job"
            case RunBatch():
                return "batch"
            case Sleep():
                return "timer"
        return "signal"


class Branch(Node):
    """A coroutine."""

    def __init__(self, parent: Node | None, work: Coroutine[Any, Any, Any], scope: Scope) -> None:
        super().__init__(parent)
        self.work, self.scope = work, scope
        self.awaited: Node | None = None


class JoinNode(Node):
    """Parts that run beside each other."""

    def __init__(self, parent: Node, command: Join[Any]) -> None:
        super().__init__(parent)
        self.command = command
        self.parts: list[Node] = []
        self._ended = 0

    @property
    def all_ended(self) -> bool:
        """Whether all parts have. Looks at each once, however often it is asked."""
        while self._ended < len(self.parts) and self.parts[self._ended].has_ended:
            self._ended += 1
        return self._ended == len(self.parts)


def joined(join: JoinNode, part: Node) -> tuple[Any, BaseException | None] | None:
    """Value and error that a join ends with when one of its parts has; None: it waits for more."""
    command = join.command
    if command.first_only:
        return part.value, part.error
    if part.error is not None and command.on_failure == "cancel":
        return None, part.error
    if not join.all_ended:
        return None
    errors = (part.error for part in join.parts if command.raises)
    failed = next((error for error in errors if error is not None), None)
    return [part.value for part in join.parts], failed


def groups(node: Node) -> Iterator[tuple[tuple[int, ...], bool]]:
    """What must have ended for something below a node to go on; see :class:`WaitGroup`."""
    match node:
        case Leaf(n=int() as n):
            yield (n,), False
        case Branch(awaited=Node() as awaited):
            yield from groups(awaited)
        case JoinNode():
            pending = [part for part in node.parts if not part.has_ended]
            leaves = tuple(
                part.n for part in pending if isinstance(part, Leaf) and part.n is not None
            )
            if node.command.first_only:
                yield from (((n,), False) for n in leaves)
            elif leaves:
                yield leaves, node.command.on_failure == "cancel"
            for part in pending:
                if not isinstance(part, Leaf):
                    yield from groups(part)


def due_at(root: Node, leaves: Iterable[Leaf]) -> datetime | None:
    """The first time at which a group may have ended for its times alone.

    Args:
        root: below which groups are waited for.
        leaves: all that are open.
    """
    by_number = {leaf.n: leaf.due_at for leaf in leaves}
    dues = []
    for steps, _ in groups(root):
        times = [due for n in steps if (due := by_number[n]) is not None]
        if times:
            dues.append(max(times))
    return min(dues, default=None)


def later(now: datetime, length: timedelta) -> datetime:
    """Raises WorkflowError: there is no such time."""
    try:
        return now + length
    except OverflowError:
        raise WorkflowError(f"{length} from now is beyond the last year there is") from None
