"""The streams an installation keeps, declared once, made where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.bus.protocol import QueueDepth
from penstock.config import Settings
from penstock.events.subjects import Subjects

PAUSED_FOR_GOOD = "2200-01-01T00:00:00Z"
"""End of a pause that lasts until the queue is resumed: the broker knows none without an end."""
MAX_QUEUES = 100_000
"""One consumer a queue; 1,000 idle ones take the broker 33 MB."""
_UPDATED: dict[str, Any] = {
    "compression": "none",
    "consumer_limits": {},
    "discard": "old",
    "max_age": 0,
    "max_bytes": -1,
    "max_consumers": -1,
    "max_msg_size": -1,
    "metadata": {},
}
"""Settings that a stream takes over when they change, with what the broker leaves out."""
CONFIGURED_BYTES = "penstock-configured-bytes"
"""Metadata of a stream that may hold more than the settings say, for a while: what they say. It is
there only then, since an orchestrator of an earlier version changes the bound and not this."""
_DAY_NS = 86_400 * 1_000_000_000
_CHECKPOINT_DAYS = 400
_LEAST_RESERVE_BYTES = 4_000_000
_LARGEST_BYTES = 1_000_000
"""Of a command or a unique key, which hold a few hundred bytes; NATS' own default for all."""
MAX_HOSTS = 10_000
"""Each executor follows the commands."""
CONSUMER_IDLE_SECONDS = 120
"""The broker drops a follower's consumer that has not asked for so long, also one that was to be
kept for ever: else what a revoked key had made would use up the stream's thousand for good. A
follower that was away for longer makes a new one."""
_HOUR_NS = 3_600 * 1_000_000_000


