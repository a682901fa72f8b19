"""The database that serves, and the one that is made anew beside it.

A database is *whole* once it was folded to the end of the log as that was when folding began; this
is a fact in the file itself. The newest whole one serves; where none is whole, as after a first
start, the oldest. A later one is continued after a restart, until it takes the place of the one
that serves: a kill at any moment leaves either the former rows or the new ones, never a part.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import msgspec

from penstock.console.core.series import ChunkKey
from penstock.console.core.tables import TABLES, Table
from penstock.console.read_models.store import FILE, VERSION, Snapshot, Store

_NAME = re.compile(r"live(?:-([0-9]{1,9}))?\.db")
_FOLDER = re.compile(r"read-v([0-9]{1,9})")
_OTHER_ARGUMENTS = "console.searchable_arguments was changed"
_WHOLE, _REASON = "whole", "reason"


class Databases:
    """The console's databases in a folder; writing is for one thread at a time.

    Args:
        folder: of the console's files.
        tables: that are kept.
        arguments: of jobs, that lists are searched by: rows that were made with others are made
            anew.

    Attributes:
        current: serves.
        next: is made anew; None where nothing is.
        is_frozen: no entry may be folded into the current one: it is of another version of the
            tables, or the log does not continue at its position.
        generation: counts up when another database serves.
    """

    def __init__(
        self,
        folder: Path,
        tables: Iterable[Table[msgspec.Struct]] = TABLES,
        arguments: Sequence[str] = (),
    ) -> None:
        self._folder, self._tables, self._arguments = folder, tuple(tables), tuple(arguments)
        own = [self._open(number) for number in sorted(self._numbers())]
        whole = [store for store in own if is_whole(store)]
        former = None if whole else self._former()
        self.is_frozen = former is not None
        if former is None:
            self.current = whole[-1] if whole else own[0] if own else self._open(0)
            unfinished = own[own.index(self.current) + 1 :] if own else []
        else:
            self.current, unfinished = former, own or [self._begin(0, former, "its tables changed")]
        self.next: Store | None = unfinished[-1] if unfinished else None
        self.generation = 0
        self._old = [store for store in own if store not in (self.current, self.next)]
        if self.next is not None and self.next.has_other_arguments:
            self.give_up_next()
        self.remove_old()
        if self.next is None and (self.is_frozen or self.current.has_other_arguments):
            self.begin_next(_OTHER_ARGUMENTS)

    @property
    def cursor_key(self) -> bytes:
        """Seals cursors; the same in each database."""
        return self.current.cursor_key

    @property
    def arguments(self) -> Sequence[str]:
        """Of jobs, by which they are found in the one that serves."""
        return self.current.arguments

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        size = 0
        for path in self._folder.glob("read-v*/live*"):
            with suppress(FileNotFoundError):  # one that was removed meanwhile
                size += path.stat().st_size
        return size

    @property
    def reason(self) -> str:
        """Why the next database is made; empty where none is."""
        if self.next is None:
            return ""
        with self.next.reading() as rows:
            return rows.fact(_REASON) or ""

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """All that is read in the block is of one moment, and of one database."""
        with self.current.reading() as rows:
            yield rows

    def store_series(
        self, chunks: Sequence[tuple[ChunkKey, bytes]], oldest: Sequence[tuple[int, int]]
    ) -> None:
        """Stores hours of measurements in the database that serves, and removes old ones."""
        self.current.store_series(chunks, oldest)

    def begin_next(self, reason: str) -> Store:
        """Begins a database beside the one that serves; the one that was begun, if there is one."""
        if self.next is None:
            number = max(self._numbers(), default=-1) + 1
            self.next = self._begin(number, self.current, reason)
        return self.next

    def give_up_next(self) -> None:
        """Removes the database that was begun."""
        if self.next is not None:
            self._old.append(self.next)
            self.next = None
            self.remove_old()

    def switch(self) -> None:
        """Has the next database serve. The former one is kept until :meth:`remove_old`."""
        new = self.next
        if new is None:
            return
        new.store_series(self.current.read_series())
        mark_whole(new)
        self._old.append(self.current)
        self.current, self.next, self.is_frozen = new, None, False
        self.generation += 1

    def remove_old(self) -> None:
        """Removes what no longer serves, and folders of former versions."""
        for store in self._old:
            store.close()
            for path in store.path.parent.glob(f"{store.path.name}*"):
                path.unlink(missing_ok=True)
        self._old.clear()
        if self.current.path.parent == self._place(VERSION):
            for version in self._versions():
                if version < VERSION:
                    shutil.rmtree(self._place(version), ignore_errors=True)

    def close(self) -> None:
        """Closes what is open."""
        for store in (self.current, self.next, *self._old):
            if store is not None:
                store.close()

    # --- files ------------------------------------------------------------------------------------
    def _place(self, version: int) -> Path:
        return self._folder / f"read-v{version}"

    def _versions(self) -> list[int]:
        names = (_FOLDER.fullmatch(path.name) for path in self._folder.glob("read-v*"))
        return sorted(int(name[1]) for name in names if name)

    def _numbers(self, version: int = VERSION) -> list[int]:
        names = (_NAME.fullmatch(path.name) for path in self._place(version).glob("live*.db"))
        return [int(name[1] or 0) for name in names if name]

    def _open(self, number: int, version: int = VERSION) -> Store:
        file = f"live-{number}.db" if number else FILE
        return Store(self._folder, self._tables, file, version, self._arguments)

    def _begin(self, number: int, former: Store, reason: str) -> Store:
        store = self._open(number)
        store.set_fact(_REASON, reason)
        store.set_fact("cursor_key", former.cursor_key.hex())
        store.cursor_key = former.cursor_key
        return store

    def _former(self) -> Store | None:
        """The newest whole database of an earlier version that has all columns of this one."""
        for version in reversed([one for one in self._versions() if one < VERSION]):
            for number in sorted(self._numbers(version), reverse=True):
                try:
                    store = self._open(number, version)
                except apsw.Error:
                    continue
                if is_whole(store) and store.fits():
                    return store
                store.close()
        return None


def is_whole(store: Store) -> bool:
    """Whether it was folded to the end of the log."""
    with store.reading() as rows:
        return rows.fact(_WHOLE) == "1"


def mark_whole(store: Store) -> None:
    """Notes that it was folded to the end of the log."""
    store.set_fact(_WHOLE, "1")
