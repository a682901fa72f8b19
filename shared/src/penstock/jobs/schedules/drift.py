"""How stored schedules differ from the declared ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import is_sealed
from penstock.jobs.schedules.declaration import SETTINGS, Declaration
from penstock.jobs.schedules.schedule import Schedule

_COMPARED = (
    "cron", "zone", "function", "queue", "tags", "tries", "missed", "expires_seconds", "origin",
)  # fmt: skip


class Drift(StrEnum):
    """How a stored schedule stands to its declaration."""

    EQUAL = "equal"
    MISSING = "missing"
    CHANGED = "changed"
    UNDECLARED = "undeclared"
    """It was declared once, and is not any more."""
    CONFLICT = "conflict"
    """A client added one of the same name, which is left alone."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule, compared.

    Attributes:
        text: what differs, for people.
        done: whether what is stored is as declared now.
    """

    name: str
    drift: Drift
    text: str = ""
    done: bool = False


def compare(wanted: Schedule, stored: Schedule | None) -> Difference:
    """How what is stored under a name differs from the record that its declaration makes.

    Args:
        wanted: made of the declaration.
        stored: None, or marked as removed: there is none.
    """
    name = wanted.name
    if stored is None or stored.removed:
        return _missing(name, wanted.function, wanted.cron, wanted.zone)
    if not stored.origin:
        return _conflict(name)
    if differences := _differences(wanted, stored):
        return Difference(name=name, drift=Drift.CHANGED, text=", ".join(differences))
    return Difference(name=name, drift=Drift.EQUAL, done=True)


def undeclared(stored: Schedule) -> Difference:
    """The difference of a schedule that is not declared any more."""
    text = f"{stored.function} at '{stored.cron}' is not declared any more; --prune removes it"
    return Difference(name=stored.name, drift=Drift.UNDECLARED, text=text)


def of_settings(
    declarations: Iterable[Declaration], stored: Mapping[str, Schedule]
) -> Iterator[Difference]:
    """What differs, for a process that cannot import the modules of the jobs.

    Args:
        declarations: those of the settings.
        stored: all schedules, by name.
    """
    names = set()
    for declaration in declarations:
        name = declaration.name
        names.add(name)
        schedule = stored.get(name)
        if schedule is None:
            yield _missing(name, declaration.job, declaration.cron, declaration.zone)
        elif not schedule.origin:
            yield _conflict(name)
        elif schedule.declaration != declaration.fingerprint:
            yield Difference(name=name, drift=Drift.CHANGED, text="its declaration was changed")
    for name in sorted(stored.keys() - names):
        if stored[name].origin == SETTINGS:
            yield undeclared(stored[name])


def _missing(name: str, function: str, cron: str, zone: str) -> Difference:
    return Difference(name=name, drift=Drift.MISSING, text=f"{function} at '{cron}' ({zone})")


def _conflict(name: str) -> Difference:
    text = f"a client added a schedule of this name; remove one: 'penstock schedule rm {name}'"
    return Difference(name=name, drift=Drift.CONFLICT, text=text)


def _differences(wanted: Schedule, stored: Schedule) -> list[str]:
    """What differs; one at least where the declaration is another, as it has to be stored anew."""
    differences = [
        f"{field}: {_shown(before)} -> {_shown(after)}"
        for field in _COMPARED
        if (before := getattr(stored, field)) != (after := getattr(wanted, field))
    ]
    before_call, after_call = _call(stored), _call(wanted)
    if before_call is None or after_call is None or before_call[0] != after_call[0]:
        differences.append("timeout, backoff or masks")
    elif before_call[1] != after_call[1]:
        differences.append("arguments")
    elif not differences and stored.declaration != wanted.declaration:
        is_hidden = after_call[1] is None
        differences.append("arguments" if is_hidden else "declaration, to the same effect")
    return differences


def _shown(value: Any) -> str:
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)


def _call(schedule: Schedule) -> tuple[payload.Payload, bytes | None] | None:
    """The call without what its record repeats or draws anew, and its arguments.

    Sealed arguments differ with each sealing, and are None: they are taken to differ where the
    declaration does and nothing else is found.
    """
    try:
        call = payload.decode(schedule.payload)
    except (ValueError, msgspec.MsgspecError):
        return None
    arguments = None if is_sealed(call.arguments) else bytes(call.arguments)
    return (
        msgspec.structs.replace(
            call, id="", dispatched_at=0.0, arguments=msgspec.Raw(b""), queue="", tags=(), tries=0
        ),
        arguments,
    )
