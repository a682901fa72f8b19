"""Requests to executors about stuck jobs, and their answers. Plain subjects: each may answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.events.envelope import Int64

Strategy = Literal["graceful", "restart", "checkpoint", "off"]


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A running job as its executor sees it; the parts of the score are 0 (well) to 1.

    Attributes:
        process: state of the worker's process.
        outcome: what was done about it.
    """

    job_id: str
    queue: str
    host: str
    worker: str
    pool: str
    pid: Int64
    running_seconds: float
    silent_seconds: float
    score: float
    heartbeat: float
    run_time: float
    memory: float
    process_part: float
    process: str
    outcome: str = ""


class RecoverAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request to list, or to recover, the jobs whose score is above ``threshold``.

    Attributes:
        answer_to: last token of the subject that the answer is expected on.
        job_id: only these; empty for all.
        queue: only these; empty for all.
        strategy: ``off`` only looks.
    """

    answer_to: str
    threshold: float
    strategy: Strategy = "off"
    job_id: str = ""
    queue: str = ""


class RecoverAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One host's answer."""

    host: str
    suspects: tuple[Suspect, ...] = ()
