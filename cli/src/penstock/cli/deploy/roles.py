"""The permissions of each role on the broker: what it needs, and no more.

JetStream's API is plain subjects, so a permission to publish is also one to send requests. NATS
does not check the body of a request: a role that may purge part of a stream may purge all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.cli.deploy.event_groups import (
    ASKED,
    CARRIED,
    GROUPS,
    JUDGED,
    NOUNS,
    RECORDED,
    RECOVERED,
    RETRIED,
    Group,
    subject,
)

STREAMS = (
    "JOBS",
    "EVENTS",
    "SNAPSHOTS",
    "COMMANDS",
    "DEAD",
    "CHECKPOINTS",
    "STATE",
    "KEYS",
    "LOGS",
    "CONSOLE",
)


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions: subjects without the installation's prefix, streams by their short names.

    Attributes:
        about: the role's work, in a few words.
        publishes: subjects that it publishes to.
        listens: subjects that it subscribes to.
        reads: streams that it reads, and follows by reading on.
        follows: streams that it follows by consumers of its own. The broker bounds how many a
            stream has, so only services have them: a reader could keep them all to itself.
        purges: streams from which it removes messages.
        claims: takes jobs from queues.
        deletes: streams from which it deletes single messages.
        answers: acknowledges jobs that were claimed.
        makes_queues: makes the consumers of queues: one role alone, since a consumer decides who
            gets which jobs.
        counts_queues: reads how many jobs queues hold.
        pauses: stops and resumes queues.
        makes_streams: creates and updates the streams.
        stores: groups of events of jobs, batches, graphs and inboxes that it stores.
        surveys: reads the state of all streams and of the account.
        queues: queues that it claims jobs from.
        connections: how many all holders of a key have together at most; None for any number.
    """

    about: str
    publishes: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    purges: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    claims: bool = False
    answers: bool = False
    makes_queues: bool = False
    counts_queues: bool = False
    pauses: bool = False
    stores: tuple[Group, ...] = ()
    makes_streams: bool = False
    surveys: bool = False
    queues: tuple[str, ...] = ("*",)
    connections: int | None = None

    @property
    def denied(self) -> tuple[str, ...]:
        """Subjects among ``publishes`` that it may not publish to."""
        nouns = [noun for noun in NOUNS if f"events.{noun}.*.*" in self.publishes]
        others = [event for group in GROUPS if group not in self.stores for event in group]
        return tuple(subject(event) for event in others if event.noun in nouns)


_DISPATCHES = (
    *(f"events.{noun}.*.*" for noun in ("job", "batch", "graph")),
    "jobs.*",
    "schedules.*.*",
    "keys.*.*",
    "notices.cancel.*",
)

_SIGNALS = "events.workflow.*.SignalReceived"

_AWAITS = ("events.job.>", "events.batch.>", "events.graph.>")

_RELOAD = "notices.settings.reload"

_OPERATES = (
    *_DISPATCHES,
    _SIGNALS,
    "dead.*.*",
    "events.queue.*.*",
    "state.pause.*",
    "state.schedule.*",
    "state.definition.*",
    "state.hold.*",
    "state.host.*",
    *(f"events.pool.*.{event}" for event in ("PoolHeld", "PoolReleased")),
    *(f"events.host.*.{event}" for event in ("HostPaused", "HostDrained", "HostResumed")),
    "notices.recover.*",
    "notices.reload.*",
    "notices.drain.*",
    "notices.queue.*",
    _RELOAD,
)
"""What people order, by the command line or by the console."""

