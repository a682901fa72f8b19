"""Which settings a running service can take over, and how two sets of settings differ. Pure.

A section names in ``of_process`` what an executor takes over at its start only, and in
``of_machine`` what may differ from machine to machine, so that a difference means nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from penstock.config.masking import MASK, hosts_only, masked_settings
from penstock.config.section import ALL, Section
from penstock.config.settings import Settings

Tree = dict[str, Any]
_ABSENT = object()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with two values; None stands for one that is not there, such as a pool's.

    Attributes:
        name: dotted, as in ``pools.mails.sla_seconds``.
        file: what the file says.
        in_force: what a service runs with.
        restart: an executor takes it over at its start only.
    """

    name: str
    file: Any
    in_force: Any
    restart: bool = False


def sparse(settings: Settings) -> Tree:
    """The settings that are not at their defaults, as nested tables without secrets.

    Of addresses only scheme and host are left, and ``/***`` where more follows; of the command of a
    hook, a pool or a source the program, and ``***`` where arguments follow.
    """
    return _for_others(_sparse(settings), settings)


def full(settings: Settings) -> Tree:
    """All settings as nested tables, without secrets, as :func:`sparse` shows them to others."""
    return _for_others(msgspec.json.decode(msgspec.json.encode(settings)), settings)


def _for_others(shown: Tree, settings: Settings) -> Tree:
    tree: Tree = hosts_only(masked_settings(shown, settings.encryption.masked))
    tables = (tree.get(name, {}).values() for name in ("hooks", "pools", "sources"))
    for table in (table for group in tables for table in group):
        if len(table.get("command", ())) > 1:
            table["command"] = [table["command"][0], MASK]
    return tree


def changed_names(new: Settings, current: Settings) -> list[str]:
    """Dotted names of the settings that differ, secrets included; as :func:`differences` does."""
    return [change.name for change in differences(_sparse(new), _sparse(current))]


def differences(file: Tree, in_force: Tree) -> list[Difference]:
    """The settings that differ, beyond those that may differ between machines.

    Args:
        file: as `sparse` makes it.
        in_force: likewise.
    """
    defaults = _flat(msgspec.to_builtins(Settings()))
    file_values, service_values = dict(_flat_items(file)), dict(_flat_items(in_force))
    return [
        Difference(
            name=name,
            file=file_values.get(name, defaults.get(name)),
            in_force=service_values.get(name, defaults.get(name)),
            restart=needs_restart(name),
        )
        for name in sorted(file_values.keys() | service_values.keys())
        if file_values.get(name, _ABSENT) != service_values.get(name, _ABSENT)
        and not _of_machine(name)
        and not (_is_table_in(service_values, name) or _is_table_in(file_values, name))
    ]


def values(tree: Tree) -> Tree:
    """The values of nested tables by dotted name."""
    return _flat(tree)


def adopted(service: str, name: str, variables: Collection[str]) -> Literal["reload", "restart"]:
    """When a service takes over another value of a setting.

    Args:
        service: such as ``executor``.
        name: dotted, of the setting.
        variables: the settings that environment variables set, which do not change while a process
            lives.
    """
    is_of_process = service == "executor" and needs_restart(name)
    return "restart" if is_of_process or name in variables else "reload"


def taken_over(current: Settings, new: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings of an executor that goes on running, and what waits for its restart.

    Pools of Spark Workers wait too.

    Args:
        current: those in force.
        new: those of the file.

    Returns:
        The new settings with what is read at the start only left as it is, and the dotted names of
        what differs there.
    """
    kept = {name: getattr(current, name) for name in Settings.of_process}
    for name, section in _sections():
        if section.of_process == ALL:
            kept[name] = getattr(current, name)
        elif section.of_process:
            own = getattr(current, name)
            parts = {part: getattr(own, part) for part in section.of_process}
            kept[name] = msgspec.structs.replace(getattr(new, name), **parts)
    kept["pools"] = {name: table for name, table in new.pools.items() if table.kind != "spark"}
    kept["pools"] |= {name: pool for name, pool in current.pools.items() if pool.kind == "spark"}
    merged = msgspec.structs.replace(new, **kept)
    file, in_force = _flat(_sparse(new)), _flat(_sparse(merged))
    names = file.keys() | in_force.keys()
    return merged, tuple(
        sorted(name for name in names if file.get(name, _ABSENT) != in_force.get(name, _ABSENT))
    )


def needs_restart(name: str) -> bool:
    """Whether an executor takes this setting, by its dotted name, over at its start only."""
    return _named(name, "of_process")


def _is_table_in(flat: Tree, name: str) -> bool:
    """Whether there are values below this name: the other side has an empty table then."""
    return name not in flat and any(other.startswith(f"{name}.") for other in flat)


def _of_machine(name: str) -> bool:
    return _named(name, "of_machine")


def _named(name: str, marker: str) -> bool:
    section, _, rest = name.partition(".")
    if not rest:
        return section in getattr(Settings, marker)
    kinds: Mapping[str, type[Section]] = dict(_sections())
    names = getattr(kinds[section], marker) if section in kinds else ()
    return bool(names == ALL or rest.partition(".")[0] in names)


def _sections() -> Iterator[tuple[str, type[Section]]]:
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield field.name, field.type


def _sparse(value: Any) -> Any:
    """Plain tables of what differs from the defaults."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _sparse(own)
            for field in msgspec.structs.fields(value)
            if (own := getattr(value, field.name)) is not UNSET and own != _default(field)
        }
    if isinstance(value, dict):
        return {str(key): _sparse(below) for key, below in value.items()}
    return msgspec.to_builtins(value)


def _default(field: Any) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else _ABSENT


def _flat(tree: Tree) -> Tree:
    return dict(_flat_items(tree))


def _flat_items(tree: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name. An empty table, such as a pool without settings, is a value."""
    for name, value in tree.items():
        dotted = f"{above}.{name}" if above else name
        if isinstance(value, dict) and value:
            yield from _flat_items(value, dotted)
        else:
            yield dotted, list(value) if isinstance(value, tuple) else value
