"""What undoes the completed steps of a workflow, newest first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.events.workflow_memo import Resolution
from penstock.jobs.errors import WorkflowError
from penstock.jobs.job_type import Call
from penstock.jobs.workflows.coded.commands import AwaitGivenUp, Join, RunJob
from penstock.jobs.workflows.coded.running.nodes import JoinNode, Leaf, Node

Compensation = Call | Callable[[Any], Call]
"""A call, or what makes it from the result of the step."""


class Compensations:
    """Those of one workflow that were not carried out, in the order of the ends of the steps."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Compensation, Any]] = []
        self._given_up: dict[str, Leaf] = {}

    def keeps(self, leaf: Leaf) -> bool:
        """Whether the end of a step counts although it is given up: its job may complete yet."""
        if leaf.is_compensated:
            self._given_up[leaf.key] = leaf
        return leaf.is_compensated

    def see(self, leaf: Leaf, resolution: Resolution, value: Any) -> None:
        """A step ended: where it completed, it is to be undone."""
        self._given_up.pop(leaf.key, None)
        compensation = leaf.command.compensation if isinstance(leaf.command, RunJob) else None
        if compensation is not None and resolution.outcome == "completed":
            self._waiting.append((compensation, value))

    def unclear(self, command: AwaitGivenUp, parent: Node) -> JoinNode:
        """The steps that were given up and have not ended, to be awaited together."""
        node = JoinNode(parent, Join(command.name, on_failure="drain", raises=False))
        for leaf in self._given_up.values():
            leaf.parent, leaf.has_ended = node, False
            node.parts.append(leaf)
        return node

    def newest(self, most: int) -> list[Call]:
        """The calls that undo the steps that completed last, newest first; none: nothing is left.

        Args:
            most: how many at most.

        Raises:
            WorkflowError: its author made something else.
        """
        return [_undoing(*waiting) for waiting in reversed(self._waiting[-most:])]

    def carried_out(self, count: int) -> None:
        """So many of the newest were carried out, or cannot be."""
        del self._waiting[-count:]


def _undoing(compensation: Compensation, value: Any) -> Call:
    call = compensation if isinstance(compensation, Call) else compensation(value)
    if not isinstance(call, Call):
        raise WorkflowError(f"compensate= made {call!r}, expected a call of a job")
    return call
