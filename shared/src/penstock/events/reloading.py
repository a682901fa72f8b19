"""Requests to executors to reload the job code, and their answers. Plain subjects: each may answer.

A request is repeated until it is answered, and may come twice or late: it has an id, which an
executor obeys once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.events.envelope import Int64

ReloadState = Literal["importing", "replacing", "done", "failed", "superseded"]


class ReloadRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A request to import the job code anew and to replace the workers by ones that have it.

    Attributes:
        id: of the reload; last token of the subject of the answers.
        pools: whose workers are replaced; none for all.
    """

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    pools: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()


class ReloadReported(msgspec.Struct, frozen=True, kw_only=True):
    """How far one host is with a reload.

    Attributes:
        workers: that it replaces.
        left: those of them that have not begun to end.
        error: why it failed; the old workers go on.
    """

    id: str
    host: str
    state: ReloadState
    workers: Int64 = 0
    left: Int64 = 0
    error: str = ""
