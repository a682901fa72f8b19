"""Whether the code of a workflow calls what was recorded; if not, both in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.events.workflow_memo import (
    InlineResult,
    MemoEntry,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs.workflows.coded.nodes import Branch, Diverged, Leaf


class Terms:
    """What an operator allows of one recorded entry: see ``WorkflowFixed``.

    Attributes:
        is_amended: calls that were not recorded begin anew.
        is_accepted: functions and arguments may differ from those recorded.
    """

    def __init__(self, memo: WorkflowMemo, index: int) -> None:
        self.is_amended = index < memo.amended
        self.is_accepted = index < memo.accepted


def check_not_ended(root: Branch, entry: MemoEntry, terms: Terms) -> None:
    """Raises Diverged: the code is at its end already."""
    if root.has_ended and not terms.is_amended:
        error = root.error
        how = f"raises {type(error).__name__} ({error})" if error else "ends"
        raise Diverged(f"the code {how} where recorded is {what(entry)}")


def check_no_inline(inline: Sequence[Leaf], recorded: str, terms: Terms) -> None:
    """Raises Diverged: the code calls an inline step here."""
    if inline and not terms.is_amended:
        raise Diverged(f"the code calls the inline step {inline[0].key!r}, recorded is {recorded}")


def inline_leaf(inline: Sequence[Leaf], result: InlineResult, terms: Terms) -> Leaf:
    """The call that a recorded result belongs to. Raises Diverged."""
    calls = [leaf for leaf in inline if leaf.key == result.key] if terms.is_amended else inline
    leaf = calls[0] if calls else None
    is_same = leaf is not None and (
        leaf.key == result.key and (leaf.digest == result.digest or terms.is_accepted)
    )
    if leaf is None or not is_same:
        called = f"{leaf.key!r} ({leaf.digest})" if leaf else "nothing"
        raise Diverged(
            f"recorded is the inline step {result.key!r} ({result.digest}), the code calls {called}"
        )
    return leaf


def scheduled_leaves(
    entry: MemoEntry, open_leaves: Iterable[Leaf], terms: Terms
) -> Iterator[tuple[Leaf, ScheduledStep]]:
    """Each recorded step with the call that it belongs to. Raises Diverged."""
    called = {leaf.key: leaf for leaf in open_leaves if leaf.n is None}
    for step in entry.scheduled:
        leaf = called.pop(step.key, None)
        if leaf is None:
            raise Diverged(f"recorded is {step.kind} {step.key!r}, the code does not call it")
        is_accepted = terms.is_accepted and leaf.kind == step.kind and step.is_job
        if (leaf.kind, leaf.digest) != (step.kind, step.digest) and not is_accepted:
            raise Diverged(
                f"recorded under {step.key!r} is {step.kind} {step.digest}, "
                f"the code calls {leaf.kind} {leaf.digest}"
            )
        yield leaf, step
    if called and not (entry.is_part or terms.is_amended):
        raise Diverged(f"the code calls {next(iter(called))!r}, which was not recorded")


def what(entry: MemoEntry) -> str:
    """A recorded entry in a few words."""
    if entry.inline is not None:
        return f"the inline step {entry.inline.key!r}"
    keys = ", ".join(repr(step.key) for step in entry.scheduled[:3])
    return f"a suspension that waits for {keys or 'the same as before'}"
