"""The encoded call: what travels in the queue, and everything needed to run it again."""

from __future__ import annotations

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Int64
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff

UNLIMITED = 0.0
"""No limit, where it is this very object: msgspec leaves out a default that is identical to it, and
writes an equal one out (20 bytes a field, which queue and event log both store)."""


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="penstock.job.1"):
    """One call of a registered function. MessagePack with a schema tag; never pickle.

    Attributes:
        arguments: MessagePack map, checked against the function's signature at both ends.
        tries: attempts allowed; 0 leaves it to the pool.
        timeout_seconds: per attempt; 0 leaves it to the pool.
        dispatched_at: POSIX seconds.
        expires_at: not started after, POSIX seconds; 0 is never.
        handed: further arguments, which became known only when the job was due: an earlier job's
            result, the outcome of a batch.
        masked: names of fields that are never shown.
        step: name of the step of a graph or workflow that the job is.
        workflow: name of that graph or workflow: its title, definition or function.
        kind: ``workflow`` for a coded one.
        version: of its code, as it was called; 0 where that is not known.
        workflow_timeout_seconds: of a workflow from its first advance to its end; 0 leaves it to
            the function.

    Arguments, and what was handed on, may be sealed; see `penstock.jobs.payloads.encryption`.
    """

    id: str
    function: str
    queue: str
    arguments: msgspec.Raw
    dispatched_at: float
    tries: Int64 = 0
    timeout_seconds: float = UNLIMITED
    backoff: Backoff = DEFAULT_BACKOFF
    tags: tuple[str, ...] = ()
    expires_at: float = UNLIMITED
    handed: dict[str, msgspec.Raw] | None = None
    masked: tuple[str, ...] = ()
    step: str = ""
    workflow: str = ""
    kind: str = ""
    version: Int64 = 0
    workflow_timeout_seconds: float = UNLIMITED

    __repr__ = brief
    __rich_repr__ = brief_fields

    def all_arguments(self) -> bytes | msgspec.Raw:
        """The encoded arguments, with what was handed on. Raises msgspec.MsgspecError."""
        if not self.handed:
            return self.arguments
        return encode(_fields(self.arguments) | self.handed)


_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Payload).decode
