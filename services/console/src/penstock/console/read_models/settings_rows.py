"""Settings in force, one row for each value: of whom it is, from where, and adopted when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock.config import Settings
from penstock.config.reloading import adopted, full, values
from penstock.operations.settings_in_force import SettingsInForce

DEFAULT, FILE, VARIABLE, UNKNOWN = "default", "file", "environment", "file or environment"
_MOST_VALUE_LENGTH = 200


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a setting; of a setting with several values there are several rows.

    Attributes:
        name: dotted, as in the file.
        value: as JSON, without secrets.
        source: ``default``, ``file``, ``environment``, or, of services of an earlier version,
            ``file or environment``.
        adopted: when another value is: after a ``reload``, or a ``restart`` of the process.
        services: that work with it, such as ``decider on node-1``.
        waiting: those of them that take another value over at their next start.
    """

    name: str
    value: str
    source: str
    adopted: str
    services: tuple[str, ...]
    waiting: tuple[str, ...] = ()


def setting_rows(
    records: Sequence[SettingsInForce], *, with_defaults: bool = False
) -> list[SettingRow]:
    """The settings of all services, by name.

    Args:
        records: what each process published.
        with_defaults: also those that are as they are without any file.
    """
    places: dict[tuple[str, str, str, str], list[SettingsInForce]] = {}
    for record in records:
        for key in _values(record, with_defaults):
            places.setdefault(key, []).append(record)
    return [
        SettingRow(
            name=name,
            value=value,
            source=source,
            adopted=when,
            services=tuple(dict.fromkeys(one.name for one in sharing)),
            waiting=tuple(one.name for one in sharing if name in one.waiting),
        )
        for (name, value, source, when), sharing in sorted(places.items(), key=lambda one: one[0])
    ]


def _values(record: SettingsInForce, with_defaults: bool) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, source and time of adoption."""
    own = values(record.settings or {})
    defaults = values(full(Settings())) if with_defaults and record.settings is not None else {}
    variables = record.variables or ()
    for name, value in {**defaults, **own}.items():
        source = DEFAULT
        if name in own:
            source = VARIABLE if name in variables else FILE
            source = UNKNOWN if record.variables is None else source
        elif any(other.startswith(f"{name}.") for other in own):
            continue  # an empty table that has values here
        shown = msgspec.json.encode(value).decode()[:_MOST_VALUE_LENGTH]
        yield name, shown, source, adopted(record.service, name, variables)
