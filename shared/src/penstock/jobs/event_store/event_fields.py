"""Fields of a job's record that an event says by itself, whatever came before. Pure."""

from __future__ import annotations

from typing import Any

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobFailed,
    JobMoved,
    JobProgressed,
    JobReleased,
    JobRetrying,
    JobStarted,
)
from penstock.events.job_event import JobEvent


def of(event: JobEvent, sequence: int) -> dict[str, Any] | None:
    """Those of the record after an event that may follow; None for an event of another kind.

    Args:
        sequence: of the event.
    """
    match event:
        case JobStarted():
            return {
                "attempt": event.attempt,
                "token": sequence,
                "put_off": "",
                "started_at": event.at,
                "finished_at": None,
                "host": event.host,
                "worker": event.worker,
                "message": event.message,
                "max_lost": event.max_lost,
                "at_most_once": event.at_most_once,
                "slots": event.slots,
            }
        case JobProgressed():
            return {"done": event.done, "total": event.total}
        case JobCompleted():
            return {
                "result": event.result,
                "no_result": event.no_result,
                "result_until": event.result_until,
                "finished_at": event.at,
                "run_seconds": event.run_seconds,
                "cpu_seconds": event.cpu_seconds,
                "peak_memory_bytes": event.peak_memory_bytes,
                "error": None,
            }
        case JobFailed():
            return {
                "error": event.error,
                "finished_at": event.at,
                "run_seconds": event.run_seconds,
                "cpu_seconds": event.cpu_seconds,
                "peak_memory_bytes": event.peak_memory_bytes,
                "lost_workers": 0,
                "lost_together": 0,
                "lost_beside": 0,
            }
        case JobRetrying():
            retrying: dict[str, Any] = {
                "next_attempt": event.attempt,
                "available_at": event.due_at,
                "put_off": event.put_off,
            }
            return retrying | {"started_at": None} if event.put_off else retrying
        case JobReleased():
            return {"available_at": event.at}
        case JobMoved():
            return {"queue": event.queue, "payload": event.payload, "message": 0, "moved": sequence}
        case JobDead():
            return {"error": event.error, "finished_at": event.at}
        case JobCancelled():
            return {"finished_at": event.at}
    return None
