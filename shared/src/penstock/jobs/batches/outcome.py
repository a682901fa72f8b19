"""How a batch, chain or graph ended, as its callbacks receive it."""

from __future__ import annotations

import msgspec

from penstock.events.batch import Counts


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the parameter that a callback left open.

    Attributes:
        id: of the batch, chain or graph.
        state: how it ended.
        counts: of its jobs.
        title: of the batch, chain or graph.
        reason: empty after a success.
        failed_job: the first that failed.
    """

    id: str
    state: str
    counts: Counts
    title: str = ""
    reason: str = ""
    failed_job: str = ""
