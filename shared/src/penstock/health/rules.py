"""From facts to a report: one function a component. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from penstock.health.durability import posture
from penstock.health.facts import BROKER_FILES, DiskFacts, Facts, HostFacts, LogFacts, StreamFacts
from penstock.health.report import Finding, Report, State, worst

MUCH_LIVES, NEAR, ALMOST_FULL = 0.5, 0.8, 0.95
"""Shares of a stream's, the store's or a disk's room: a warning; no room soon."""
SLOW_SECONDS, VERY_SLOW_SECONDS = 0.25, 1.0
FULL_SOON_HOURS, FULL_VERY_SOON_HOURS = 24.0, 2.0
SKEW_SECONDS, BAD_SKEW_SECONDS = 1.0, 5.0
"""Leases are counted by each side's own clock; times in events and delays are not."""

_SMALL_JOB_BYTES = 1_000
"""Bytes that the dispatch of a small job takes in the event log: with fewer left it is refused."""
MOST_QUEUES = 10
"""Queues that no pool takes, and that a report names."""
MOST_SERVICES = 10
"""Services with other settings that a report names."""
MOST_HOLDS = 10
"""Held pools that a report names."""
MOST_SCHEDULES = 10
"""Schedules that differ from their declaration, and that a report names."""
MOST_FUNCTIONS = 10
"""Functions of blocked workflows that a report names."""
MOST_HOOKS = 10
"""Failing hooks that a report names."""
ORCHESTRATOR = "orchestrator"
_STANDS_STILL = {
    ORCHESTRATOR: ": schedules, batches and healing stand still",
    "decider": ": no pool is scaled, the last plan stands",
    "metrics": ": nothing is measured, the last plan stands",
}

Reasons = Iterator[tuple[State, str]]


def judge(facts: Facts, at: datetime) -> Report:
    """The report on an installation. Without a broker it has only the facts of this machine."""
    rules = {"broker": _broker, "disk": _disk}
    if not facts.broker.error:
        rules |= {
            "streams": _streams,
            "queues": _queues,
            "sources": _sources,
            "services": _services,
            "settings": _settings,
            "schedules": _schedules,
            "hooks": _hooks,
            "workflows": _workflows,
            "workers": _workers,
            "spark": _spark,
            "clock": _clock,
        }
    findings = tuple(_finding(name, list(rule(facts))) for name, rule in rules.items())
    return Report(
        state=worst(finding.state for finding in findings),
        at=at,
        findings=findings,
        durability=posture(facts),
    )


def _finding(component: str, reasons: list[tuple[State, str]]) -> Finding:
    ranked = sorted(reasons, key=lambda reason: -reason[0].rank)
    return Finding(
        component=component,
        state=worst(state for state, _ in ranked),
        reasons=tuple(text for _, text in ranked),
    )


def _broker(facts: Facts) -> Reasons:
    broker = facts.broker
    if broker.error:
        yield State.UNHEALTHY, broker.error
        return
    if broker.write_error:
        yield State.UNHEALTHY, _stores_nothing(facts)
    seconds = broker.answer_seconds or 0.0
    if seconds > SLOW_SECONDS:
        state = State.DEGRADED if seconds > VERY_SLOW_SECONDS else State.WARNING
        yield state, f"it took {seconds:.2f} s to answer"
    if broker.stored_bytes is not None and broker.storage_bytes:
        share = broker.stored_bytes / broker.storage_bytes
        yield from _room(share, "its storage", State.UNHEALTHY, "jobs will be refused")


def _stores_nothing(facts: Facts) -> str:
    """A broker that found its disk full stores nothing until it is started again."""
    text = f"the broker does not store: {facts.broker.write_error}"
    disk = next((disk for disk in facts.disks if disk.use == BROKER_FILES), None)
    if disk is None:
        return f"{text}; look for room on its disk, then restart it"
    free = f"free space {(disk.total_bytes - disk.used_bytes) / 1e6:,.0f} MB"
    if disk.used_bytes < ALMOST_FULL * disk.total_bytes:
        return f"{text}; {free}; restart it"
    return f"{text}; {free}: make room on {disk.path}, then restart it"


