"""A small disk for the broker's store, which can be filled and whose writes can be made to hang."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.allowed import NotAllowed, demand

MOST_HANGING_SECONDS = 20
"""The watchdog lets a disk go on after this, whatever became of the run."""
_BLOCK = 65_536


class Disk:
    """A mounted file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Takes all the room there is."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * _BLOCK)
            except OSError:
                return

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Who writes to it waits, without an error and beyond signals, until the block ends.

        Raises:
            NotAllowed: its file system cannot be frozen.
        """
        with _watchdog(self.folder):
            demand("fsfreeze", "--freeze", str(self.folder))
            try:
                yield
            finally:
                demand("fsfreeze", "--unfreeze", str(self.folder))


@contextmanager
def small_disk(size_bytes: int) -> Iterator[Disk]:
    """An ext4 file system in a file, mounted until the block ends.

    Raises:
        NotAllowed: nothing may be mounted here.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-disk-") as place, ExitStack() as stack:
        image, folder = Path(place) / "image", Path(place) / "disk"
        folder.mkdir()
        with image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        demand("mkfs.ext4", "-q", "-m", "0", str(image), needs="e2fsprogs")
        demand("mount", "-o", "loop", str(image), str(folder), needs="root and loop devices")
        stack.callback(demand, "umount", "--lazy", str(folder))
        disk = Disk(folder)
        with disk.hanging():  # whether it can be
            pass
        yield disk


@contextmanager
def _watchdog(folder: Path) -> Iterator[None]:
    """A process that lets the disk go on when this one is killed, or takes too long.

    It waits for its input to end, which the kernel sees to, and belongs to no group that is
    signalled with ours. Letting go of what does not hang fails, and that is all right.
    """
    program = (
        "import select, subprocess, sys\n"
        f"select.select([sys.stdin], [], [], {MOST_HANGING_SECONDS})\n"
        "subprocess.run(['fsfreeze', '--unfreeze', sys.argv[1]], stderr=subprocess.DEVNULL)\n"
    )
    try:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NotAllowed(f"needs a process that watches the disk: {error}") from error
    try:
        yield
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait()
