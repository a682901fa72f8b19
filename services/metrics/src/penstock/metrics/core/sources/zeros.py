"""Counts that are only about right: a zero is believed when it was counted several times.

Amazon SQS counts by asking some of its servers, which may hold none of the messages that are there
(keda #1663: a queue that seemed empty ended the worker of its last message).
"""

from __future__ import annotations

import msgspec

LOOKS = 3
"""A zero is believed at the third look that finds it."""


class Counts(msgspec.Struct, frozen=True):
    """What is believed of a queue after a look.

    Attributes:
        waiting: messages that could start now.
        claimed: messages that are delivered and not deleted.
        waiting_zeros: looks in a row that found none waiting while ``waiting`` stands.
        claimed_zeros: the same of ``claimed``.
    """

    waiting: int
    claimed: int
    waiting_zeros: int = 0
    claimed_zeros: int = 0


def believed(before: Counts | None, waiting: int, claimed: int) -> Counts:
    """What to believe after a look that found so many.

    None waiting is believed at once where as many more are claimed: they were taken.

    Args:
        before: after the look before; None for the first, which is believed as it is.
    """
    if before is None:
        return Counts(waiting, claimed)
    were_taken = claimed - before.claimed >= before.waiting
    waiting_zeros = 0 if waiting or were_taken else before.waiting_zeros + 1
    claimed_zeros = 0 if claimed else before.claimed_zeros + 1
    return Counts(
        before.waiting if 0 < waiting_zeros < LOOKS else waiting,
        before.claimed if 0 < claimed_zeros < LOOKS else claimed,
        waiting_zeros,
        claimed_zeros,
    )
