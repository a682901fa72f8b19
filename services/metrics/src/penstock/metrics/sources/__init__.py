"""Queues of other systems: how each kind is read. What a package that adds a kind imports."""

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.source import Kind, QueueSource, SourceAway, SourceSettings

__all__ = ["Kind", "QueueSource", "SourceAway", "SourceFault", "SourceLook", "SourceSettings"]