def _streams(facts: Facts) -> Reasons:
    for name in facts.missing_streams:
        yield State.UNHEALTHY, f"stream {name} is missing; services make it when they start"
    refusing = [stream for stream in facts.streams if _refuses_jobs(stream)]
    for stream in refusing:
        yield State.UNHEALTHY, _no_job_is_accepted(stream, facts.log)
    if facts.log is not None:
        yield from _log(facts.log, is_refusing=bool(refusing))
    for stream in facts.streams:
        if stream.max_bytes:
            yield from _stream_room(stream, stream.bytes / stream.max_bytes)
        if stream.lagging:
            yield (
                State.DEGRADED,
                f"stream {stream.name}: {stream.lagging} of {stream.replicas} replicas are "
                "offline or behind",
            )


def _refuses_jobs(stream: StreamFacts) -> bool:
    accepts = stream.accepts_bytes
    return accepts is not None and stream.bytes + _SMALL_JOB_BYTES > accepts


def _no_job_is_accepted(stream: StreamFacts, log: LogFacts | None) -> str:
    text = (
        f"the event log accepts no job: it holds {stream.bytes / 1e6:,.1f} MB, jobs are accepted "
        f"up to {(stream.accepts_bytes or 0) / 1e6:,.1f} MB"
    )
    if log is not None and log.living_bytes is not None:
        text += (
            f"; jobs that have not ended took {log.living_bytes / 1e6:,.1f} MB of it when history "
            "was last shortened"
        )
    return (
        f"{text}. Dispatches fail with StreamFull, wait or go to the outbox (dispatch.when_away). "
        "Let jobs end (more workers) or cancel some, or raise streams.events_max_bytes and restart "
        "the orchestrator, which must run to shorten the log"
    )


def _log(log: LogFacts, *, is_refusing: bool) -> Reasons:
    """Unfinished jobs are the floor below which history cannot be shortened.

    Args:
        is_refusing: no job is accepted now, which is reported already.
    """
    living = log.living_bytes or 0
    share = living / log.limit_bytes
    usage = (
        f"jobs that have not ended take {living / 1e6:,.1f} of {log.limit_bytes / 1e6:,.0f} MB of "
        f"the event log{_about_log(log)}"
    )
    if share >= MUCH_LIVES and not is_refusing:
        state = State.DEGRADED if share >= NEAR else State.WARNING
        yield state, f"{usage}; when they take all of it, no job is accepted"
    if log.uncarried:
        yield (
            State.DEGRADED,
            f"{log.uncarried} too large to be carried past the old end of the event log "
            f"({log.uncarried_bytes / 1e6:,.1f} MB), such as {log.uncarried_name}: their history "
            "stays there, and the log is shortened slowly; let them end, or cancel them",
        )
    growth = log.living_growth_per_hour or 0.0
    hours = max(log.limit_bytes - living, 0) / growth if growth > 0 else FULL_SOON_HOURS
    if hours < FULL_SOON_HOURS and not is_refusing:
        state = State.DEGRADED if hours < FULL_VERY_SOON_HOURS else State.WARNING
        yield state, f"{usage}; they take all of it in {hours:.1f} h if they grow on like this"


def _about_log(log: LogFacts) -> str:
    parts = [f"its history reaches back {log.tail_seconds / 3600:,.1f} h"]
    if log.oldest_living_seconds is not None:
        parts.append(f"the oldest of them is {log.oldest_living_seconds / 3600:,.1f} h old")
    if log.growth_per_hour is not None:
        parts.append(f"{log.growth_per_hour / 1e6:,.0f} MB/h are stored")
    return f" ({', '.join(parts)})"


def _stream_room(stream: StreamFacts, share: float) -> Reasons:
    name = f"stream {stream.name}"
    if stream.full_refuses:
        yield from _room(share, name, State.UNHEALTHY, "what comes then is refused")
    elif share >= ALMOST_FULL:
        yield State.WARNING, f"{name} is full: its oldest messages go before their time"


