"""The protocol of a queue source, and what describes a kind of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.events.stream_report import StreamReport
from penstock.metrics.core.sources.look import AnyLook, SourceFault
from penstock.metrics.sources.shown import shown

MOST_NAMES = 10_000
"""Queues of a source that patterns can name: a look reads each of them."""


class SourceAway(Exception):
    """The system cannot be looked at now: what was found, without secrets."""


class StreamReports(Protocol):
    """The newest reports of streaming queries."""

    def newest(self, query: str) -> tuple[StreamReport, float] | None:
        """The report, and the seconds since it came; None before the first."""
        ...


class QueueSource(Protocol):
    """Observes another system's queues. Never takes, acknowledges, declares or deletes.

    It has at most one connection at a time to each server, made by the first look that needs it.
    """

    async def look(self, queues: Sequence[str]) -> Mapping[str, AnyLook | SourceFault]:
        """Looks at queues; one that does not exist has a fault and fails no other.

        The call is cancelled after ``timeout_seconds`` and `close` called then.

        Args:
            queues: names in that system, without duplicates.

        Raises:
            SourceAway: nothing can be looked at; `close` is called then, and a later look connects
                again.
        """
        ...

    async def close(self) -> None:
        """Closes the connection, where there is one. A look after it connects again."""
        ...


@runtime_checkable
class ListsQueues(Protocol):
    """What a source can do beside looking, where its system can list its queues."""

    async def names(self, pattern: str) -> Sequence[str]:
        """The queues that exist and that the pattern names.

        One that is empty should be among them, where the system knows it: the first message of a
        queue that is not listed waits until the names are read again. The call is cancelled after
        ``timeout_seconds`` and `close` called then.

        Args:
            pattern: ``*`` in it stands for any characters, as `penstock.config.source_patterns`
                has it.

        Returns:
            Their names without duplicates; where there are more than ``MOST_NAMES``, so many and
            one more are enough.

        Raises:
            SourceAway: the names cannot be read; `close` is called then.
        """
        ...


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A table ``[sources.NAME]``, checked.

    Attributes:
        name: of the table.
        url: as set, without a password; empty where the kind needs none.
        secret: content of ``secret_file``; empty where none is named. Never shown.
        command: program and arguments.
        timeout_seconds: for one look.
        options: of the kind's own type.
        reports: of streaming queries, for a kind that reads those.
    """

    name: str
    url: str = ""
    secret: str = ""
    command: tuple[str, ...] = ()
    timeout_seconds: float = 5.0
    options: Any = None
    reports: StreamReports | None = None

    def __repr__(self) -> str:
        return f"SourceSettings({self.name!r})"

    def shown(self, error: object) -> str:
        """As `shown.shown`, without this source's secret."""
        return shown(error, self.secret)


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a kind that takes no options."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of source; an entry point of the group ``penstock.sources`` names one.

    Attributes:
        open: makes the source; connects to nothing yet. Imports the libraries it needs.
        schemes: that ``url`` may have; none where the kind takes no ``url``.
        is_url_optional: a source without ``url`` is at its system's usual place.
        runs_command: whether the kind takes ``command`` in place of ``url``.
        options: type of ``options``; its unknown fields should be forbidden.
        counts_arrivals: whether a source with these options reports what came or what ended; else
            arrivals follow only from ``runtime_seconds``.
        lists_queues: whether a source with these options is a `ListsQueues`, so that its pools may
            have patterns of queues.
        tells_queues_apart: whether what is asked at this ``url`` with these options depends on the
            queue's name; else all queues have the same figures.
        mismatch: why this ``url`` and these options do not go together; empty where they do.
        takes_secret: whether ``secret_file`` may be set.
        reports_only_waiting: whether a source at this ``url`` reports nothing but what waits: then
            arrivals do not even follow from ``runtime_seconds``.
        least_interval_seconds: looks more often than this cost more than they show.
        least_sla_seconds: a shorter promise cannot be held by figures as coarse as these.
    """

    open: Callable[[SourceSettings], QueueSource]
    schemes: tuple[str, ...] = ()
    is_url_optional: bool = False
    runs_command: bool = False
    options: type[msgspec.Struct] = NoOptions
    counts_arrivals: Callable[[Any], bool] = lambda options: True
    lists_queues: Callable[[Any], bool] = lambda options: False
    tells_queues_apart: Callable[[str, Any], bool] = lambda url, options: True
    mismatch: Callable[[str, Any], str] = lambda url, options: ""
    takes_secret: bool = True
    reports_only_waiting: Callable[[str], bool] = lambda url: False
    least_interval_seconds: float = 0.0
    least_sla_seconds: float = 0.0
