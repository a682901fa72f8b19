"""Queues of other systems: how each kind is read. What a package that adds a kind imports."""

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.source import (
    MOST_NAMES,
    Kind,
    ListsQueues,
    QueueSource,
    SourceAway,
    SourceSettings,
)

__all__ = [
    "MOST_NAMES",
    "Kind",
    "ListsQueues",
    "QueueSource",
    "SourceAway",
    "SourceFault",
    "SourceLook",
    "SourceSettings",
]
