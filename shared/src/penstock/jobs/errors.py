"""What can go wrong around a job.

::

    JobsError
    ├── JobRefused            a dispatch that cannot be accepted
    │   ├── UnknownJob        no function of that name in the configured modules
    │   ├── BadArguments      arguments that do not fit the function's signature
    │   ├── PayloadTooLarge   the encoded call exceeds jobs.max_payload_bytes
    │   ├── AlreadyDispatched a job of that id, or another that counts for its key, exists
    │   ├── BadTime           a delay or an expiry that cannot be; a ValueError, too
    │   ├── BadSchedule       a cron expression or time zone that cannot be
    │   └── OutboxFull        no broker, and the local outbox holds as many as it may
    ├── NotFound              no job of that id
    ├── Changed               it is not as the caller read it any more
    ├── AmbiguousId           several jobs' ids begin with the text
    ├── MissingKey            encrypted with a key that is not in this process's key ring
    ├── Undecryptable         encrypted for something else, or changed since
    ├── UnreadableJob         its events name a queue that cannot be one
    ├── WrongResult           a result that is not of the type its function declares
    ├── NoResult              a result that is not stored, or not any more
    ├── RateLimitExceeded     an attempt that came too early, where its limit says "fail"
    ├── CommitRefused         a name or a location is too long, or all of a job's are too much
    ├── StepFailed            a step of a workflow that did not complete, raised at its await
    ├── WorkflowError         code of a workflow that does what it must not
    └── IllegalTransition     an event that may not follow the record's state
    Verdict               raised inside a job or its middleware, instead of a result
    ├── Defer             it is retried later; the attempt does not count
    └── Skip              it need not run: it ends as cancelled
    Interruption (BaseException: raised inside a running job, not to be swallowed)
    ├── Cancelled
    ├── TimedOut
    └── LimitExceeded     it uses more memory or CPU time than its pool allows a job
"""

from __future__ import annotations


class JobsError(Exception):
    pass


class JobRefused(JobsError):
    pass


class BatchTakesNoJobs(JobRefused):
    """It was closed, by this creator or another that adds the same jobs, or it ends."""


class UnknownJob(JobRefused):
    pass


class BadArguments(JobRefused):
    """``signature_differs``: an argument is missing or unknown: of another version, perhaps."""

    def __init__(self, message: str, signature_differs: bool = False) -> None:
        super().__init__(message)
        self.signature_differs = signature_differs


class PayloadTooLarge(JobRefused):
    pass


class AlreadyDispatched(JobRefused):
    """``job_id``: of the job, graph or batch that exists."""

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class MissingKey(JobsError):
    """``key``: id of the one that is needed; empty where any would do."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Undecryptable(JobsError):
    pass


class UnreadableJob(JobsError):
    pass


class WrongResult(JobsError):
    pass


class NoResult(JobsError):
    pass


class RateLimitExceeded(JobsError):
    pass


class CommitRefused(JobsError):
    pass


class BadTime(JobRefused, ValueError):
    pass


class BadSchedule(JobRefused):
    pass


class OutboxFull(JobRefused):
    pass


class NotFound(JobsError):
    pass


class Changed(JobsError):
    pass


class AmbiguousId(JobsError):
    """Several jobs' ids, or graphs', begin with the text. Attributes: ids: of all of them."""

    def __init__(self, text: str, ids: list[str], most: int, noun: str = "job") -> None:
        lines = [f"{len(ids):,} {noun}s have an id that begins with {text!r}:", *ids[:most]]
        lines += [f"and {len(ids) - most:,} more"] if len(ids) > most else []
        super().__init__("\n  ".join(lines))
        self.ids = ids


class WorkflowError(JobsError):
    """The code of a workflow does what it must not: awaits something else, or uses a key twice."""


class StepFailed(JobsError):
    """A step of a workflow did not complete; raised at its await.

    Attributes:
        key: of the step.
        kind: of the error, as in ``JobView.error``; ``cancelled`` for a job that was cancelled.
    """

    def __init__(self, key: str, kind: str, message: str) -> None:
        super().__init__(f"step {key!r}: {kind.removeprefix('builtins.')}: {message}")
        self.key, self.kind = key, kind


class IllegalTransition(JobsError):
    pass


class Verdict(Exception):
    """What shall become of a job, instead of a result or an error."""


class Defer(Verdict):
    """The job is retried later; the attempt does not count.

    Args:
        seconds: how much later.
        why: for people.
    """

    def __init__(self, seconds: float, why: str = "deferred") -> None:
        super().__init__(f"{why}, for {seconds:g} s")
        self.seconds, self.why = seconds, why


class Skip(Verdict):
    """The job need not run: it ends as cancelled, with this as the reason."""


class Interruption(BaseException):
    """Raised in a running job's thread; no Exception, so that `except Exception` lets it by."""


class Cancelled(Interruption):
    """The job was cancelled, or another worker holds it now."""


class TimedOut(Interruption):
    """The job ran longer than its `timeout_seconds`."""


class LimitExceeded(Interruption):
    """The job uses more memory or CPU time than its pool's ``limit_job_…`` allow."""
