"""Runs the code of a workflow: a memo and a coroutine in, what it asks for next out. Pure.

The coroutine is stepped by hand, on no event loop. It is run from the top in each advance: what its
memo holds is returned at once, in the order in which it was noted, so that concurrent parts go the
same way each time. Keys are path of scopes, name and occurrence, never positions in the run.

::

    Driver(memo) ── replay ──► Calls(inline step) | Quiet | Ended ── resolve ──► …
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from functools import partial
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
from penstock.jobs.errors import Cancelled, MissingKey, WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded import fitting, results
from penstock.jobs.workflows.coded.commands import (
    Awaited,
    AwaitGivenUp,
    Command,
    ContinueAsNew,
    Join,
    Later,
    RunBatch,
    RunInline,
    RunJob,
)
from penstock.jobs.workflows.coded.compensations import Compensations
from penstock.jobs.workflows.coded.foreign_await import foreign_await, leave, without_loop
from penstock.jobs.workflows.coded.nodes import (
    Branch,
    Calls,
    Continued,
    Diverged,
    Ended,
    JoinNode,
    Leaf,
    Node,
    Part,
    Quiet,
    Scope,
    Stopped,
    Suspension,
    due_at,
    groups,
    joined,
    later,
)
from penstock.jobs.workflows.coded.secrets import NONE, Secrets
from penstock.jobs.workflows.coded.unrecorded import Encode, Unrecorded

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
        now: the time that the code sees.
        status: what it shows of itself.
        scope: of the part whose code runs.
        entry: number of the recorded entry that it runs through; 0 once the memo is used up.
        compensations: what undoes the steps that completed.
    """

    def __init__(
        self, make: Make, memo: WorkflowMemo, now: datetime, secrets: Secrets = NONE
    ) -> None:
        self.now, self._live_now, self._secrets = now, now, secrets
        self.status: Status = {}
        self.scope = Scope()
        self.entry = 0
        self.compensations = Compensations()
        self._memo = memo
        self._open: dict[str, Leaf] = {}
        self._inline: deque[Leaf] = deque()
        self._ready: deque[Callable[[], None]] = deque()
        self._unrecorded = Unrecorded(memo.next_number, memo.first_number)
        self._patches = dict.fromkeys(memo.patches, True)
        self._cancelled = ""
        self._is_replaying, self._is_closing = bool(memo.entries), False
        self._root = Branch(None, make(self), self.scope)
        self._ready.append(partial(self._step, self._root, None))

    # --- from outside -----------------------------------------------------------------------------
    def replay(self) -> End | Calls | Quiet:
        """Runs through the memo, then on to what it asks for. Call it once, first.

        Raises:
            Diverged, WorkflowError, and what the workflow raises.
        """
        for index, entry in enumerate(self._memo.entries):
            self.now, self.entry = entry.now, index + 1
            self._replay(entry, fitting.Terms(self._memo, index))
        self.now, self.entry, self._is_replaying = self._live_now, 0, False
        return self.go_on()

    def go_on(self) -> End | Calls | Quiet:
        """Runs all that can go on. Raises WorkflowError, and what the workflow raises."""
        self._run()
        if self._root.has_ended:
            return self._outcome()
        if self._inline:
            leaf = self._inline[0]
            assert isinstance(leaf.command, RunInline)
            return Calls(leaf.key, leaf.command)
        return Quiet()

    def _outcome(self) -> End:
        error = self._root.error
        if self._cancelled and (error is None or isinstance(error, Cancelled)):
            return Stopped(self._cancelled)
        if error is not None:
            raise error
        if isinstance(self._root.value, Continued):
            return self._root.value
        return Ended(self._root.value)

    @property
    def generation(self) -> int:
        """How often the workflow began anew."""
        return self._memo.generation

    @property
    def open(self) -> dict[str, Leaf]:
        """Steps, timers and signals that are waited for, by key."""
        return self._open

    def resolve(self, resolution: Resolution) -> End | Calls | Quiet:
        """Takes note of how one of the open ones ended, and goes on."""
        self._consume(resolution)
        return self.go_on()

    def record(self, result: InlineResult, now: datetime) -> End | Calls | Quiet:
        """Takes the recorded result of the inline function that was called, and goes on.

        Args:
            now: the time from then on.
        """
        self._unrecorded.clear_consumed()
        self.now = now
        self._return_inline(self._inline[0], result)
        return self.go_on()

    @property
    def consumed(self) -> tuple[Resolution, ...]:
        """What was noted since the last recording."""
        return self._unrecorded.consumed

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
        to_record = [leaf for leaf in self._open.values() if leaf.n is None]
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
            wait=tuple(WaitGroup(*group) for group in groups(self._root)),
            due_at=due_at(self._root, self._open.values()),
            **self._secrets.status(self.status),
            parts=unrecorded.parts,
            patches=unrecorded.patches,
        )

    def calls_of(self, leaf: Leaf) -> Iterator[Call]:
        """The calls of a batch, made by the code of the workflow; read once, and to their end."""
        assert isinstance(leaf.command, RunBatch)
        self.scope = Scope(f"{leaf.key}/")
        return leaf.command.calls

    def recorded(self) -> None:
        """A part was recorded."""
        self._unrecorded.clear()
        self._unrecorded.parts += 1

    def close(self) -> None:
        """Ends the coroutines; what they do then has no effect, and no more awaits begin."""
        self._is_closing = True
        self._close(self._root)

    # --- replaying --------------------------------------------------------------------------------
    def _replay(self, entry: MemoEntry, terms: fitting.Terms) -> None:
        self._run()
        for resolution in entry.consumed:
            fitting.check_no_inline(self._inline, f"the end of {resolution.key!r}", terms)
            if resolution.key not in self._open and resolution.key != CANCEL_KEY:
                raise Diverged(f"recorded is step {resolution.key!r}, which the code does not call")
            self._consume(resolution)
            self._run()
        fitting.check_not_ended(self._root, entry, terms)
        if entry.inline is not None:
            leaf = fitting.inline_leaf(self._inline, entry.inline, terms)
            self._return_inline(leaf, entry.inline)
            self._unrecorded.clear_consumed()
        else:
            fitting.check_no_inline(self._inline, fitting.what(entry), terms)
            for leaf, step in fitting.scheduled_leaves(entry, self._open.values(), terms):
                self._unrecorded.number(leaf, step)
            self._unrecorded.clear()
            self._unrecorded.parts += entry.is_part

    # --- running ----------------------------------------------------------------------------------
    def _run(self) -> None:
        while self._ready:
            self._ready.popleft()()

    def _step(self, branch: Branch, awaited: Node | None) -> None:
        """Runs the code of a branch up to its next await."""
        if branch.has_ended:  # given up meanwhile
            return
        self.scope, branch.awaited = branch.scope, None
        try:
            if awaited is not None and awaited.error is not None:
                wanted = branch.work.throw(awaited.error)
            else:
                wanted = branch.work.send(awaited.value if awaited else None)
        except StopIteration as returned:
            self._end(branch, returned.value)
            return
        except Exception as error:
            self._end(branch, None, without_loop(error))
            return
        except Cancelled as error:
            if not self._cancelled:  # by its worker: this attempt is over
                raise
            self._end(branch, None, error)
            return
        if not isinstance(wanted, Command):
            self._end(branch, None, foreign_await(branch.work, wanted))
            return
        if isinstance(wanted, ContinueAsNew) and branch is self._root:
            leave(branch.work)
            self._end(branch, Continued(wanted.call))
            return
        try:
            branch.awaited = self._begin(wanted, branch, branch.scope)
        except WorkflowError as error:
            leave(branch.work)
            self._end(branch, None, error)

    def _begin(self, part: Awaited, parent: Node, scope: Scope) -> Node:
        if isinstance(part, Later):
            part = part.make()
        if isinstance(part, Call):
            part = RunJob(results.short_name(part.job.name), part)
        if inspect.iscoroutine(part):
            branch = Branch(parent, part, Scope(scope.key(part.__name__) + "/"))
            self._ready.append(partial(self._step, branch, None))
            return branch
        if isinstance(part, Join):
            return self._join(part, parent, scope)
        if isinstance(part, ContinueAsNew):
            raise WorkflowError("ctx.continue_as_new is awaited by the workflow's own function")
        if isinstance(part, AwaitGivenUp):
            return self._begun(self.compensations.unclear(part, parent))
        if not isinstance(part, Command):
            raise WorkflowError(
                f"found {part!r}, expected a call of a job, a coroutine or an awaitable of the "
                "context"
            )
        return self._leaf(part, parent, scope)

    def _join(self, command: Join[Any], parent: Node, scope: Scope) -> Node:
        node = JoinNode(parent, command)
        own = Scope(scope.key(command.name) + "/")
        for part in command.parts:
            node.parts.append(self._begin(part, node, own))
        return self._begun(node)

    def _begun(self, node: JoinNode) -> JoinNode:
        if not node.parts:
            self._ready.append(partial(self._end, node, []))
        return node

    def _leaf(self, command: Command[Any], parent: Node, scope: Scope) -> Leaf:
        key = scope.key(getattr(command, "name", ""))
        length = results.length(command)
        due = later(self.now, length) if length is not None else None
        leaf = Leaf(parent, key, command, results.digest(command, self._secrets.are_sealed), due)
        if isinstance(command, RunInline):
            self._inline.append(leaf)
        else:
            self._open[key] = leaf
        return leaf

    # --- ends -------------------------------------------------------------------------------------
    def _consume(self, resolution: Resolution) -> None:
        self._unrecorded.consume(resolution)
        if resolution.key == CANCEL_KEY:
            self._cancel(resolution)
            return
        leaf = self._open.pop(resolution.key)
        value, failure = None, None
        try:
            value = results.value(leaf.command, self._secrets.opened(leaf, resolution))
        except MissingKey:
            raise
        except Exception as error:
            failure = error
        self.compensations.see(leaf, resolution, value)
        if not leaf.has_ended:  # else it was given up, and only its end had to be known
            self._end(leaf, value, failure)

    def _cancel(self, request: Resolution) -> None:
        """Raises Cancelled where the workflow's own code awaits; parts of a join are closed."""
        self._cancelled = request.error.message if request.error else "cancelled"
        interruption = Node(self._root)
        interruption.error = Cancelled(self._cancelled)
        if self._root.awaited is not None:
            self._close(self._root.awaited)
        self._ready.append(partial(self._step, self._root, interruption))

    def _return_inline(self, leaf: Leaf, result: InlineResult) -> None:
        self._inline.remove(leaf)
        self._unrecorded.returned(result)
        error = results.failure(result)
        value = None if error else msgspec.msgpack.decode(self._secrets.result(result))
        self._end(leaf, value, error)

    def _end(self, node: Node, value: Any, error: BaseException | None = None) -> None:
        node.has_ended, node.value, node.error = True, value, error
        match node.parent:
            case Branch() as branch:
                self._ready.append(partial(self._step, branch, node))
            case JoinNode() as join if not join.has_ended:
                if (end := joined(join, node)) is not None:
                    self._give_up_others(join)
                    self._end(join, *end)

    def _give_up_others(self, join: JoinNode) -> None:
        for part in join.parts:
            if not part.has_ended:
                self._close(part)

    def _close(self, node: Node) -> None:
        """Nothing of it counts any more; steps that were recorded are cancelled."""
        node.has_ended = True
        match node:
            case Leaf():
                self._give_up(node)
                if node in self._inline:
                    self._inline.remove(node)
            case Branch():
                if node.awaited is not None and not node.awaited.has_ended:
                    self._close(node.awaited)
                self._close_work(node)
            case JoinNode():
                for part in node.parts:
                    if not part.has_ended:
                        self._close(part)

    def _give_up(self, leaf: Leaf) -> None:
        """Its job is cancelled. If it completes first, and must be undone, that is noted."""
        if leaf.key not in self._open:
            return
        if leaf.n is not None:
            self._unrecorded.give_up(leaf.n)
        if leaf.n is None or not self.compensations.keeps(leaf):
            del self._open[leaf.key]

    def _close_work(self, branch: Branch) -> None:
        self.scope = branch.scope
        if self._is_closing or self._cancelled:
            leave(branch.work)
            return
        try:
            branch.work.close()
        except RuntimeError as error:
            raise WorkflowError(
                f"{branch.work} was given up and awaits in a 'finally' or 'except': {error}"
            ) from error