ROLES: dict[str, Role] = {
    "metrics": Role(
        about="measures",
        publishes=("snapshots.pool.*", "notices.queue.*", "state.settings.*"),
        listens=("beats.worker.>", "beats.stream.*", "jobs.*", _RELOAD),
        reads=("JOBS", "EVENTS", "SNAPSHOTS", "STATE"),
        follows=("EVENTS", "SNAPSHOTS"),
        counts_queues=True,
    ),
    "decider": Role(
        about="decides and commands",
        publishes=(
            "commands.*",
            "state.lease.decider",
            "state.settings.*",
            "snapshots.round.*",
            "snapshots.settings.*",
            *(f"events.{noun}.*.*" for noun in ("pool", "hosts", "host", "decider")),
        ),
        listens=(_RELOAD,),
        reads=("SNAPSHOTS", "COMMANDS", "EVENTS", "STATE"),
        follows=("SNAPSHOTS", "STATE"),
        purges=("COMMANDS",),  # of hosts that were lost
    ),
    "executor": Role(
        about="starts and ends workers, gives back their jobs",
        publishes=(
            "snapshots.host.*",
            *(f"events.{noun}.*.*" for noun in ("worker", "host", "job")),
            "jobs.*",
            "schedules.*.*",
            "dead.*.*",
            "notices.cancel.*",
            "notices.recovered.*",
            "notices.reloaded.*",
            "notices.drained.*",
            "state.settings.*",
        ),
        listens=(
            "beats.worker.>",
            "notices.recover.*",
            "notices.reload.*",
            "notices.drain.*",
            _RELOAD,
        ),
        reads=("COMMANDS", "EVENTS", "CHECKPOINTS", "STATE", "SNAPSHOTS"),
        follows=("COMMANDS",),
        answers=True,
        stores=(RECOVERED,),
    ),
    "worker": Role(
        about="runs jobs, which may dispatch others",
        publishes=(
            *_DISPATCHES,
            _SIGNALS,
            "beats.worker.>",
            "beats.stream.*",
            "dead.*.*",
            "checkpoints.*",
            "state.exclusive.*",
            "notices.queue.*",
            "logs.*",
        ),
        listens=("notices.cancel.*", "state.pause.*", *_AWAITS),
        reads=("JOBS", "EVENTS", "CHECKPOINTS", "STATE", "KEYS", "DEAD", "SNAPSHOTS"),
        purges=("CHECKPOINTS",),
        claims=True,
        answers=True,
        stores=(ASKED, RECORDED, RECOVERED),
    ),
    "scaler": Role(
        about="answers KEDA with what pools in advisor mode need",
        publishes=("state.settings.*",),
        listens=(_RELOAD,),
        reads=("EVENTS", "STATE"),
        follows=("EVENTS",),
        connections=8,
    ),
    "orchestrator": Role(
        about="reconciles, keeps schedules, batches and graphs; makes the streams",
        publishes=(
            *_DISPATCHES,
            "dead.*.*",
            "checkpoints.*",
            *(f"events.{noun}.*.*" for noun in ("queue", "health")),
            "events.workflow.*.InboxCarried",
            *(
                f"state.{kind}.*"
                for kind in (
                    *("cursor", "batch", "graph", "suspended"),
                    *("health", "schedule", "pause", "settings"),
                )
            ),
        ),
        listens=(*_AWAITS, "notices.queue.*", _RELOAD),
        reads=tuple(name for name in STREAMS if name != "CONSOLE"),
        follows=("EVENTS", "STATE"),
        purges=("JOBS", "DEAD", "STATE", "CHECKPOINTS", "EVENTS"),
        deletes=("JOBS",),
        stores=(ASKED, RECORDED, RECOVERED, JUDGED, CARRIED, RETRIED),
        makes_queues=True,
        counts_queues=True,
        pauses=True,
        makes_streams=True,
        surveys=True,
    ),
    "pipeline": Role(
        about="keeps the lake, and publishes forecasts",
        publishes=("events.pool.*.ForecastMade",),
        reads=("EVENTS", "SNAPSHOTS"),
        follows=("EVENTS", "SNAPSHOTS"),
        connections=256,  # one for each task of Spark that reads
    ),
    "dispatcher": Role(
        about="an application that dispatches jobs and waits for results",
        publishes=(*_DISPATCHES, _SIGNALS),
        listens=_AWAITS,
        stores=(ASKED,),
        # of JOBS why a job was handed on: the calls in it are in EVENTS, too
        reads=("EVENTS", "KEYS", "CHECKPOINTS", "DEAD", "JOBS"),
    ),
    "operator": Role(
        about="a person with the command line",
        publishes=(
            *_OPERATES,
            "state.health.probe",
            *(f"console.{noun}.*.*" for noun in ("token", "account", "audit", "mute")),
        ),
        listens=(
            "events.>",
            "beats.worker.>",
            "notices.recovered.*",
            "notices.reloaded.*",
            "notices.drained.*",
        ),
        reads=STREAMS,
        purges=("DEAD", "STATE"),
        deletes=("JOBS",),  # messages of jobs that it cancelled or moved; others are made again
        stores=(ASKED, RETRIED),
        counts_queues=True,
        pauses=True,
        surveys=True,
    ),
    "console": Role(
        about="web pages and an API, on which people act",
        publishes=(
            *_OPERATES,
            "console.*.*.*",
            *(f"state.{kind}.*" for kind in ("settings", "console", "alert", "bulk")),
        ),
        listens=(
            "events.>",
            "beats.worker.>",
            "notices.recovered.*",
            "notices.reloaded.*",
            "notices.drained.*",
            _RELOAD,
        ),
        reads=STREAMS,
        follows=("EVENTS", "SNAPSHOTS", "STATE", "CONSOLE"),
        purges=("DEAD", "STATE"),
        deletes=("JOBS",),
        stores=(ASKED, RETRIED),
        counts_queues=True,
        pauses=True,
        surveys=True,
    ),
    "console-reader": Role(
        about="shows what happens, and changes nothing; keeps the audit log",
        publishes=("state.settings.*", "console.audit.*.*"),
        listens=("beats.worker.>", _RELOAD),
        reads=("EVENTS", "SNAPSHOTS", "STATE", "LOGS", "CONSOLE"),
        follows=("EVENTS", "SNAPSHOTS", "STATE", "CONSOLE"),
        connections=8,
    ),
    "stream-reporter": Role(
        about="an application that reports the progress of its streaming queries",
        publishes=("beats.stream.*",),
    ),
    "subscriber": Role(
        about="reads events, nothing else",
        listens=("events.>",),
        reads=("EVENTS",),
        connections=32,
    ),
}


def bound(role: Role, host: str, queues: Sequence[str]) -> Role:
    """The role on one host and for some queues alone, as far as subjects carry either.

    Args:
        role: unbound.
        host: name of the host; empty for any.
        queues: names of queues; none for any.
    """
    pairs: dict[str, tuple[str, ...]] = {}
    if host:
        pairs |= {
            "snapshots.host.*": (f"snapshots.host.{host}",),
            "events.host.*.*": (f"events.host.{host}.*",),
            "beats.worker.>": (f"beats.worker.{host}.>",),
        }
    if queues:
        pairs |= {
            "jobs.*": tuple(f"jobs.{queue}" for queue in queues),
            "schedules.*.*": tuple(f"schedules.{queue}.*" for queue in queues),
            "dead.*.*": tuple(f"dead.{queue}.*" for queue in queues),
        }
    requests = ("notices.recover", "notices.reload", "notices.drain") if host else ()
    listened = {**pairs, **{f"{request}.*": (f"{request}.{host}",) for request in requests}}
    return msgspec.structs.replace(
        role,
        publishes=tuple(s for one in role.publishes for s in pairs.get(one, (one,))),
        listens=tuple(s for one in role.listens for s in listened.get(one, (one,))),
        queues=tuple(queues) or role.queues,
    )
