"""The source files of job modules, and which of them have changed.

Looked at twice a second: a few hundred files take a millisecond, so that a dependency with a
compiled watcher would not pay. It works on network and container file systems, too, whose changes
the kernel does not report.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

MOST_FILES = 20_000
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceFiles:
    """The ``*.py`` files of the projects that hold some modules.

    Args:
        modules: names as in ``jobs.modules``; they are not imported. Of a package all its files are
            looked at, of a module all in its folder, also in folders below it.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self.folders = sorted({folder for name in modules for folder in _folders(name)})
        self._last = self._states()

    def changed(self) -> list[Path]:
        """The files that were written, added or removed since the last call."""
        before, self._last = self._last, self._states()
        paths = {*before, *self._last}
        return sorted(path for path in paths if before.get(path) != self._last.get(path))

    def _states(self) -> dict[Path, tuple[int, int]]:
        states: dict[Path, tuple[int, int]] = {}
        for folder in self.folders:
            for path, status in _python_files(folder):
                states[path] = (status.st_mtime_ns, status.st_size)
                if len(states) >= MOST_FILES:
                    return states
        return states


def _folders(module: str) -> list[Path]:
    spec = PathFinder.find_spec(module.partition(".")[0])
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place).resolve() for place in spec.submodule_search_locations]
    return [Path(spec.origin).resolve().parent] if spec.origin else []


def _python_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # removed meanwhile
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return  # an environment beside the project
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _PASSED_OVER:
                    yield from _python_files(Path(entry.path))
            elif entry.name.endswith(".py"):
                yield Path(entry.path), entry.stat()
        except OSError:
            continue
