"""Every subject and stream name, declared once; a prefix lets installations share a server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.events.envelope import Event

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_MAX_LENGTH = 64
_MAX_LENGTHS = {"job": 128, "workflow": 128, "batch": 128}
"""Ids of what belongs to a workflow begin with that of the workflow, and grow with it."""


class BadName(ValueError):
    """A queue, pool or host name that cannot be a subject token."""


def check_name(kind: str, name: str) -> str:
    """``name`` if it may stand in a subject.

    Raises:
        BadName: says what was found and what is allowed.
    """
    longest = _MAX_LENGTHS.get(kind, _MAX_LENGTH)
    if len(name) > longest or not _TOKEN.fullmatch(name):
        raise BadName(
            f"{kind} name {name[:80]!r} is not allowed: use 1 to {longest} letters, digits, '-' "
            "or '_'"
        )
    return name


@dataclass(frozen=True)
class Subjects:
    """Names below one prefix."""

    prefix: str = "penstock"

    # --- streams -------------------------------------------------------------------------------
    def stream(self, name: str) -> str:
        """Name of a stream (``JOBS``, ``EVENTS``, …); the default prefix adds nothing to it."""
        return name if self.prefix == "penstock" else f"{self.prefix}_{name}"

    @property
    def jobs_stream(self) -> str:
        return self.stream("JOBS")

    @property
    def events_stream(self) -> str:
        return self.stream("EVENTS")

    @property
    def snapshots_stream(self) -> str:
        return self.stream("SNAPSHOTS")

    @property
    def commands_stream(self) -> str:
        return self.stream("COMMANDS")

    @property
    def dead_stream(self) -> str:
        return self.stream("DEAD")

    @property
    def state_stream(self) -> str:
        """Small mutable state with compare-and-set: leases, pauses, cursors."""
        return self.stream("STATE")

    @property
    def keys_stream(self) -> str:
        """State of keys that come and go, with compare-and-set: rate limits, places, unique jobs.

        A record goes by itself when its time to live has passed.
        """
        return self.stream("KEYS")

    @property
    def checkpoints_stream(self) -> str:
        """How far jobs are that go on elsewhere."""
        return self.stream("CHECKPOINTS")

    @property
    def logs_stream(self) -> str:
        """What jobs wrote; the broker discards the oldest."""
        return self.stream("LOGS")

    @property
    def console_stream(self) -> str:
        """The console's accounts, tokens, sessions and audit log; no key may remove from it."""
        return self.stream("CONSOLE")

    # --- jobs ----------------------------------------------------------------------------------
    def queue(self, queue: str) -> str:
        return f"{self.prefix}.jobs.{queue}"

    def schedule(self, queue: str, job_id: str) -> str:
        return f"{self.prefix}.schedules.{queue}.{job_id}"

    def dead(self, queue: str, job_id: str) -> str:
        return f"{self.prefix}.dead.{queue}.{job_id}"

    def checkpoint(self, job_id: str) -> str:
        return f"{self.prefix}.checkpoints.{job_id}"

    def log_lines(self, job_id: str) -> str:
        return f"{self.prefix}.logs.{job_id}"

    def job(self, job_id: str) -> str:
        """All events of one job: what a transition's compare-and-set looks at."""
        return f"{self.prefix}.events.job.{job_id}.>"

    def consumer(self, queue: str) -> str:
        """Durable name of a queue's one consumer."""
        return f"q_{queue}"

    # --- events --------------------------------------------------------------------------------
    def event(self, event: Event) -> str:
        return f"{self.prefix}.events.{event.noun}.{event.key}.{event.name}"

    def events(self, noun: str = "*", key: str = "*", name: str = "*") -> str:
        return f"{self.prefix}.events.{noun}.{key}.{name}"

    def console(self, noun: str = "*", key: str = "*", name: str = "*") -> str:
        """Of the console's own events."""
        return f"{self.prefix}.console.{noun}.{key}.{name}"

    def console_event(self, event: Event) -> str:
        return self.console(event.noun, event.key, event.name)

    def pool_snapshot(self, pool: str) -> str:
        return f"{self.prefix}.snapshots.pool.{pool}"

    def host_snapshot(self, host: str) -> str:
        return f"{self.prefix}.snapshots.host.{host}"

    def round(self, name: str) -> str:
        """What is kept of rounds, beside the snapshots: ``RoundDecided``, ``CheckpointTaken``."""
        return f"{self.prefix}.snapshots.round.{name}"

    def adopted_settings(self, fingerprint: str = "*", part: int = 0) -> str:
        name = f"{fingerprint}-{part}" if part else fingerprint
        return f"{self.prefix}.snapshots.settings.{name}"

    @property
    def snapshots(self) -> str:
        """All that the stream of snapshots holds."""
        return f"{self.prefix}.snapshots.*.*"

    def command(self, host: str) -> str:
        return f"{self.prefix}.commands.{host}"

    def state(self, kind: str, name: str) -> str:
        return f"{self.prefix}.state.{kind}.{name}"

    def key(self, kind: str, token: str) -> str:
        return f"{self.prefix}.keys.{kind}.{token}"

    # --- plain subjects: lossy by nature, always backed by state that can be read again ---------
    def worker_report(self, host: str, worker: str) -> str:
        return f"{self.prefix}.beats.worker.{host}.{worker}"

    def stream_report(self, query: str) -> str:
        return f"{self.prefix}.beats.stream.{query}"

    def queue_wanted(self, queue: str) -> str:
        """Asks the orchestrator to make a queue's consumer."""
        return f"{self.prefix}.notices.queue.{queue}"

    def settings_reload(self) -> str:
        """Asks every service to read its settings anew."""
        return f"{self.prefix}.notices.settings.reload"

    def recover_asked(self, host: str) -> str:
        """Asks a host's executor about stuck jobs."""
        return f"{self.prefix}.notices.recover.{host}"

    def recover_answered(self, token: str) -> str:
        return f"{self.prefix}.notices.recovered.{token}"

    def drain_asked(self, host: str) -> str:
        """Asks a host's executor to drain a worker."""
        return f"{self.prefix}.notices.drain.{host}"

    def drain_answered(self, token: str) -> str:
        return f"{self.prefix}.notices.drained.{token}"

    def reload_requested(self, host: str) -> str:
        """Asks a host's executor to reload the job code."""
        return f"{self.prefix}.notices.reload.{host}"

    def reload_reported(self, token: str) -> str:
        return f"{self.prefix}.notices.reloaded.{token}"

    def cancel_notice(self, job_id: str) -> str:
        """Notifies a worker at once that its job was cancelled; the event itself decides."""
        return f"{self.prefix}.notices.cancel.{job_id}"