def _disk(facts: Facts) -> Reasons:
    for disk in facts.disks:
        share = disk.used_bytes / max(disk.total_bytes, 1)
        name = f"the disk with {disk.use} ({disk.path})"
        if share >= facts.disk_warning_share:
            critical = share >= facts.disk_critical_share
            state = State.UNHEALTHY if critical else State.WARNING
            yield state, f"{name} is {share:.0%} full; make room on it"
        yield from _hours_left(disk, name)


def _hours_left(disk: DiskFacts, name: str) -> Reasons:
    growth = disk.growth_per_hour or 0.0
    if growth <= 0:
        return
    hours = (disk.total_bytes - disk.used_bytes) / growth
    if hours < FULL_SOON_HOURS:
        state = State.DEGRADED if hours < FULL_VERY_SOON_HOURS else State.WARNING
        yield state, f"{name} will be full in {hours:.1f} h at {growth / 1e6:,.0f} MB/h"


def _room(share: float, name: str, full: State, then: str) -> Reasons:
    if share >= NEAR:
        state = full if share >= ALMOST_FULL else State.WARNING
        yield state, f"{name} is {share:.0%} full; {then}"


def _queues(facts: Facts) -> Reasons:
    for queue in facts.unserved[:MOST_QUEUES]:
        state = State.WARNING if queue.excluded else State.DEGRADED
        jobs = "1 job" if queue.jobs == 1 else f"{queue.jobs} jobs"
        since = f", the oldest for {queue.oldest_seconds:.0f} s" if queue.oldest_seconds else ""
        yield (
            state,
            f"queue {queue.name}: {jobs}{since}: {queue.why}",
        )
    if further := facts.unserved[MOST_QUEUES:]:
        total = sum(queue.jobs for queue in further)
        yield State.WARNING, f"the same holds for {len(further)} more queues with {total} jobs"


def _sources(facts: Facts) -> Reasons:
    for one in facts.sources:
        here = f"pool {one.pool}: source {one.source}"
        if one.age_seconds is None and one.fault:
            yield State.DEGRADED, f"{here}: {one.fault.rstrip('.')}; it was never measured"
        elif one.age_seconds is None:
            yield State.WARNING, f"{here}: not measured yet; the log of metrics has the reason"
        elif one.fault:
            fault, age = one.fault.rstrip("."), f"{one.age_seconds:.0f} s"
            yield State.DEGRADED, f"{here}: {fault}; its figures are {age} old and lower no plan"
        elif one.stuck:
            yield State.WARNING, f"{here}: {one.stuck} messages that no worker takes"


def _services(facts: Facts) -> Reasons:
    for service in facts.services:
        if service.silent_seconds is None:
            rest = _STANDS_STILL.get(service.name, "")
            ticks = _overdue(facts) if service.name == ORCHESTRATOR else ""
            text = (
                f"service {service.name} runs and has published nothing yet (its log has the "
                "reason if this lasts)"
                if service.runs
                else f"no {service.name} has ever run here"
            )
            yield State.DEGRADED, f"{text}{rest}{ticks}"
        elif service.silent_seconds > service.allowed_seconds:
            rest = _STANDS_STILL.get(service.name, "")
            yield (
                State.DEGRADED,
                f"service {service.name}: no update for {service.silent_seconds:.0f} s{rest}"
                f"{_overdue(facts) if service.name == ORCHESTRATOR else ''}",
            )


def _settings(facts: Facts) -> Reasons:
    for sentence in facts.settings_drift[:MOST_SERVICES]:
        yield State.WARNING, sentence
    if further := facts.settings_drift[MOST_SERVICES:]:
        text = f"{len(further)} more services run with other settings; see 'penstock config diff'"
        yield State.WARNING, text


def _overdue(facts: Facts) -> str:
    count = facts.overdue_ticks
    return f"; {count} {'tick is' if count == 1 else 'ticks are'} overdue" if count else ""


def _schedules(facts: Facts) -> Reasons:
    for text in facts.schedule_drift[:MOST_SCHEDULES]:
        yield State.WARNING, f"{text}; 'penstock schedule sync' stores what is declared"
    if further := facts.schedule_drift[MOST_SCHEDULES:]:
        yield State.WARNING, f"{len(further)} more schedules differ"


