"""Whether the code of a workflow calls what was recorded; if not, both in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.events.workflow_memo import (
    InlineResult,
    MemoEntry,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs.workflows.coded.memo import recorded_keys
from penstock.jobs.workflows.coded.running.nodes import Diverged, Leaf
from penstock.jobs.workflows.coded.running.running_code import RunningCode

_MOST_KEYS = 10
"""Named in one reason."""


class Terms:
    """What an operator allows of one recorded entry: see ``WorkflowFixed``.

    Attributes:
        is_amended: calls that were not recorded begin anew.
        is_accepted: functions and arguments may differ from those recorded.
    """

    def __init__(self, memo: WorkflowMemo, index: int) -> None:
        self.is_amended = index < memo.amended
        self.is_accepted = index < memo.accepted


def check_not_ended(code: RunningCode, entry: MemoEntry, terms: Terms) -> None:
    """Raises Diverged: the code is at its end already, unless that entry was its last."""
    error, begins_anew = code.root.error, code.next_call is not None
    is_last = entry.is_part and not entry.scheduled and error is None
    if is_last:
        return
    if (code.root.has_ended or begins_anew) and not terms.is_amended:
        how = f"raises {type(error).__name__} ({error})" if error else "ends"
        how = "begins anew" if begins_anew else how
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
        leaf.key == result.key
        and (terms.is_accepted or (leaf.digest == result.digest and _has_same(leaf, result)))
    )
    if leaf is None or not is_same:
        is_other = leaf is None or leaf.digest != result.digest
        recorded = result.digest if is_other else _shown(result)
        called = (
            f"{leaf.key!r} ({leaf.digest if is_other else _shown(leaf)})" if leaf else "nothing"
        )
        raise Diverged(
            f"recorded is the inline step {result.key!r} ({recorded}), the code calls {called}"
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
        if not (terms.is_accepted or _has_same(leaf, step)):
            raise Diverged(
                f"recorded under {step.key!r} is {step.kind} {_shown(step)}, "
                f"the code calls {leaf.kind} {_shown(leaf)}"
            )
        yield leaf, step
    if called and not (entry.is_part or terms.is_amended):
        raise Diverged(f"the code calls {next(iter(called))!r}, which was not recorded")


def explained(
    difference: Diverged, recorded: WorkflowMemo, index: int, called: Iterable[Leaf]
) -> Diverged:
    """The same, with what to do where it follows from what an operator changed.

    A step that begins anew has not ended: what was recorded after its end cannot be gone through.

    Args:
        index: of the entry that does not fit.
        called: what the code waits for there.
    """
    keys_before = recorded_keys(recorded)
    anew = [leaf.key for leaf in called if leaf.n is None and leaf.key not in keys_before]
    if not (anew and Terms(recorded, index).is_amended):
        return difference
    after = [
        key
        for entry in recorded.entries[index:]
        for key in (
            *(step.key for step in entry.scheduled),
            *((entry.inline.key,) if entry.inline else ()),
        )
    ]
    keys = ", ".join(map(repr, after[:_MOST_KEYS])) + (", …" if len(after) > _MOST_KEYS else "")
    return Diverged(
        f"{difference}; it waits for {anew[0]!r}, which begins anew, and cannot use what was "
        f"recorded after that: forget {keys}, too"
    )


def _has_same(leaf: Leaf, recorded: InlineResult | ScheduledStep) -> bool:
    """Whether the arguments are those that were recorded, as far as both are known."""
    return leaf.arguments == recorded.arguments or not (leaf.arguments and recorded.arguments)


def _shown(call: Leaf | InlineResult | ScheduledStep) -> str:
    return f"{call.digest}({call.arguments})" if call.arguments else call.digest


def what(entry: MemoEntry) -> str:
    """A recorded entry in a few words."""
    if entry.inline is not None:
        return f"the inline step {entry.inline.key!r}"
    keys = ", ".join(repr(step.key) for step in entry.scheduled[:3])
    return f"a suspension that waits for {keys or 'the same as before'}"
