"""What all events of a job have in common."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from penstock.events.envelope import Event


class JobError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt ended badly.

    Attributes:
        kind: dotted name of the exception, or one of ``timeout``, ``poison``, ``unknown-job``,
            ``bad-arguments``, ``malformed``, ``undecryptable``, ``not-encrypted``, ``missing-key``,
            ``wrong-result``, ``result-too-large``, ``memory-limit``, ``cpu-limit``,
            ``at-most-once``, ``workflow-timeout``.
        message: its text, at most 4,000 characters.
        traceback: formatted, at most 16,000 characters; empty when there is none.
    """

    kind: str
    message: str
    traceback: str = ""


class JobEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "job"
    key_field: ClassVar[str] = "job_id"

    job_id: str