def _hooks(facts: Facts) -> Reasons:
    for hook in facts.hooks[:MOST_HOOKS]:
        if hook.failing_since is not None:
            notices = "1 notice is" if hook.waiting == 1 else f"{hook.waiting} notices are"
            text = f"{notices} not delivered, and tried again, since {_when(hook.failing_since)}"
            yield State.DEGRADED, f"hook {hook.name}: {text}: {hook.error}"
        if hook.dropped_at is not None:
            text = f"a notice was dropped at {_when(hook.dropped_at)}, and none delivered since"
            yield State.DEGRADED, f"hook {hook.name}: {text}: {hook.error}"
    if further := facts.hooks[MOST_HOOKS:]:
        yield State.DEGRADED, f"{len(further)} more hooks fail"


def _workflows(facts: Facts) -> Reasons:
    for blocked in facts.blocked[:MOST_FUNCTIONS]:
        count = "1 workflow" if blocked.workflows == 1 else f"{blocked.workflows:,} workflows"
        verb = "is" if blocked.workflows == 1 else "are"
        yield (
            State.DEGRADED,
            f"{count} of {blocked.function} {verb} blocked since {_when(blocked.since)}: no worker "
            "has code that fits; 'penstock workflow ls --state blocked' names them, 'penstock "
            "workflow why ID' the difference",
        )
    if further := facts.blocked[MOST_FUNCTIONS:]:
        yield State.DEGRADED, f"workflows of {len(further)} more functions are blocked"


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _workers(facts: Facts) -> Reasons:
    living = [host for host in facts.hosts if not _lost(host, facts)]
    if facts.pools and not living:
        yield State.UNHEALTHY, "no host has a living executor: nothing runs"
    for host in facts.hosts:
        if _lost(host, facts):
            yield (
                State.DEGRADED,
                f"host {host.name} has been silent for {host.silent_seconds:.0f} s",
            )
            continue
        if host.order:
            yield (
                State.WARNING,
                f"host {host.name} is {host.order}; 'penstock host resume {host.name}' ends that",
            )
        yield from _host_workers(host)
    for hold in facts.holds[:MOST_HOLDS]:
        yield State.WARNING, hold
    if further := facts.holds[MOST_HOLDS:]:
        yield State.WARNING, f"{len(further)} more pools are held; see 'penstock pool ls'"


def _lost(host: HostFacts, facts: Facts) -> bool:
    return host.silent_seconds > facts.lease_seconds


def _host_workers(host: HostFacts) -> Reasons:
    if host.reload_error:
        yield (
            State.DEGRADED,
            f"host {host.name}: its workers have the job code from before a reload, which failed: "
            f"{host.reload_error[:300]}",
        )
    for pool, workers in host.pools.items():
        where = f"pool {pool} on host {host.name}"
        if workers.crash_loop:
            yield (
                State.DEGRADED,
                f"{where}: crash loop, workers end, or are not ready in time, whenever they start; "
                "see the executor's log",
            )
        elif workers.planned and not workers.ready:
            yield State.DEGRADED, f"{where}: {workers.planned} workers planned, none is ready"
        elif workers.ready < workers.planned:
            yield (
                State.WARNING,
                f"{where}: {workers.ready} of {workers.planned} planned workers are ready",
            )
    if host.memory_share is not None:
        yield from _room(host.memory_share, f"memory of host {host.name}", State.DEGRADED, "")


def _spark(facts: Facts) -> Reasons:
    if facts.remote_spark:
        yield State.DEGRADED, facts.remote_spark
    for host in facts.hosts:
        if host.spark == "down":
            yield (
                State.DEGRADED,
                f"host {host.name}: the Spark supervisor does not run; see its log",
            )


def _clock(facts: Facts) -> Reasons:
    clocks = [("this machine", facts.skew_seconds)]
    clocks += [(f"host {host.name}", host.skew_seconds) for host in facts.hosts]
    for name, skew in clocks:
        if skew is not None and abs(skew) > SKEW_SECONDS:
            state = State.DEGRADED if abs(skew) > BAD_SKEW_SECONDS else State.WARNING
            way = "before" if skew > 0 else "behind"
            yield state, f"the clock of {name} is {abs(skew):.1f} s {way} the broker's"
