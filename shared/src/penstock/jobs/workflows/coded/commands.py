"""What the code of a workflow may await: commands, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar

from penstock.config.topology import Priority
from penstock.jobs.job_type import Call
from penstock.jobs.payloads.payload import UNLIMITED
from penstock.jobs.retry import Backoff
from penstock.jobs.workflows.coded.running.never_awaited import Origin, Part

T = TypeVar("T")

NO_DEFAULT: Any = object()


class Command(Generic[T]):
    """Awaitable once, in the code of a workflow. It begins when it is awaited.

    Attributes:
        origin: where it was made; None once it is awaited, or part of another one.
    """

    origin: Origin | None = None

    def made(self, part: Part) -> Self:
        """Called by the method of the context that makes it, for a part of the workflow."""
        method = sys._getframe(1)
        author = method.f_back
        if author is not None:
            self.origin = Origin(part, method.f_code, author.f_code, author.f_lasti)
        return self

    def taken(self) -> None:
        """It is awaited, or something that is to be awaited has it."""
        self.origin = None

    def __del__(self) -> None:
        if self.origin is not None:
            self.origin.warn()

    def __await__(self) -> Generator[Command[T], Any, T]:
        self.taken()
        result: T = yield self
        return result


@dataclass(frozen=True)
class StepOptions:
    """Options of one step; each is as the function declares it where it is left out.

    Attributes:
        queue: where its job waits.
        priority: for queues that have priorities.
        delay: until its job may start.
        tags: besides the function's.
        tries: attempts allowed; 0: as declared.
        timeout_seconds: of an attempt, of a workflow that of the whole; 0: as declared.
        backoff: between attempts; None: as declared.
    """

    queue: str = ""
    priority: Priority = "normal"
    delay: timedelta = timedelta()
    tags: tuple[str, ...] = ()
    tries: int = 0
    timeout_seconds: float = UNLIMITED
    backoff: Backoff | None = None


@dataclass(eq=False)
class RunJob(Command[T]):
    """A job, of which the result is waited for.

    Attributes:
        compensation: a call that undoes it, or what makes one from its result; None for none.
        options: they may change with a deployment; what was recorded keeps its own.
    """

    name: str
    call: Call
    compensation: Call | Callable[[Any], Call] | None = None
    options: StepOptions = StepOptions()


@dataclass(eq=False)
class RunBatch(Command[T]):
    """Many jobs, of which the counts are waited for.

    Attributes:
        calls: made while they are dispatched; read once.
        function: of the first of them; empty where there is none.
        allowed_failures: as of a batch.
        total: how many; None where that is not known before.
        first: of the calls; None where there is none.
    """

    name: str
    calls: Iterator[Call]
    function: str
    allowed_failures: int | str = 0
    total: int | None = None
    first: Call | None = None


@dataclass(eq=False)
class RunInline(Command[T]):
    """A function that runs inside of the advance; what it returns is recorded once."""

    name: str
    function: Callable[..., T]
    args: tuple[Any, ...] = ()


@dataclass(eq=False)
class Sleep(Command[None]):
    """A time that passes."""

    name: str
    length: timedelta


@dataclass(eq=False)
class WaitSignal(Command[T]):
    """A value that is sent from outside.

    Attributes:
        signal: its name.
        kind: the type that the value must have.
        timeout: how long it is waited for; None: without end.
        default: what is returned then.
    """

    name: str
    signal: str
    kind: Any
    timeout: timedelta | None = None
    default: Any = NO_DEFAULT


@dataclass(eq=False)
class ContinueAsNew(Command[NoReturn]):
    """The end of this generation: the workflow begins anew."""

    call: Call


@dataclass(eq=False)
class Later:
    """A coroutine that is made when its part begins: one that never begins is never made."""

    make: Callable[[], Coroutine[Any, Any, Any]]


@dataclass(eq=False)
class AwaitGivenUp(Command[None]):
    """The ends of steps that were given up and may have to be undone."""

    name: str = "given-up"


Awaited = Command[Any] | Call | Coroutine[Any, Any, Any] | Later
"""What runs beside others: a command, a call of a job, or a coroutine of the workflow."""


@dataclass(eq=False)
class Join(Command[T]):
    """Several parts beside each other: a scope of its own.

    Attributes:
        first_only: the first that ends decides, and the others are given up.
        raises: one that fails is an error of the whole; else only that it ended counts.
        on_failure: ``cancel`` gives up the others as soon as one fails, ``drain`` awaits them.
        undoes: it is `ctx.compensate()`, which goes on where the workflow is cancelled meanwhile.
    """

    name: str
    parts: list[Awaited] = field(default_factory=list)
    first_only: bool = False
    on_failure: Literal["cancel", "drain"] = "cancel"
    raises: bool = True
    undoes: bool = False
