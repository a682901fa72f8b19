"""Requests to executors to drain one worker, and their answers. Plain subjects: each may answer."""

from __future__ import annotations

from typing import Literal

import msgspec

DrainOutcome = Literal["draining", "already", "unknown"]
"""``draining``: from now on; ``already``: it was ending; ``unknown``: the host runs no such one."""


class DrainAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request to drain a worker: it finishes its jobs and ends, and its pool gets another.

    Attributes:
        answer_to: last token of the subject that the answer is expected on.
        worker: its name.
        by: origin of the request, such as ``console/ada``.
        reason: why, for people.
    """

    answer_to: str
    worker: str
    by: str = ""
    reason: str = ""


class DrainAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The executor's answer."""

    host: str
    worker: str
    outcome: DrainOutcome
