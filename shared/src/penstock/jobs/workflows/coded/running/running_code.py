"""The coroutine of a workflow with all that it awaits, stepped by hand, on no event loop. Pure."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from penstock.events.workflow_memo import TIMED_OUT, Resolution
from penstock.jobs.errors import Cancelled, WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import (
    Awaited,
    AwaitGivenUp,
    Command,
    ContinueAsNew,
    Join,
    Later,
    RunInline,
    RunJob,
)
from penstock.jobs.workflows.coded.running.compensations import Compensations
from penstock.jobs.workflows.coded.running.foreign_await import foreign_await, leave, without_loop
from penstock.jobs.workflows.coded.running.nodes import (
    Branch,
    JoinNode,
    Leaf,
    Node,
    Scope,
    joined,
    later,
)
from penstock.jobs.workflows.coded.running.unrecorded import Unrecorded


class RunningCode:
    """Runs the code up to its awaits, and gives it what these end with.

    Args:
        work: the coroutine, not begun.
        now: the time that the code sees.
        is_sealed: what it calls is encrypted.
        unrecorded: where steps that are given up are noted.

    Attributes:
        now: the time that the code sees.
        scope: of the part whose code runs.
        root: the workflow's own function.
        open: steps, timers and signals that are waited for, by key.
        inline: functions to be called, in order.
        compensations: what undoes the steps that completed.
        cancelled: why it was; empty while it was not.
        is_timed_out: it was cancelled because it took too long.
        cleaning_up: workflows below that have not ended since this one was cancelled, by key.
        next_call: with which it begins anew, where its code awaits that; else None.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        now: datetime,
        *,
        is_sealed: bool,
        unrecorded: Unrecorded,
    ) -> None:
        self.now, self._is_sealed, self._unrecorded = now, is_sealed, unrecorded
        self.scope = Scope()
        self.open: dict[str, Leaf] = {}
        self.inline: deque[Leaf] = deque()
        self.compensations = Compensations()
        self.cancelled, self.is_timed_out = "", False
        self.cleaning_up: dict[str, Leaf] = {}
        self.next_call: Call | None = None
        self._ready: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._after_undoing: Node | None = None
        self.root = Branch(None, work, self.scope)
        self._ready.append(partial(self._step, self.root, None))

    def run(self) -> None:
        """Runs all that can go on. Raises WorkflowError, Cancelled."""
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
            self.end(branch, returned.value)
            return
        except Exception as error:
            self.end(branch, None, without_loop(error))
            return
        except Cancelled as error:
            if not self.cancelled:  # by its worker: this attempt is over
                raise
            self.end(branch, None, error)
            return
        if not isinstance(wanted, Command):
            branch.scope.is_over = True
            self.end(branch, None, foreign_await(branch.work, wanted))
            return
        if isinstance(wanted, ContinueAsNew) and branch is self.root:
            if self.cancelled:  # and its code knows: it ends
                self.end(branch, None)
            else:
                self.next_call = wanted.call
            return
        try:
            branch.awaited = self._begin(wanted, branch, branch.scope)
        except WorkflowError as error:
            branch.scope.is_over = True
            leave(branch.work)
            self.end(branch, None, error)

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
            self._ready.append(partial(self.end, node, []))
        return node

    def _leaf(self, command: Command[Any], parent: Node, scope: Scope) -> Leaf:
        key = scope.key(getattr(command, "name", ""))
        length = results.length(command)
        due = later(self.now, length) if length is not None else None
        leaf = Leaf(parent, key, command, results.digest(command, self._is_sealed), due)
        leaf.arguments = results.argument_digest(command, self._is_sealed)
        if isinstance(command, RunJob) and command.options.delay:
            leaf.starts_at = later(self.now, command.options.delay)
        if isinstance(command, RunInline):
            self.inline.append(leaf)
        else:
            self.open[key] = leaf
        return leaf

    # --- ends -------------------------------------------------------------------------------------
    def end(self, node: Node, value: Any, error: BaseException | None = None) -> None:
        """Something that is awaited has ended; hands it to the code, once this runs."""
        node.has_ended, node.value, node.error = True, value, error
        if isinstance(node, Branch) and error is not None:
            node.scope.is_over = True
        match node.parent:
            case Branch() as branch:
                if branch is self.root and self._after_undoing is not None:
                    node, self._after_undoing = self._after_undoing, None
                self._ready.append(partial(self._step, branch, node))
            case JoinNode() as join if not join.has_ended:
                if (end := joined(join, node)) is not None:
                    self._give_up_others(join)
                    self.end(join, *end)

    def interrupt(self, request: Resolution) -> None:
        """Raises Cancelled where the workflow's own code awaits; parts of a join are closed.

        Where it awaits `ctx.compensate()`, that goes on to its end, and Cancelled is raised then.
        """
        self.cancelled = request.error.message if request.error else "cancelled"
        self.is_timed_out = request.error is not None and request.error.kind == TIMED_OUT
        self.next_call = None
        interruption = Node(self.root)
        interruption.error = Cancelled(self.cancelled)
        awaited = self.root.awaited
        if isinstance(awaited, JoinNode) and awaited.command.undoes and not awaited.has_ended:
            self._after_undoing = interruption
            return
        if awaited is not None:
            self._close(awaited)
        self._ready.append(partial(self._step, self.root, interruption))

    def close(self) -> None:
        """Ends the coroutines; what they do then has no effect, and no more awaits begin."""
        self._is_closing = True
        self._close(self.root)

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
                if node in self.inline:
                    self.inline.remove(node)
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
        if leaf.key not in self.open:
            return
        if leaf.n is not None:
            self._unrecorded.give_up(leaf.n)
            if self.cancelled and leaf.kind == "workflow":
                self.cleaning_up[leaf.key] = leaf
        is_undone = leaf.n is not None and self.compensations.keeps(leaf)
        if not is_undone and leaf.key not in self.cleaning_up:
            del self.open[leaf.key]

    def _close_work(self, branch: Branch) -> None:
        self.scope = branch.scope
        self.scope.is_over = True
        if self._is_closing or self.cancelled:
            leave(branch.work)
            return
        try:
            branch.work.close()
        except RuntimeError as error:
            raise WorkflowError(
                f"{branch.work} was given up and awaits in a 'finally' or 'except': {error}"
            ) from error
