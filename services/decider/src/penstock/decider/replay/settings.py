"""Settings as they were when decisions were made."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.decider.publishing.adopting import Adopted, gather
from penstock.decider.replay.entry import Entry
from penstock.events.record import RECORDS, SettingsAdopted


def of_entries(entries: Iterable[Entry]) -> dict[str, Adopted]:
    """Those at the head of a log."""
    adopted = []
    for entry in entries:
        if ".snapshots.settings." not in entry.subject:
            break
        event = RECORDS.decode(entry.body)
        if isinstance(event, SettingsAdopted):
            adopted.append(event)
    return gather(adopted)
