"""A row as a tuple of SQLite's values, and back; the schema follows from the row's fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from penstock.console.core.tables import Table

Row = TypeVar("Row", bound=msgspec.Struct)
SqlValue = str | int | float | None
_NONE = "[]"

_AFFINITY = {inspect.IntType: "INTEGER", inspect.FloatType: "REAL", inspect.BoolType: "INTEGER"}


class Columns(Generic[Row]):
    """Converts the rows of one table.

    Attributes:
        names: of the columns, in the order of the row's fields.
        table: its name.
        search: how its rows are found by texts; None where they are not.
    """

    def __init__(self, table: Table[Row]) -> None:
        self._table = table
        self.table, self.search = table.name, table.search
        fields = msgspec.structs.fields(table.row)
        self.names = tuple(field.name for field in fields)
        kinds = {field.name: _kind(field.type) for field in fields}
        self._lists = [i for i, n in enumerate(self.names) if kinds[n] is inspect.VarTupleType]
        self._flags = [i for i, n in enumerate(self.names) if kinds[n] is inspect.BoolType]
        self._enums = [
            (i, {member.value: member for member in fields[i].type})
            for i, n in enumerate(self.names)
            if kinds[n] is inspect.EnumType
        ]
        self._affinity = {n: _AFFINITY.get(kind, "TEXT") for n, kind in kinds.items()}

    @property
    def schema(self) -> list[str]:
        """The statements that make the table and its indexes."""
        table = self._table
        columns = ", ".join(f"{name} {self._affinity[name]}" for name in self.names)
        made = [f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({table.key})) WITHOUT ROWID"]
        for index in table.indexes:
            name = index_name(table.name, index)
            made.append(f"CREATE INDEX {name} ON {table.name} ({', '.join(index)})")
        for part, (columns_of_index, condition) in table.partial_indexes.items():
            name, listed = f"{table.name}_{part}", ", ".join(columns_of_index)
            made.append(f"CREATE INDEX {name} ON {table.name} ({listed}) WHERE {condition}")
        if table.search is not None:
            made += [
                f"CREATE TABLE {self.items} (item TEXT, at_us INTEGER, row_key TEXT,"
                " PRIMARY KEY (item, at_us, row_key)) WITHOUT ROWID",
                f"CREATE TABLE {self.marks} (mark INTEGER PRIMARY KEY, bucket INTEGER)",
            ]
        return made

    @property
    def items(self) -> str:
        """The table of rows by each text of a field; see :class:`Search`."""
        return f"{self._table.name}_by_item"

    @property
    def marks(self) -> str:
        """The table of the buckets of time whose rows are not in the text index yet."""
        return f"{self._table.name}_unsearched"

    @property
    def tables(self) -> set[str]:
        """Names of the tables."""
        own = {self._table.name}
        return own | {self.items, self.marks} if self._table.search else own

    @property
    def described(self) -> str:
        """The query for the columns that a table has, their names second."""
        return f"PRAGMA table_info({self._table.name})"

    @property
    def indexes(self) -> set[str]:
        """Names of the indexes, of which queries name some."""
        whole = {index_name(self._table.name, index) for index in self._table.indexes}
        return whole | {f"{self._table.name}_{part}" for part in self._table.partial_indexes}

    @property
    def upsert(self) -> str:
        """Stores a row in place of the one with its key."""
        marks = ", ".join("?" * len(self.names))
        return f"INSERT OR REPLACE INTO {self._table.name} VALUES ({marks})"

    @property
    def select(self) -> str:
        """The beginning of a query for whole rows."""
        return f"SELECT {', '.join(self.names)} FROM {self._table.name}"

    def values(self, row: Row) -> tuple[SqlValue, ...]:
        """The row as it is stored."""
        values = list(msgspec.structs.astuple(row))
        for position in self._lists:
            items = values[position]
            values[position] = msgspec.json.encode(items).decode() if items else _NONE
        return tuple(values)

    def row(self, values: Sequence[SqlValue]) -> Row:
        """The row that was stored."""
        converted: list[Any] = list(values)
        for position in self._lists:
            text = converted[position]
            converted[position] = () if text == _NONE else tuple(msgspec.json.decode(text))
        for position in self._flags:
            converted[position] = bool(converted[position])
        for position, members in self._enums:
            converted[position] = members[converted[position]]
        return self._table.row(*converted)


def index_name(table: str, columns: Sequence[str]) -> str:
    """Name of the index of these columns, for queries that must use it."""
    return f"{table}_by_{'_'.join(columns)}"


def _kind(field_type: Any) -> type[inspect.Type]:
    described = inspect.type_info(field_type)
    if isinstance(described, inspect.UnionType):
        (described,) = (t for t in described.types if not isinstance(t, inspect.NoneType))
    return type(described)
