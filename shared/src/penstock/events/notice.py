"""What a hook is given: an event of a job in plain words."""

from __future__ import annotations

import msgspec

from penstock.events.envelope import Instant, Int64


class JobNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, or the end of a job. An event may be delivered twice, with the same id.

    Attributes:
        hook: name of the hook in the settings.
        event_id: the same for each delivery of one event.
        event: ``JobFailed``, ``JobDead``, ``JobCompleted`` or ``JobCancelled``.
        at: when it happened.
        function: registered name of the job.
        queue: of the job.
        attempt: that failed or completed; 0 else.
        will_retry: another attempt follows.
        error_type: dotted name of the exception; empty where there is none.
        error: its text, or why the job was cancelled; without its middle beyond 4,000 characters.
        traceback: formatted; without its middle beyond 16,000 characters.
    """

    hook: str
    event_id: str
    event: str
    at: Instant
    job_id: str
    function: str = ""
    queue: str = ""
    attempt: Int64 = 0
    will_retry: bool = False
    error_type: str = ""
    error: str = ""
    traceback: str = ""
