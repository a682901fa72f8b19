"""What a run left behind on the machine: processes, mounts, loop devices, namespaces, files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil


class Traces(msgspec.Struct, frozen=True):
    """By kind, what can be seen of a run: names that a person can look for."""

    seen: dict[str, frozenset[str]]

    def since(self, before: Traces) -> list[str]:
        """What was not there before, one sentence a thing."""
        return [
            f"{kind}: {name}"
            for kind, names in self.seen.items()
            for name in sorted(names - before.seen.get(kind, frozenset()))
        ]


def traces(folder: Path) -> Traces:
    """Of the run that worked in ``folder``, now."""
    return Traces(
        {
            "process": frozenset(_processes(str(folder))),
            "mount": frozenset(_mounts(str(folder))),
            "loop device": frozenset(_loops(str(folder))),
            "network namespace": frozenset(_names(Path("/run/netns"), f"pk{_own()}")),
            "network device": frozenset(_names(Path("/sys/class/net"), f"pk{_own()}")),
            "file": frozenset(_names(folder / "tmp")),
        }
    )


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Temporary files of this process and of those it starts are made in ``folder/tmp``."""
    (folder / "tmp").mkdir(mode=0o700)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    try:
        yield
    finally:
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def _own() -> int:
    return os.getpid() % 100_000


def _processes(folder: str) -> Iterator[str]:
    """Those whose command or environment names the folder: all that a run starts inherit it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *process.environ().values()]
            if any(folder in word for word in words):
                yield f"{process.pid} {' '.join(process.cmdline())[:120]}"


def _mounts(folder: str) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text("utf-8").splitlines():
        if folder in line:
            yield line


def _loops(folder: str) -> Iterator[str]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if folder in backing.read_text("utf-8"):
                yield backing.parents[1].name


def _names(folder: Path, prefix: str = "") -> Iterator[str]:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(prefix):
                yield path.name
