"""Proof that a few messages are a whole history, by what the broker compared as it stored them.

The last event of a kind proves nothing by itself: a client that may write to a subject may append
one that may not follow, which every fold passes over. Reading all events of a job to see that costs
more than all else in an advance. But an event that was appended by compare-and-set names the one
that was last before it, by the broker's word. So where each of a few messages names the one before
it, or follows it in the stream at once, nothing lies between them, and their fold is the fold of
the whole. Where the row is broken, for whatever reason, all is read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.bus.protocol import Stored

_WILDCARDS = "*>"
"""Either takes in all events of a job: what differs between their subjects is one token."""


def is_whole(messages: Iterable[Stored], tree: str, after: int = 0) -> bool:
    """Whether these are all messages of a subject tree, as far as the latest of them.

    Args:
        messages: oldest first.
        tree: subject of all events of a job, with its wildcard.
        after: sequence of the message that they follow; 0: the tree was empty before.
    """
    previous = after
    for stored in messages:
        is_next = stored.sequence == previous + 1  # as the second message of an atomic batch is
        if not is_next and predecessor(stored, tree) != previous:
            return False
        previous = stored.sequence
    return True


def predecessor(stored: Stored, tree: str) -> int | None:
    """Sequence of the message that was the last of the tree before this one; 0: there was none.

    None: the broker was not asked to compare it, so that any may lie in between.
    """
    compared = stored.compared
    if compared is None or compared.subject[-1] not in _WILDCARDS:
        return None
    return compared.sequence if compared.subject[:-1] == tree[:-1] else None


def is_first(stored: Stored, tree: str) -> bool:
    """Whether a message was the first of its tree when it was stored."""
    return is_whole((stored,), tree)
