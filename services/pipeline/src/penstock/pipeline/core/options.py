"""The options of the data source `nats` and its sinks, checked before connecting."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(gt=0)]
T = TypeVar("T", bound="Reach")

SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname", "truncate", "numrows"})
"""Options that Spark itself puts beside those of a source."""


class BadOption(ValueError):
    """An option of the data source: what was found, what was expected."""


class Reach(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address and credentials of the broker.

    Attributes:
        servers: comma-separated URLs.
        nkey: a file with the seed of an NKey, on every Spark host.
        credentials: a NATS `.creds` file, on every Spark host.
        user: where neither key nor file is used.
        password: of that user.
        token: instead of a user.
        ca_file: certificate authority, turns TLS on; needed where credentials go beyond loopback.
        broker_user: of a broker on loopback without TLS, besides this user and root.
        timeout_seconds: how long a broker may be silent before the task fails.
    """

    servers: str
    nkey: str = ""
    credentials: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    broker_user: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0


class ReadOptions(Reach, frozen=True, kw_only=True):
    """The options of reading.

    Attributes:
        stream: its name.
        subjects: comma-separated filters, which must not overlap; all by default.
        start: ``earliest``, ``new``, a stream sequence, or an ISO time with zone; a query that has
            a checkpoint goes on from there instead.
        end_sequence: a batch read ends there, inclusive; else at what is stored when it begins.
        max_messages: at most so many sequences a micro-batch.
        partitions: at most so many tasks a batch.
        fetch: messages asked for at a time.
        headers: whether to read message headers; without them reading is quicker.
        events: rows are events of these shapes; see `penstock.pipeline.events.option`.
        land: with ``events``: a folder into which the tasks write them as Parquet, on a path that
            all Spark hosts share; the rows are these files.
        on_loss: when the stream no longer holds what was not read yet: ``go_on`` or ``fail``.
    """

    stream: str
    subjects: str = ""
    start: str = "earliest"
    end_sequence: Positive | None = None
    max_messages: Positive = 200_000
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 4
    fetch: Annotated[int, Meta(ge=1, le=100_000)] = 5_000
    headers: bool = True
    events: str = ""
    land: str = ""
    on_loss: Literal["go_on", "fail"] = "go_on"

    def __post_init__(self) -> None:
        position(self.start)
        if self.land and not self.events:
            raise ValueError("the option land needs the option events")

    @property
    def filters(self) -> list[str]:
        return [subject.strip() for subject in self.subjects.split(",") if subject.strip()]


class WriteOptions(Reach, frozen=True, kw_only=True):
    """The options of writing.

    Attributes:
        subject: where rows go that have no column ``subject``.
        in_flight: messages sent before their acknowledgements are awaited.
    """

    subject: str = ""
    in_flight: Annotated[int, Meta(ge=1, le=10_000)] = 500


def position(start: str) -> int | datetime | Literal["earliest", "new"]:
    """The start position that an option says.

    Raises:
        BadOption: none of the four forms.
    """
    if start == "earliest":
        return "earliest"
    if start == "new":
        return "new"
    if start.isdigit() and int(start) > 0:
        return int(start)
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise BadOption(
            f"option start: found {start[:80]!r}, expected 'earliest', 'new', a stream sequence "
            "(1 or more), or an ISO time with a zone such as 2026-01-31T08:00:00Z"
        )
    return time


def parse(kind: type[T], options: Mapping[str, str]) -> T:
    """Options as Spark hands them over (names in any case, values as text), checked.

    Raises:
        BadOption: one is missing, unknown, or not what it should be.
    """
    given = {k.lower(): v for k, v in options.items() if k.lower() not in SPARK_OWN}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(kind.__struct_fields__)
        raise BadOption(f"data source nats: {error}; its options are {names}") from error
