"""Settings as they were when decisions were made, and as they might have been."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.config import Pool
from penstock.decider.core.inputs import Rules
from penstock.decider.replay.entry import Entry
from penstock.events.record import RECORDS, SettingsAdopted


class Adopted(msgspec.Struct, frozen=True):
    """What a round was decided under, besides measurements."""

    pools: Mapping[str, Pool]
    rules: Rules


def gather(told: Iterable[SettingsAdopted]) -> dict[str, Adopted]:
    """Settings by fingerprint, of those whose parts are all there and can be read."""
    parts: dict[str, dict[int, SettingsAdopted]] = {}
    for one in told:
        parts.setdefault(one.fingerprint, {})[one.part] = one
    found = {}
    for fingerprint, by_number in parts.items():
        first = next(iter(by_number.values()))
        if len(by_number) == first.parts:
            pools = {
                name: pool
                for number in sorted(by_number)
                for name, pool in by_number[number].pools.items()
            }
            try:
                found[fingerprint] = _adopted(pools, first.rules)
            except msgspec.ValidationError:  # those rounds are told as a gap
                continue
    return found


def of_entries(entries: Iterable[Entry]) -> dict[str, Adopted]:
    """Those at the head of a log."""
    told = []
    for entry in entries:
        if ".snapshots.settings." not in entry.subject:
            break
        event = RECORDS.decode(entry.body)
        if isinstance(event, SettingsAdopted):
            told.append(event)
    return gather(told)


def _adopted(pools: Mapping[str, Any], rules: Mapping[str, Any]) -> Adopted:
    return Adopted(
        {name: msgspec.convert(pool, Pool) for name, pool in pools.items()},
        msgspec.convert(rules, Rules),
    )