def events_reserve(max_bytes: int) -> int:
    """What the event log may hold beyond its history's limit: for ends of jobs, and for carrying.

    Args:
        max_bytes: ``streams.events_max_bytes``.
    """
    return max(max_bytes // 4, _LEAST_RESERVE_BYTES)


def least_reserve(whole_bytes: int) -> int:
    """The reserve of a stream, given all that it may hold: limit and reserve."""
    return max(whole_bytes // 5, _LEAST_RESERVE_BYTES)


def dispatch_limit(whole_bytes: int) -> int:
    """The size of the log above which no job is accepted: half of the reserve is left then.

    ``streams.events_max_bytes + reserve / 2``, where the reserve is a quarter of
    ``streams.events_max_bytes``, 4 MB at least.

    Args:
        whole_bytes: of the stream by the settings (:func:`configured_bytes`), reserve included.
    """
    return whole_bytes - least_reserve(whole_bytes) // 2


def configured_bytes(config: Mapping[str, Any]) -> int:
    """What a stream may hold by the settings, also while its bound is wider; 0 for no bound.

    Args:
        config: the stream's, as the broker returns it.
    """
    max_bytes = max(int(config.get("max_bytes", 0)), 0)
    configured = (config.get("metadata") or {}).get(CONFIGURED_BYTES, "")
    return min(max_bytes, int(configured)) if configured.isdecimal() else max_bytes


def streams(settings: Settings, subjects: Subjects, extra_bytes: int = 0) -> list[dict[str, Any]]:
    """Configurations as the JetStream API takes them (durations in nanoseconds).

    Args:
        extra_bytes: what the event log may hold beyond its bound.
    """
    bound = settings.streams.others_max_bytes
    return [_bounded(stream, bound) for stream in _streams(settings, subjects, extra_bytes)]


def names(settings: Settings, subjects: Subjects) -> tuple[str, ...]:
    """The names of all streams and the prefixes of their subjects."""
    made = _streams(settings, subjects, 0)
    patterns = [pattern for stream in made for pattern in stream["subjects"]]
    return (*(s["name"] for s in made), *(p.partition("*")[0] for p in patterns))


def _bounded(stream: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """A full stream refuses new messages, so as not to lose stored ones: only history ages."""
    # nats-server (2.15.1) refuses "discard new" for a stream with schedules, which the jobs' is.
    if "max_bytes" in stream or "allow_msg_schedules" in stream or not max_bytes:
        return stream
    ages = stream["name"].endswith("SNAPSHOTS")
    return {**stream, "max_bytes": max_bytes, "discard": "old" if ages else "new"}


def _streams(settings: Settings, subjects: Subjects, extra_bytes: int) -> list[dict[str, Any]]:
    prefix, keep = subjects.prefix, settings.streams
    log_bytes = keep.events_max_bytes + events_reserve(keep.events_max_bytes)
    logs = {
        "name": subjects.logs_stream,
        "subjects": [f"{prefix}.logs.*"],
        "max_age": int(settings.logs.max_age_hours * _HOUR_NS),
        "max_bytes": settings.logs.max_bytes,
        "max_msg_size": _LARGEST_BYTES,
        "compression": keep.compression,
    }
    return [
        {
            "name": subjects.jobs_stream,
            # schedules live beside the queues they fire into; no consumer filter covers them
            "subjects": [f"{prefix}.jobs.*", f"{prefix}.schedules.*.*"],
            "retention": "workqueue",
            "allow_msg_schedules": True,
            "max_consumers": MAX_QUEUES,  # the server's own default stops below 1,000
            "allow_msg_ttl": True,
        },
        {
            "name": subjects.snapshots_stream,
            "subjects": [f"{prefix}.snapshots.*.*"],
            "max_age": int(keep.snapshots_max_age_hours * _HOUR_NS),
            "compression": keep.compression,
        },
        {
            "name": subjects.commands_stream,
            "subjects": [f"{prefix}.commands.*"],
            "max_msgs_per_subject": 1,
            "max_consumers": MAX_HOSTS,
            "max_msg_size": _LARGEST_BYTES,
        },
        {
            "name": subjects.dead_stream,
            "subjects": [f"{prefix}.dead.*.*"],
            "max_msgs_per_subject": 1,
            "max_age": int(keep.dead_max_age_days * _DAY_NS),
        },
        {
            "name": subjects.checkpoints_stream,
            "subjects": [f"{prefix}.checkpoints.*"],
            "max_msgs_per_subject": 1,
            # Those of completed jobs are removed then. A job that lives may be delayed by a year.
            "max_age": _CHECKPOINT_DAYS * _DAY_NS,
        },
        {
            "name": subjects.state_stream,
            "subjects": [f"{prefix}.state.*.*"],
            "max_msgs_per_subject": 1,
        },
        {
            "name": subjects.keys_stream,
            "subjects": [f"{prefix}.keys.*.*"],
            "max_msgs_per_subject": 1,
            "max_msg_size": _LARGEST_BYTES,
            "allow_msg_ttl": True,
        },
        *([logs] if settings.logs.enabled else []),
        {
            "name": subjects.console_stream,
            "subjects": [f"{prefix}.console.*.*.*"],
            # No key removes an entry of the audit log: what ages carries a time to live.
            "deny_delete": True,
            "deny_purge": True,
            "allow_msg_ttl": True,
            "max_msg_size": _LARGEST_BYTES,
        },
        {  # the last: where it is there, the others are
            "name": subjects.events_stream,
            "subjects": [f"{prefix}.events.*.*.*"],
            # The broker discards nothing: the orchestrator does, and carries what lives.
            "discard": "new",
            "max_bytes": log_bytes + extra_bytes,
            **({"metadata": {CONFIGURED_BYTES: str(log_bytes)}} if extra_bytes else {}),
            "allow_atomic": True,
            "compression": keep.compression,
        },
    ]


def complete(stream: dict[str, Any], replicas: int) -> dict[str, Any]:
    """A stream's configuration with the fields that all streams share."""
    common = {
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": replicas,
        "allow_direct": True,
        "duplicate_window": 120 * 1_000_000_000,
    }
    if stream.get("retention") != "workqueue":  # the consumers of queues stay
        common["consumer_limits"] = {"inactive_threshold": CONSUMER_IDLE_SECONDS * 1_000_000_000}
    return {**common, **stream}


def changes(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], held_bytes: int = 0
) -> dict[str, Any]:
    """The fields of an existing stream that changed in the settings.

    Args:
        stored: its configuration, as the broker returns it.
        wanted: the one of the settings.
        held_bytes: what it holds; a bound below that would have the broker refuse everything.
    """
    settings = {key: wanted.get(key, default) for key, default in _UPDATED.items()}
    least = held_bytes + _LEAST_RESERVE_BYTES // 4
    if settings["discard"] == "new" and settings["max_bytes"] < least:  # lowered later
        settings["max_bytes"] = max(stored.get("max_bytes", 0), settings["max_bytes"])
    metadata = stored.get("metadata") or {}
    others = {key: value for key, value in metadata.items() if key != CONFIGURED_BYTES}
    configured = configured_bytes(wanted)
    is_wider = settings["max_bytes"] > configured > 0
    mark = {CONFIGURED_BYTES: str(configured)} if is_wider else {}
    settings["metadata"] = {**others, **mark}
    return {
        key: value for key, value in settings.items() if stored.get(key, _UPDATED[key]) != value
    }


def consumer(subjects: Subjects, queue: str, claim_seconds: float) -> dict[str, Any]:
    """The one durable consumer of a queue (consumers of a work queue must not overlap)."""
    return {
        "name": subjects.consumer(queue),
        "durable_name": subjects.consumer(queue),
        "filter_subject": subjects.queue(queue),
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": int(claim_seconds * 1_000_000_000),
        "max_deliver": -1,
        # The defaults (1,000 and 512) stall a busy queue and refuse idle workers.
        "max_ack_pending": 100_000,
        "max_waiting": 8_192,
    }


def is_idle(info: dict[str, Any]) -> bool:
    """Whether no worker waits at a queue's consumer, none holds its jobs, and it is not paused."""
    in_use = info.get("num_waiting") or info["num_ack_pending"] or info.get("paused")
    return info["name"].startswith("q_") and not in_use


def depth(info: dict[str, Any]) -> QueueDepth:
    """A queue by the description of its consumer."""
    return QueueDepth(
        queue=info["name"].removeprefix("q_"),
        waiting=info["num_pending"],
        claimed=info["num_ack_pending"],
        delivered=info["delivered"]["consumer_seq"],
        delivered_sequence=info["delivered"]["stream_seq"],
        redelivered=info.get("num_redelivered", 0),
        paused=info.get("paused") or False,
        paused_until=_pause_end(info) if info.get("paused") else None,
    )


def _pause_end(info: dict[str, Any]) -> datetime | None:
    end = info["config"].get("pause_until")
    return datetime.fromisoformat(end) if end and end != PAUSED_FOR_GOOD else None
