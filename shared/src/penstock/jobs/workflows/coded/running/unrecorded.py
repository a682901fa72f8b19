"""What an advance has done that is not recorded yet, in pieces that fit a message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.events.workflow_memo import (
    MAX_MEMO_BYTES,
    MAX_STEPS,
    InlineResult,
    Resolution,
    ScheduledStep,
)
from penstock.jobs.errors import WorkflowError
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.running.nodes import Leaf

Encode = Callable[[int, RunJob[Any]], bytes]
"""The encoded call of the job of a step, by its number."""

MAX_PART_BYTES = 400_000
"""Of what one event records; a broker's message holds 1 MB unless it is set up otherwise."""
_BASE64 = 4 / 3
_FIELDS_BYTES = 150
"""Names of fields, numbers and times of one step or end, at most."""


class Unrecorded:
    """Ends that were noted and steps that were given up since the last recording.

    Args:
        next_number: the least number of the next step.
        first_number: of the steps of this generation.

    Attributes:
        parts: how many were recorded of all that it waited for so far.
    """

    def __init__(self, next_number: int = 0, first_number: int = 0) -> None:
        self._most = first_number + MAX_STEPS
        self.parts = 0
        self._patches: list[str] = []
        self._consumed: list[Resolution] = []
        self._given_up: list[int] = []
        self._bytes = self._recorded = 0.0
        self._inline_steps = 0
        self._count = next_number

    @property
    def consumed(self) -> tuple[Resolution, ...]:
        """Ends, in the order in which they were noted."""
        return tuple(self._consumed)

    @property
    def given_up(self) -> tuple[int, ...]:
        """Numbers of steps."""
        return tuple(self._given_up)

    @property
    def patches(self) -> tuple[str, ...]:
        """Names of changes that are taken; see ``WorkflowContext.patched``."""
        return tuple(self._patches)

    @property
    def is_full(self) -> bool:
        """Whether it should be recorded before more is added."""
        return self._bytes >= MAX_PART_BYTES

    def consume(self, resolution: Resolution) -> None:
        """Adds an end. Raises WorkflowError: the workflow has recorded too much."""
        self._consumed.append(resolution)
        size = _FIELDS_BYTES + len(resolution.key) + _BASE64 * len(resolution.value)
        if resolution.error is not None:
            size += len(resolution.error.message)
        self._bytes += size
        self._grow(size)

    def returned(self, result: InlineResult) -> None:
        """Counts an inline step. Raises WorkflowError, as :meth:`consume` does."""
        self._inline_steps += 1
        if self._inline_steps > MAX_STEPS:
            raise WorkflowError(f"a workflow has at most {MAX_STEPS:,} inline steps")
        self._grow(_FIELDS_BYTES + len(result.key) + _BASE64 * len(result.value))

    def _grow(self, size: float) -> None:
        self._recorded += size
        if self._recorded > MAX_MEMO_BYTES:
            raise WorkflowError(
                f"a workflow records at most {MAX_MEMO_BYTES:,} bytes: calls and results of its "
                "steps; pass large ones by a file's name, or run many jobs by ctx.map"
            )

    def give_up(self, n: int) -> None:
        """Adds a step that is not waited for any more."""
        self._given_up.append(n)

    def patch(self, name: str) -> None:
        """Adds a change that is taken."""
        self._patches.append(name)

    def number(self, leaf: Leaf, step: ScheduledStep) -> None:
        """Gives a step the number, and what else it was recorded with. Raises WorkflowError."""
        leaf.n, leaf.due_at, leaf.is_compensated = step.n, step.due_at, step.is_compensated
        self._count = max(self._count, step.n + 1)
        self._grow(_size(step))

    def schedule(self, leaves: Iterable[Leaf], encode: Encode) -> tuple[ScheduledStep, ...]:
        """Numbers steps, as many as an event has room for. Raises WorkflowError, PayloadTooLarge.

        Args:
            leaves: those that are to be recorded.
            encode: encodes calls.
        """
        scheduled: list[ScheduledStep] = []
        for leaf in leaves:
            step = self._step(leaf, encode)
            size = _size(step)
            if self._bytes and self._bytes + size > MAX_PART_BYTES:
                break
            self._bytes += size
            self.number(leaf, step)
            scheduled.append(step)
        return tuple(scheduled)

    def _step(self, leaf: Leaf, encode: Encode) -> ScheduledStep:
        n = self._count
        if n >= self._most:
            raise WorkflowError(f"a workflow has at most {MAX_STEPS:,} steps, timers and signals")
        return ScheduledStep(
            n=n,
            key=leaf.key,
            kind=leaf.kind,
            digest=leaf.digest,
            payload=encode(n, leaf.command) if isinstance(leaf.command, RunJob) else b"",
            due_at=leaf.due_at,
            starts_at=leaf.starts_at,
            arguments=leaf.arguments,
            is_compensated=isinstance(leaf.command, RunJob)
            and leaf.command.compensation is not None,
        )

    def clear(self) -> None:
        """All of it was recorded."""
        self.clear_consumed()
        self._given_up.clear()

    def clear_consumed(self) -> None:
        """The ends were recorded, with those of an inline step."""
        self._consumed.clear()
        self._patches.clear()
        self._bytes = 0.0


def _size(step: ScheduledStep) -> float:
    return _FIELDS_BYTES + len(step.key) + len(step.digest) + _BASE64 * len(step.payload)
