"""What an executor and its warm parent send each other: one JSON object a line, over a socket pair.

::

    executor ─► {"warm": {"modules": [...]}}           warm parent ─► {"ready": {...}}
             ─► {"spawn": {an Assignment}}                         ─► {"forked": {...}}
                                                                   ─► {"failed": {...}}
                                                                   ─► {"exited": {...}}
                                                                   ─► {"refused": {...}}

The first order is ``warm``. A ``spawn`` is answered by ``forked`` or ``failed``; ``exited`` follows
when the worker ends, and ``refused`` answers a line that is no order.
"""

from __future__ import annotations

import msgspec

from penstock.runtime.workers.assignment import Assignment

MAX_LINE_BYTES = 1 << 20


class Warm(msgspec.Struct, frozen=True):
    """What to import beside the platform's own heavy modules, and how to log."""

    modules: tuple[str, ...] = ()
    log_level: str = "INFO"
    log_json: bool = False


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line from the executor: exactly one of the two."""

    warm: Warm | None = None
    spawn: Assignment | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The parent can fork.

    Attributes:
        seconds: what warming up took.
        failures: modules that cannot be imported, and why.
        threads: names of threads that imports have started.
    """

    pid: int
    seconds: float
    failures: dict[str, str] = {}
    threads: tuple[str, ...] = ()


class Forked(msgspec.Struct, frozen=True):
    """A worker runs."""

    worker: str
    pid: int


class Failed(msgspec.Struct, frozen=True):
    """A worker could not be forked."""

    worker: str
    error: str


class Exited(msgspec.Struct, frozen=True):
    """A worker's process ended.

    Attributes:
        code: negative for a signal.
    """

    pid: int
    code: int


class Refused(msgspec.Struct, frozen=True):
    """A line was no order."""

    error: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line from the warm parent: exactly one of these."""

    ready: Ready | None = None
    forked: Forked | None = None
    failed: Failed | None = None
    exited: Exited | None = None
    refused: Refused | None = None


def line(message: Order | Report) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + b"\n"


read_order = msgspec.json.Decoder(Order).decode
"""The order of one line. Raises msgspec.DecodeError."""
read_report = msgspec.json.Decoder(Report).decode
"""The report of one line. Raises msgspec.DecodeError."""
