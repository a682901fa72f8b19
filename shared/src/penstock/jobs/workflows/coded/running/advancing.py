"""One advance of a workflow, whatever it runs in: a worker, or a test in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from penstock.events.job import JobError
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    MAX_REFUSAL_LENGTH,
    MAX_REFUSED_SIGNALS,
    InlineResult,
    RefusedSignal,
    Resolution,
    WorkflowMemo,
)
from penstock.jobs.errors import Undecryptable, Verdict, WorkflowError
from penstock.jobs.job_type import Call, encode_result
from penstock.jobs.payloads.unencodable import place_of, unencodable
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import RunInline, RunJob
from penstock.jobs.workflows.coded.context import WorkflowContext
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.running.driver import Driver, End
from penstock.jobs.workflows.coded.running.nodes import (
    Calls,
    Continued,
    Ended,
    Leaf,
    Part,
    Suspension,
)
from penstock.jobs.workflows.coded.secrets import NONE, Secrets

_MAX_MESSAGE_LENGTH = 4_000


class Surroundings(Protocol):
    """What an advance needs from outside."""

    def now(self) -> datetime:
        """The time, which only grows."""
        ...

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        """How one of these has ended, or that the workflow is cancelled, each once; else None."""
        ...

    def refused(self, open_steps: Mapping[str, Leaf]) -> tuple[RefusedSignal, ...]:
        """Signals for these that none of them can be given; asked for once nothing goes on."""
        ...

    def record_part(self, part: Part) -> None:
        """Stores the end of an inline step, or a part of what is waited for with its jobs."""
        ...

    def is_begun(self, batch: Leaf) -> bool:
        """Whether all jobs of a recorded batch were made."""
        ...

    def begin_batch(self, batch: Leaf, calls: Iterator[Call]) -> None:
        """Makes the jobs of a recorded batch, each once however often it is tried."""
        ...

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        """The encoded call of the job of step ``n``."""
        ...


Function = Callable[..., Any]
MAX_RESULT_BYTES = 512_000
"""Of an inline step, as of a job by default: it is stored in one message."""


def advance(
    function: Function,
    arguments: Mapping[str, Any],
    workflow_id: str,
    memo: WorkflowMemo,
    around: Surroundings,
    secrets: Secrets = NONE,
) -> End | Suspension:
    """Runs a workflow from the top until it ends or nothing of it can go on.

    Raises:
        Diverged: the code does not fit the memo.
        MissingKey: what it was given is encrypted with a key that is not here.
        WorkflowError: it does what it must not; and whatever the workflow raises.
    """

    def make(driver: Driver) -> Any:
        return function(WorkflowContext(driver, workflow_id), **arguments)

    secrets = secrets.of_generation(memo.generation)
    driver = Driver(make, memo, around.now(), secrets)
    try:
        state = driver.replay()
        while True:
            if isinstance(state, Continued) and (cancelled := around.next_end({})) is not None:
                state = driver.resolve(cancelled)  # at its await, as at any other
            elif isinstance(state, End):
                break
            elif isinstance(state, Calls):
                result = secrets.sealed_result(_call(state.key, state.command, secrets.are_sealed))
                patches = driver.patches
                around.record_part(
                    Part(driver.now, driver.consumed, inline=result, patches=patches)
                )
                state = driver.record(result, around.now())
            elif not driver.is_full and (resolution := around.next_end(driver.open)) is not None:
                state = driver.resolve(resolution)
            elif (batch := _unbegun(driver, around)) is not None:
                around.begin_batch(batch, driver.calls_of(batch))
            else:
                recording = driver.suspend(around.encode)
                if isinstance(recording, Suspension):
                    refused = around.refused(driver.open)
                    return msgspec.structs.replace(recording, refused=refused)
                around.record_part(recording)
                driver.recorded()
        if isinstance(state, Ended) and driver.has_signal_taken_at_once:
            around.record_part(driver.last_part())
    finally:
        driver.close()
    return state


def _unbegun(driver: Driver, around: Surroundings) -> Leaf | None:
    """A batch that was recorded, and of which not all jobs were made."""
    for leaf in driver.open.values():
        if leaf.kind == "batch" and leaf.n is not None and not around.is_begun(leaf):
            return leaf
    return None


def _call(key: str, command: RunInline[Any], sealed: bool) -> InlineResult:
    digest = results.digest(command, sealed=False)  # of a function without its arguments
    arguments = results.argument_digest(command, sealed)  # which the function may change
    try:
        value = command.function(*command.args)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except Verdict:
        raise
    except Exception as error:
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}"
        message = str(error)[:_MAX_MESSAGE_LENGTH].encode("utf-8", "replace").decode()
        error_of_step = JobError(kind=name, message=message)
        return InlineResult(key, digest, error=error_of_step, arguments=arguments)
    try:
        encoded = encode_result(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        culprit = unencodable(value, is_secret=sealed)
        place = place_of(command.function)
        raise WorkflowError(
            f"step {key!r}: its function {digest} ({place}) returned {culprit}"
        ) from error
    if len(encoded) > MAX_RESULT_BYTES:
        raise WorkflowError(
            f"step {key!r}: its encoded result has {len(encoded):,} bytes, at most "
            f"{MAX_RESULT_BYTES:,} are recorded; write large data to a file and return its name"
        )
    return InlineResult(key, digest, encoded, arguments=arguments)


class Arrivals:
    """What has ended, handed out one by one.

    Args:
        ends: of jobs, in the order in which they ended.
        signals: the inbox; read once, when a signal is first waited for.
        secrets: opens encrypted signals.
        cancelling: why its code is to be given ``Cancelled``, before all else; None: it is not.

    Attributes:
        consumed_signals: sequences of those that were handed out.
    """

    def __init__(
        self,
        ends: Iterable[Resolution],
        signals: Callable[[], Sequence[Signal]],
        secrets: Secrets = NONE,
        cancelling: JobError | None = None,
    ) -> None:
        self._ends, self._read_signals, self._secrets = deque(ends), signals, secrets
        self._cancelling = cancelling
        self._signals: list[Signal] | None = None
        self._misfits: dict[tuple[int, int], tuple[Any, str]] = {}
        self.consumed_signals: set[int] = set()

    def next(self, open_steps: Mapping[str, Leaf], now: datetime) -> Resolution | None:
        """See :meth:`Surroundings.next_end`."""
        if self._cancelling is not None:
            error, self._cancelling = self._cancelling, None
            return Resolution(key=CANCEL_KEY, outcome="cancelled", error=error)
        while self._ends:
            end = self._ends.popleft()
            if end.key in open_steps:
                return end
        for leaf in open_steps.values():
            if leaf.kind == "signal" and (signal := self._take(leaf, open_steps)):
                self.consumed_signals.add(signal.sequence)
                return Resolution(
                    key=leaf.key,
                    outcome="received",
                    value=signal.value,
                    sequence=signal.sequence,
                )
            if leaf.due_at is not None and leaf.due_at <= now:
                is_timer = leaf.kind == "timer"
                return Resolution(key=leaf.key, outcome="fired" if is_timer else "timed-out")
        return None

    def refused(self, open_steps: Mapping[str, Leaf]) -> tuple[RefusedSignal, ...]:
        """See :meth:`Surroundings.refused`: what is left of signals that are waited for."""
        waits = {leaf.digest: leaf for leaf in open_steps.values() if leaf.kind == "signal"}
        unfit = [
            RefusedSignal(
                sequence=signal.sequence,
                signal=signal.name,
                reason=self._misfit(waits[signal.name], signal),
            )
            for signal in self._signals or ()
            if signal.name in waits
        ]
        return tuple(unfit[:MAX_REFUSED_SIGNALS])

    def _take(self, leaf: Leaf, open_steps: Mapping[str, Leaf]) -> Signal | None:
        """The first signal of that name that an open step can be given, if it is for this one."""
        if self._signals is None:
            self._signals = list(self._read_signals())
        by_type = {
            id(getattr(one.command, "kind", None)): one
            for one in open_steps.values()
            if self._awaits(one, leaf.digest)
        }
        waits = by_type.values()
        for index, signal in enumerate(self._signals):
            if signal.name != leaf.digest or all(self._misfit(one, signal) for one in waits):
                continue
            return None if self._misfit(leaf, signal) else self._signals.pop(index)
        return None

    @staticmethod
    def _awaits(leaf: Leaf, signal: str) -> bool:
        return leaf.kind == "signal" and leaf.digest == signal

    def _misfit(self, leaf: Leaf, signal: Signal) -> str:
        """Why a signal is not what is waited for; empty where it is. Raises MissingKey.

        Each is opened and decoded once for each type, however many steps wait for it: what does not
        fit may be thousands.
        """
        kind = getattr(leaf.command, "kind", None)
        place = signal.sequence, id(kind)
        if place not in self._misfits:
            # The type is kept, so that its id stands for no other one.
            self._misfits[place] = kind, self._reason_against(leaf, signal)
        return self._misfits[place][1]

    def _reason_against(self, leaf: Leaf, signal: Signal) -> str:
        try:
            plain = self._secrets.signal(signal.name, signal.value)
        except Undecryptable as error:
            return str(error)[:MAX_REFUSAL_LENGTH]
        reason = results.misfit(leaf.command, plain)
        return "its value is of another type" if reason and self._secrets.are_sealed else reason
