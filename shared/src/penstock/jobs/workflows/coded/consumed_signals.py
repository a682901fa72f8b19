"""Which signals a workflow has consumed, and passed over, by what it has recorded. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.events.workflow_memo import MemoEntry, RefusedSignal, WorkflowMemo


class ConsumedSignals:
    """Sequences of the signals that a workflow took note of, in all of its generations.

    Args:
        read_to: up to this one all were.
        later: those after it.
        ids: of the former.
        refused: those of all that were passed over: one of the same id may be sent after them.
    """

    def __init__(
        self,
        read_to: int = 0,
        later: Iterable[int] = (),
        ids: Iterable[str] = (),
        refused: Iterable[int] = (),
    ) -> None:
        self.read_to, self.later, self.ids = read_to, frozenset(later), frozenset(ids)
        self.refused = frozenset(refused)

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and (sequence <= self.read_to or sequence in self.later)

    def and_also(self, sequences: Iterable[int], refused: Collection[int] = ()) -> ConsumedSignals:
        """The same with further ones, and others that were passed over."""
        later = self.later.union(sequences, refused)
        return ConsumedSignals(self.read_to, later, self.ids, self.refused.union(refused))


NONE_CONSUMED = ConsumedSignals()


def of(memo: WorkflowMemo) -> ConsumedSignals:
    """Sequences of the signals that it took note of, or passed over."""
    consumed = {
        resolution.sequence
        for entry in memo.entries
        for resolution in entry.consumed
        if resolution.sequence
    }
    passed_over = {signal.sequence for signal in refused(memo)}
    later = (one for one in consumed.union(memo.read, passed_over) if one > memo.read_to)
    return ConsumedSignals(memo.read_to, later, memo.read_ids, passed_over)


def refused(memo: WorkflowMemo) -> list[RefusedSignal]:
    """Signals whose values were of another type than what was waited for, oldest first."""
    return refused_in(memo.entries)


def refused_in(entries: Iterable[MemoEntry]) -> list[RefusedSignal]:
    """The same, of these entries."""
    return [signal for entry in entries for signal in entry.refused]
