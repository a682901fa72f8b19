"""What a foreign process prints: a file of its own, which cannot grow without bound.

The process writes to the file itself, so that it can go on while no executor runs. Once the file is
large its content is copied to a second one and it is cut to nothing, as `logrotate copytruncate`
does: lines that are written in between are lost.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1_000_000
"""Of one file; there are at most two for a process."""
KEPT_FILES = 20
"""Files of a pool's processes that have ended; the oldest go first."""
_MOST_LINE = 4_000
"""Characters of a line that are looked at."""
_MOST_READ = 256_000
_FOLDER = "logs"
_OLDER = ".1"


class Output:
    """The output of one process.

    Attributes:
        path: its file.
    """

    def __init__(self, run_dir: Path, pool: str, worker: str) -> None:
        self.path = run_dir / _FOLDER / pool / f"{worker}.log"
        self._read_to = 0
        self._half = b""

    def begin(self) -> None:
        """Makes the folder; the oldest files of it go.

        Raises:
            OSError: it cannot be made.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def new_lines(self) -> list[str]:
        """Whole lines that were printed since the last call, each cut to 4,000 characters."""
        try:
            with open(self.path, "rb", opener=_opened) as file:
                if os.fstat(file.fileno()).st_size < self._read_to:  # it was cut
                    self._read_to, self._half = 0, b""
                file.seek(self._read_to)
                read = file.read(_MOST_READ)
        except OSError:
            return []
        self._read_to += len(read)
        *whole, half = (self._half + read).split(b"\n")
        self._half = half[:_MOST_LINE]
        return [line[:_MOST_LINE].decode("utf-8", "replace") for line in whole]

    def last_lines(self, count: int = 15) -> list[str]:
        """The end of what was printed, for an error message."""
        with suppress(OSError), open(self.path, "rb", opener=_opened) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - count * _MOST_LINE))
            lines = file.read().decode("utf-8", "replace").splitlines()
            return [line[:_MOST_LINE] for line in lines[-count:]]
        return []

    def bound(self) -> None:
        """Cuts a file that has become large."""
        with suppress(OSError):
            if self.path.stat().st_size > MOST_BYTES:
                shutil.copyfile(self.path, self._older)
                os.truncate(self.path, 0)
                with self._older.open("r+b") as older:  # it may have grown far between two looks
                    if (size := os.fstat(older.fileno()).st_size) > 2 * MOST_BYTES:
                        older.seek(size - MOST_BYTES)
                        tail = older.read(MOST_BYTES)
                        older.seek(0)
                        older.write(tail)
                        older.truncate()

    @property
    def _older(self) -> Path:
        return self.path.with_name(self.path.name + _OLDER)


def _opened(path: str, flags: int) -> int:
    """The process may put another thing in the file's place: a pipe would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def prune(run_dir: Path, pool: str, living: frozenset[str]) -> None:
    """Removes files of ended processes beyond the newest twenty.

    Args:
        living: names of workers whose files stay.
    """
    with suppress(OSError):
        ended = [
            file
            for file in (run_dir / _FOLDER / pool).iterdir()
            if file.name.partition(".log")[0] not in living
        ]
        ended.sort(key=lambda file: file.stat().st_mtime, reverse=True)
        for file in ended[KEPT_FILES:]:
            file.unlink(missing_ok=True)
