"""What follows from a failed attempt: the events, in one atomic batch. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from penstock.events.envelope import whole_micros
from penstock.events.job import (
    JobCancelled,
    JobDead,
    JobError,
    JobEvent,
    JobFailed,
    JobRetrying,
)
from penstock.jobs.errors import Defer, Verdict, WrongResult
from penstock.jobs.retry import Backoff, Outlook

_USUAL = Outlook()
FINAL = Outlook(fatal=True)
"""Of work that was done: another attempt would do it again, for the same result."""
_MESSAGE_LIMIT = 4_000
_TRACEBACK_LIMIT = 16_000
_LEAST_SECONDS, _MOST_SECONDS = 0.01, 366 * 86_400.0


def failed(
    *,
    job_id: str,
    function: str = "",
    queue: str,
    attempt: int,
    tries: int,
    backoff: Backoff,
    error: JobError,
    run_seconds: float,
    cpu_seconds: float = 0.0,
    peak_memory_bytes: int = 0,
    now: datetime,
    source: str,
    outlook: Outlook | None = None,
) -> tuple[JobEvent, ...]:
    """JobFailed, and JobRetrying while tries are left, else JobDead."""
    outlook = outlook or _USUAL
    delay_seconds = outlook.delay_seconds
    if delay_seconds is None:
        delay_seconds = backoff.delay_seconds(attempt)
    will_retry = attempt < tries and not outlook.fatal
    failure = JobFailed(
        job_id=job_id,
        correlation_id=job_id,
        source=source,
        at=now,
        queue=queue,
        attempt=attempt,
        error=error,
        run_seconds=run_seconds,
        cpu_seconds=whole_micros(cpu_seconds),
        peak_memory_bytes=peak_memory_bytes,
        function=function,
        will_retry=will_retry,
    )
    verdict: JobEvent
    if will_retry:
        verdict = JobRetrying(
            job_id=job_id,
            correlation_id=job_id,
            causation_id=failure.id,
            source=source,
            at=now,
            attempt=attempt + 1,
            due_at=now + timedelta(seconds=delay_seconds),
            function=function,
        )
    else:
        verdict = JobDead(
            job_id=job_id,
            correlation_id=job_id,
            causation_id=failure.id,
            source=source,
            at=now,
            queue=queue,
            error=error,
            function=function,
            attempt=attempt,
        )
    return (failure, verdict)


def ended_by_itself(
    *,
    job_id: str,
    function: str = "",
    attempt: int,
    verdict: Verdict,
    now: datetime,
    source: str,
) -> JobEvent:
    """The event of a job that ended with a verdict, of its own or of its middleware."""
    if isinstance(verdict, Defer):
        later = timedelta(seconds=min(max(verdict.seconds, _LEAST_SECONDS), _MOST_SECONDS))
        return JobRetrying(
            job_id=job_id,
            correlation_id=job_id,
            source=source,
            at=now,
            attempt=attempt,
            due_at=now + later,
            put_off=_text(verdict.why[:_MESSAGE_LIMIT]) or "deferred",
            function=function,
        )
    return JobCancelled(
        job_id=job_id,
        correlation_id=job_id,
        source=source,
        at=now,
        reason=_text(str(verdict)[:_MESSAGE_LIMIT]),
        cause="skipped",
        function=function,
    )


def timed_out(timeout_seconds: float) -> JobError:
    return JobError(kind="timeout", message=f"ran longer than its {timeout_seconds:g} s")


def memory_limit(used_bytes: int, allowed_bytes: int) -> JobError:
    """The error of a job whose worker used more memory than ``limit_job_memory_bytes``."""
    used, allowed = used_bytes >> 20, allowed_bytes >> 20
    message = f"used {used} MiB, limit_job_memory_bytes of its pool allows {allowed} MiB"
    return JobError(kind="memory-limit", message=message)


def cpu_limit(used_seconds: float, allowed_seconds: float) -> JobError:
    """The error of a job that used more CPU time than ``limit_job_cpu_seconds``."""
    return JobError(
        kind="cpu-limit",
        message=f"used {used_seconds:.1f} s of CPU time, limit_job_cpu_seconds of its pool allows "
        f"{allowed_seconds:g} s",
    )


def error_of(raised: BaseException, traceback: str) -> JobError:
    """An exception as it is recorded, bounded in size."""
    kind = type(raised)
    try:
        message = str(raised)
    except Exception as error:
        message = f"(str(error) failed: {type(error).__name__})"
    return JobError(
        kind=_text(f"{kind.__module__}.{kind.__qualname__}"),
        message=_text(message[:_MESSAGE_LIMIT]),
        traceback=_text(traceback[-_TRACEBACK_LIMIT:]),
    )


def wrong_result(error: WrongResult) -> JobError:
    return JobError(kind="wrong-result", message=_text(str(error)[:_MESSAGE_LIMIT]))


def too_large(result_bytes: int, limit: int) -> JobError:
    return JobError(
        kind="result-too-large",
        message=f"the encoded result has {result_bytes} bytes, jobs.max_payload_bytes allows "
        f"{limit}; write large data to a file and return its name",
    )


def _text(text: str) -> str:
    """Without lone surrogates, which JSON cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
