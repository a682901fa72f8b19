"""Runs the code of a workflow: a memo and a coroutine in, what it asks for next out. Pure.

The coroutine is stepped by hand, on no event loop. It is run from the top in each advance: what its
memo holds is returned at once, in the order in which it was noted, so that concurrent parts go the
same way each time. Keys are path of scopes, name and occurrence, never positions in the run.

::

    Driver(memo) ── replay ──► Calls(inline step) | Quiet | Ended ── resolve ──► …
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any

import msgspec

from penstock.events.workflow_memo import (
    CANCEL_KEY,
    MAX_PATCH_LENGTH,
    MAX_PATCHES,
    InlineResult,
    MemoEntry,
    Resolution,
    Status,
    WaitGroup,
    WorkflowMemo,
)
from penstock.jobs.errors import (
    Cancelled,
    MissingKey,
    Undecryptable,
    WorkflowError,
    WrongResult,
)
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import (
    RunBatch,
    RunInline,
)
from penstock.jobs.workflows.coded.running import fitting
from penstock.jobs.workflows.coded.running.compensations import Compensations
from penstock.jobs.workflows.coded.running.nodes import (
    Calls,
    Continued,
    Diverged,
    Ended,
    Leaf,
    Part,
    Quiet,
    Scope,
    Stopped,
    Suspension,
    due_at,
    groups,
)
from penstock.jobs.workflows.coded.running.running_code import RunningCode
from penstock.jobs.workflows.coded.running.unrecorded import Encode, Unrecorded
from penstock.jobs.workflows.coded.secrets import NONE, Secrets

End = Ended | Stopped | Continued
Make = Callable[["Driver"], Coroutine[Any, Any, Any]]


class Driver:
    """One advance of a workflow.

    Args:
        make: its coroutine, not begun, of a context over this driver.
        memo: what was recorded of it.
        now: the time now, once the memo is used up.
        secrets: opens what was encrypted.

    Attributes:
        status: what it shows of itself.
        entry: number of the recorded entry that it runs through; 0 once the memo is used up.
    """

    def __init__(
        self, make: Make, memo: WorkflowMemo, now: datetime, secrets: Secrets = NONE
    ) -> None:
        self._live_now = now
        self._secrets = secrets.of_generation(memo.generation)
        self.status: Status = {}
        self.entry = 0
        self._memo = memo
        self._unrecorded = Unrecorded(memo.next_number, memo.first_number)
        self._patches = dict.fromkeys(memo.patches, True)
        self._is_replaying = bool(memo.entries)
        self._taken_at_once: set[str] = set()
        self._code = RunningCode(
            make(self), now, is_sealed=self._secrets.are_sealed, unrecorded=self._unrecorded
        )

    # --- from outside -----------------------------------------------------------------------------
    def replay(self) -> End | Calls | Quiet:
        """Runs through the memo, then on to what it asks for. Call it once, first.

        Raises:
            Diverged, WorkflowError, and what the workflow raises.
        """
        for index, entry in enumerate(self._memo.entries):
            self._code.now, self.entry = entry.now, index + 1
            try:
                self._replay(entry, fitting.Terms(self._memo, index))
            except Diverged as difference:
                called = (*self._code.open.values(), *self._code.inline)
                raise fitting.explained(difference, self._memo, index, called) from None
        self._code.now, self.entry, self._is_replaying = self._live_now, 0, False
        return self.go_on()

    def go_on(self) -> End | Calls | Quiet:
        """Runs all that can go on. Raises WorkflowError, and what the workflow raises."""
        self._code.run()
        if self._code.next_call is not None:
            return Continued(self._code.next_call)
        if self._code.root.has_ended and not self._code.cleaning_up:
            return self._outcome()
        if self._code.inline:
            leaf = self._code.inline[0]
            assert isinstance(leaf.command, RunInline)
            return Calls(leaf.key, leaf.command)
        return Quiet()

    def _outcome(self) -> End:
        error = self._code.root.error
        if self._code.cancelled and (error is None or isinstance(error, Cancelled)):
            return Stopped(self._code.cancelled, self._code.is_timed_out)
        if error is not None:
            raise error
        return Ended(self._code.root.value)

    @property
    def now(self) -> datetime:
        """The time that the code sees."""
        return self._code.now

    @property
    def scope(self) -> Scope:
        """Of the part whose code runs."""
        return self._code.scope

    @property
    def compensations(self) -> Compensations:
        """What undoes the steps that completed."""
        return self._code.compensations

    @property
    def generation(self) -> int:
        """How often the workflow began anew."""
        return self._memo.generation

    @property
    def open(self) -> dict[str, Leaf]:
        """Steps, timers and signals that are waited for, by key."""
        return self._code.open

    def check(self, end: Resolution) -> None:
        """Whether the code could be given this end of an open step; nothing goes on.

        Raises:
            Diverged: it expects another type.
            MissingKey, Undecryptable
        """
        leaf = self._code.open.get(end.key)
        if leaf is not None and end.outcome == "completed":
            self._value(leaf, end)

    def resolve(self, resolution: Resolution) -> End | Calls | Quiet:
        """Takes note of how one of the open ones ended, and goes on.

        Raises:
            Diverged: the code expects a value of another type.
        """
        self._consume(resolution)
        return self.go_on()

    def record(self, result: InlineResult, now: datetime) -> End | Calls | Quiet:
        """Takes the recorded result of the inline function that was called, and goes on.

        Args:
            now: the time from then on.
        """
        self._unrecorded.clear_consumed()
        self._code.now = now
        self._return_inline(self._code.inline[0], result)
        return self.go_on()

    @property
    def consumed(self) -> tuple[Resolution, ...]:
        """What was noted since the last recording."""
        return self._unrecorded.consumed

    @property
    def has_signal_taken_at_once(self) -> bool:
        """Whether a signal was there when it was first waited for, and is recorded nowhere yet."""
        return any(end.sequence and end.key in self._taken_at_once for end in self.consumed)

    @property
    def patches(self) -> tuple[str, ...]:
        """Names that were first asked about since the last recording, and are new to it."""
        return self._unrecorded.patches

    def patched(self, name: str) -> bool:
        """See :meth:`WorkflowContext.patched`. Raises WorkflowError."""
        if name not in self._patches:
            if not 0 < len(name) <= MAX_PATCH_LENGTH or len(self._patches) >= MAX_PATCHES:
                raise WorkflowError(
                    f"ctx.patched({name[:80]!r}): a name has 1 to {MAX_PATCH_LENGTH} characters, "
                    f"and a workflow at most {MAX_PATCHES} of them"
                )
            self._patches[name] = not self._is_replaying
            if not self._is_replaying:
                self._unrecorded.patch(name)
        return self._patches[name]

    @property
    def is_full(self) -> bool:
        """Whether what was noted is to be recorded, by :meth:`suspend`, before more is."""
        return self._unrecorded.is_full

    def suspend(self, encode: Encode) -> Suspension | Part:
        """What is to be recorded when it is quiet.

        Returns:
            A part where one event does not hold all, or a batch begins; what follows is asked for
            after :meth:`recorded`.

        Raises:
            WorkflowError, PayloadTooLarge
        """
        unrecorded = self._unrecorded
        to_record = [leaf for leaf in self._code.open.values() if leaf.n is None]
        scheduled = unrecorded.schedule(to_record, encode)
        consumed, given_up = unrecorded.consumed, unrecorded.given_up
        begins_batch = any(step.kind == "batch" for step in scheduled)
        if len(scheduled) < len(to_record) or unrecorded.is_full or begins_batch:
            return Part(self.now, consumed, scheduled, given_up, patches=unrecorded.patches)
        return Suspension(
            now=self.now,
            consumed=consumed,
            scheduled=scheduled,
            cancelled=given_up,
            wait=self._wait(),
            due_at=due_at(self._code.root, self._code.open.values()),
            **self._secrets.status(self.status),
            parts=unrecorded.parts,
            patches=unrecorded.patches,
        )

    def last_part(self) -> Part:
        """What is to be recorded before the workflow ends, as no later event would hold it."""
        given_up = self._unrecorded.given_up
        return Part(self.now, self.consumed, cancelled=given_up, patches=self.patches)

    def _wait(self) -> tuple[WaitGroup, ...]:
        if self._code.root.has_ended:
            left = (leaf.n for leaf in self._code.cleaning_up.values() if leaf.n is not None)
            return (WaitGroup(tuple(left)),)
        return tuple(WaitGroup(*group) for group in groups(self._code.root))

    def calls_of(self, leaf: Leaf) -> Iterator[Call]:
        """The calls of a batch, made by the code of the workflow; read once, and to their end."""
        assert isinstance(leaf.command, RunBatch)
        self._code.scope = Scope(f"{leaf.key}/")
        return leaf.command.calls

    def recorded(self) -> None:
        """A part was recorded."""
        self._unrecorded.clear()
        self._unrecorded.parts += 1

    def close(self) -> None:
        """Ends the coroutines; what they do then has no effect, and no more awaits begin."""
        self._code.close()

    # --- replaying --------------------------------------------------------------------------------
    def _replay(self, entry: MemoEntry, terms: fitting.Terms) -> None:
        self._code.run()
        for resolution in entry.consumed:
            fitting.check_no_inline(self._code.inline, f"the end of {resolution.key!r}", terms)
            if resolution.key not in self._code.open and resolution.key != CANCEL_KEY:
                raise Diverged(f"recorded is step {resolution.key!r}, which the code does not call")
            self._consume(resolution, terms.is_accepted)
            self._code.run()
        if not self._code.cleaning_up:
            fitting.check_not_ended(self._code, entry, terms)
        if entry.inline is not None:
            leaf = fitting.inline_leaf(self._code.inline, entry.inline, terms)
            self._return_inline(leaf, entry.inline)
            self._unrecorded.clear_consumed()
        else:
            fitting.check_no_inline(self._code.inline, fitting.what(entry), terms)
            for leaf, step in fitting.scheduled_leaves(entry, self._code.open.values(), terms):
                self._unrecorded.number(leaf, step)
            self._unrecorded.clear()
            self._unrecorded.parts += entry.is_part

    # --- ends -------------------------------------------------------------------------------------
    def _consume(self, resolution: Resolution, is_accepted: bool = False) -> None:
        """Notes an end, and hands it to the code.

        Raises:
            Diverged: the code expects another type, unless an operator accepts what was recorded:
                then its await raises WrongResult.
        """
        self._unrecorded.consume(resolution)
        if resolution.key == CANCEL_KEY:
            self._code.interrupt(resolution)
            return
        leaf = self._code.open.pop(resolution.key)
        if leaf.n is None:
            self._taken_at_once.add(resolution.key)
        has_cleaned_up = self._code.cleaning_up.pop(resolution.key, None) is not None
        if has_cleaned_up and not leaf.is_compensated:
            return  # only that it has ended counts
        value: Any = None
        failure: Exception | None = None
        try:
            value = self._value(leaf, resolution)
        except MissingKey:
            raise
        except Diverged as difference:
            if not is_accepted:
                raise
            failure = WrongResult(str(difference))
        except Exception as error:
            failure = error
        self._code.compensations.see(leaf, resolution, value)
        if not leaf.has_ended:  # else it was given up, and only its end had to be known
            self._code.end(leaf, value, failure)

    def _value(self, leaf: Leaf, end: Resolution) -> Any:
        opened = self._secrets.opened(leaf, end)
        return results.value(leaf.command, opened, self._secrets.are_sealed)

    def _return_inline(self, leaf: Leaf, result: InlineResult) -> None:
        self._code.inline.remove(leaf)
        self._unrecorded.returned(result)
        value, error = None, results.failure(result)
        try:
            if error is None:
                value = msgspec.msgpack.decode(self._secrets.result(result))
        except (Undecryptable, ValueError, RecursionError) as unreadable:  # another key stored it
            self._code.end(leaf, None, unreadable)
        else:
            self._code.end(leaf, value, error)
