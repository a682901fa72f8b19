"""The encoded call: what travels in the queue, and everything needed to run it again."""

from __future__ import annotations

import msgspec

from penstock.jobs.retry import Backoff


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="penstock.job.1"):
    """One call of a registered function. MessagePack with a schema tag; never pickle.

    Attributes:
        arguments: MessagePack map, checked against the function's signature at both ends.
        tries: attempts allowed; 0 leaves it to the pool. timeout_seconds: per attempt; 0 likewise.
        dispatched_at: POSIX seconds.
    """

    id: str
    function: str
    queue: str
    arguments: msgspec.Raw
    dispatched_at: float
    tries: int = 0
    timeout_seconds: float = 0.0
    backoff: Backoff = Backoff()
    tags: tuple[str, ...] = ()


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Payload).decode
