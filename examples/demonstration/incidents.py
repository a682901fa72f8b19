"""The consequences of the kills, and other sentences for the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from examples.demonstration.audit import Audit
from examples.demonstration.kills import Kill
from examples.demonstration.recording import Recording

from penstock.events.envelope import Event
from penstock.events.job import JobStarted
from penstock.events.scaling import LeaderChanged, SlaBreached, SlaBreachPredicted, SlaRecovered
from penstock.events.worker import HostLost, WorkerCrashLooping, WorkerStopped
from penstock.views.wording import seconds

RERUN_WITHIN_SECONDS = 5.0
"""A job whose worker was killed runs elsewhere within this."""


def rerun_seconds(kill: Kill) -> float | None:
    """From the kill to the job's next start; None while there is none."""
    starts = kill.story.starts if kill.story else []
    return next((at - kill.at for at, _ in starts if at > kill.at), None)


def replaced_seconds(recording: Recording, kill: Kill) -> float | None:
    """From the kill to the next worker of that pool that became ready."""
    ready = [
        life.ready_at - kill.at
        for life in recording.workers_of(kill.pool)
        if life.ready_at is not None and life.started_at > kill.at
    ]
    return min(ready, default=None)


def takeover_seconds(recording: Recording, kill: Kill) -> float | None:
    """From the kill to the next leader."""
    return next((at - kill.at for at, _ in recording.leaders if at > kill.at), None)


def decided_seconds(recording: Recording, kill: Kill) -> float | None:
    """From the kill to the next change of a plan, by the new leader."""
    changes = (at for at, made in recording.decisions if made.target != made.current)
    return next((at - kill.at for at in changes if at > kill.at), None)


def sentences(recording: Recording, kills: Sequence[Kill], begins: float) -> tuple[str, ...]:
    """A sentence for each kill and its consequences."""
    return tuple(
        f"{kill.at - begins:.0f} s: "
        + (_worker(recording, kill) if kill.worker else _leader(recording, kill))
        for kill in kills
    )


def unrecovered(recording: Recording, kills: Sequence[Kill]) -> list[str]:
    """A sentence for each kill that was not recovered from."""
    faults = []
    for kill in kills:
        if not kill.worker and takeover_seconds(recording, kill) is None:
            faults.append("no decider led after the leader was killed")
        elif kill.worker and kill.story and kill.story.ended_at is None:
            faults.append("the job of the killed worker never ended")
        elif kill.worker and (rerun_seconds(kill) or 0.0) > RERUN_WITHIN_SECONDS:
            late = seconds(rerun_seconds(kill))
            faults.append(f"the job of the killed worker ran again only after {late}")
    return faults


def notes(recording: Recording, audit: Audit) -> tuple[str, ...]:
    """How many jobs needed more than one attempt, and the results of Spark jobs."""
    retried = sum(story.failures > 0 for story in recording.jobs.values())
    right = audit.answers - audit.wrong
    return (
        f"{retried} failed at the first attempt and were retried",
        f"{audit.answers} Spark jobs wrote Parquet and read it back; "
        f"{right} answers equal plain Python's",
    )


def news(event: Event, recording: Recording, kills: Sequence[Kill]) -> str:
    """A line for the screen; empty for what is too common."""
    match event:
        case JobStarted() if (kill := _killed_job(event.job_id, kills)) and rerun_seconds(kill):
            delay = seconds(rerun_seconds(kill))
            return f"the killed worker's job runs again, {delay} after the kill"
        case LeaderChanged():
            pid = event.source.rpartition(".")[2]
            return f"decider process {pid} leads (epoch {event.epoch})"
        case SlaBreachPredicted():
            expected = seconds(event.predicted_pickup_seconds)
            return f"{event.pool}: a breach is predicted, pickup {expected}"
        case SlaBreached():
            return f"{event.pool}: breached, the oldest job waits longer than promised"
        case SlaRecovered():
            return f"{event.pool}: kept again after {seconds(event.breached_seconds)}"
        case WorkerStopped() if event.cause not in ("scaled-down", "shutdown"):
            return f"{event.pool}: worker {event.worker} ended ({event.cause})"
        case WorkerCrashLooping():
            return f"{event.pool}: workers keep ending, exit code {event.last_exit_code}"
        case HostLost():
            return f"host {event.host} is lost"
    return ""


def _killed_job(job_id: str, kills: Sequence[Kill]) -> Kill | None:
    return next((kill for kill in kills if kill.story and kill.story.id == job_id), None)


def _worker(recording: Recording, kill: Kill) -> str:
    queue = kill.story.queue if kill.story else kill.pool
    rerun, ready = rerun_seconds(kill), replaced_seconds(recording, kill)
    fate = f"ran again after {seconds(rerun)}" if rerun is not None else "had just ended"
    return (
        f"a busy {queue} worker killed; its job {fate}, a new worker ready after {seconds(ready)}"
    )


def _leader(recording: Recording, kill: Kill) -> str:
    takeover, decided = takeover_seconds(recording, kill), decided_seconds(recording, kill)
    return (
        f"the leading decider killed; the standby led after {seconds(takeover)}, "
        f"the next change was decided after {seconds(decided)}"
    )
