"""Who may do what on the broker: one user a role, with what it needs and no more.

JetStream's API is plain subjects, so a permission to publish is also one to ask. What stands in the
body of a request NATS does not look at: whoever may purge part of a stream may purge all of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.bus.nkeys import inbox
from penstock.events.subjects import Subjects

STREAMS = ("JOBS", "EVENTS", "SNAPSHOTS", "COMMANDS", "DEAD", "CHECKPOINTS", "STATE", "KEYS")


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects are relative to the prefix of the installation, streams are named as in the design.

    Attributes:
        publishes / listens: subjects. reads: streams that it reads and follows.
        purges: streams from which it removes messages. claims: takes jobs from queues.
        makes_queues: makes the consumers of queues. counts_queues: asks how long they are.
        pauses: stops and resumes queues. makes_streams: creates the streams.
        surveys: sees all streams and the account.
    """

    about: str
    publishes: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    purges: tuple[str, ...] = ()
    claims: bool = False
    makes_queues: bool = False
    counts_queues: bool = False
    pauses: bool = False
    makes_streams: bool = False
    surveys: bool = False


_DISPATCHES = (
    *(f"events.{noun}.*.*" for noun in ("job", "batch", "graph")),
    "jobs.*",
    "schedules.*.*",
    "keys.*.*",
    "notices.cancel.*",
)

_AWAITS = ("events.job.>", "events.batch.>", "events.graph.>")

ROLES: dict[str, Role] = {
    "metrics": Role(
        about="measures",
        publishes=("snapshots.pool.*",),
        listens=("beats.worker.>", "jobs.*"),
        reads=("JOBS", "EVENTS", "SNAPSHOTS", "STATE"),
        makes_queues=True,
        counts_queues=True,
    ),
    "decider": Role(
        about="decides and commands",
        publishes=(
            "commands.*",
            "state.lease.decider",
            "snapshots.round.*",
            "snapshots.settings.*",
            *(f"events.{noun}.*.*" for noun in ("pool", "hosts", "host", "decider")),
        ),
        reads=("SNAPSHOTS", "COMMANDS", "EVENTS", "STATE"),
        purges=("COMMANDS",),  # of hosts that are gone
    ),
    "executor": Role(
        about="starts and ends workers, gives back what they held",
        publishes=(
            "snapshots.host.*",
            *(f"events.{noun}.*.*" for noun in ("worker", "host", "job")),
            "jobs.*",
            "schedules.*.*",
            "dead.*.*",
            "notices.cancel.*",
            "notices.recovered.*",
        ),
        listens=("beats.worker.>", "notices.recover.*"),
        reads=("COMMANDS", "EVENTS", "CHECKPOINTS", "STATE", "SNAPSHOTS"),
        claims=True,
    ),
    "worker": Role(
        about="runs jobs, which may dispatch others",
        publishes=(
            *_DISPATCHES,
            "beats.worker.>",
            "dead.*.*",
            "checkpoints.*",
            "state.exclusive.*",
        ),
        listens=("notices.cancel.*", "state.pause.*", *_AWAITS),
        reads=("JOBS", "EVENTS", "CHECKPOINTS", "STATE", "KEYS", "DEAD"),
        purges=("JOBS", "CHECKPOINTS"),
        claims=True,
        makes_queues=True,
    ),
    "orchestrator": Role(
        about="heals, keeps schedules, batches and graphs; makes the streams",
        publishes=(
            *_DISPATCHES,
            "dead.*.*",
            "checkpoints.*",
            *(f"events.{noun}.*.*" for noun in ("queue", "health")),
            *(
                f"state.{kind}.*"
                for kind in ("cursor", "batch", "graph", "health", "schedule", "pause")
            ),
        ),
        listens=_AWAITS,
        reads=STREAMS,
        purges=("JOBS", "DEAD", "STATE", "CHECKPOINTS", "EVENTS"),
        makes_queues=True,
        counts_queues=True,
        pauses=True,
        makes_streams=True,
        surveys=True,
    ),
    "pipeline": Role(
        about="keeps the lake, and tells what it forecasts",
        publishes=("events.pool.*.ForecastMade",),
        reads=("EVENTS", "SNAPSHOTS"),
    ),
    "dispatcher": Role(
        about="an application that dispatches jobs and waits for results",
        publishes=_DISPATCHES,
        listens=_AWAITS,
        reads=("EVENTS", "KEYS", "CHECKPOINTS"),
        purges=("JOBS",),
        makes_queues=True,
    ),
    "operator": Role(
        about="a person with the command line",
        publishes=(
            *_DISPATCHES,
            "dead.*.*",
            "events.queue.*.*",
            "state.pause.*",
            "state.schedule.*",
            "state.health.probe",
            "notices.recover.*",
        ),
        listens=("events.>", "beats.worker.>", "notices.recovered.*"),
        reads=STREAMS,
        purges=("JOBS", "DEAD", "STATE"),
        makes_queues=True,
        counts_queues=True,
        pauses=True,
        surveys=True,
    ),
    "subscriber": Role(
        about="reads events, nothing else", listens=("events.>",), reads=("EVENTS",)
    ),
}


def permissions(role: Role, public_key: str, subjects: Subjects) -> dict[str, dict[str, list[str]]]:
    """What nats-server's configuration takes as the ``permissions`` of a user.

    Args:
        public_key: the user's; it names the inbox that only this user hears.
    """
    allowed = [f"{subjects.prefix}.{each}" for each in role.publishes]
    heard = [f"{subjects.prefix}.{each}" for each in role.listens]
    asked = [f"$JS.API.{each}" for each in _verbs(role, subjects)]
    claims = [f"$JS.ACK.{subjects.jobs_stream}.>"] if role.claims else []
    return {
        "publish": {"allow": [*allowed, *asked, *claims]},
        "subscribe": {"allow": [f"{inbox(public_key)}.>", *heard]},
    }


def _verbs(role: Role, subjects: Subjects) -> Iterable[str]:
    """Parts of the JetStream API, without ``$JS.API.``."""
    jobs = subjects.jobs_stream
    for name in STREAMS:
        yield f"STREAM.INFO.{subjects.stream(name)}"
    for stream in map(subjects.stream, role.reads):
        yield f"STREAM.MSG.GET.{stream}"
        yield f"DIRECT.GET.{stream}"
        if stream != jobs:  # a follower of it would be a second taker of jobs
            yield f"CONSUMER.CREATE.{stream}.*"
            yield f"CONSUMER.MSG.NEXT.{stream}.*"
    for name in role.purges:
        yield f"STREAM.PURGE.{subjects.stream(name)}"
    if role.claims:
        yield f"CONSUMER.MSG.NEXT.{jobs}.*"
    if role.makes_queues:
        yield f"CONSUMER.DURABLE.CREATE.{jobs}.*"
    if role.counts_queues:
        yield f"CONSUMER.LIST.{jobs}"
    if role.pauses:
        yield from (f"CONSUMER.{verb}.{jobs}.*" for verb in ("PAUSE", "INFO"))
    if role.makes_streams:
        yield from (f"STREAM.CREATE.{subjects.stream(name)}" for name in STREAMS)
        yield from (f"STREAM.UPDATE.{subjects.stream(name)}" for name in ("EVENTS", "CHECKPOINTS"))
    if role.surveys:
        yield from ("INFO", "STREAM.LIST")
