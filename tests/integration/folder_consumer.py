"""A consumer of another system: its messages are files of a folder, and an oracle logs each.

``python folder_consumer.py FOLDER [seconds]``: takes files of ``FOLDER/queue`` by renaming them,
handles each for so long, and appends ``start MESSAGE PID`` and ``end MESSAGE PID`` to
``FOLDER/oracle``. At TERM it finishes the message that it handles and ends. A file whose name
begins with ``stuck`` is handled until ``FOLDER/release`` exists; TERM is not obeyed before.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

_STOPPING: list[int] = []


def main() -> None:
    folder = Path(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    signal.signal(signal.SIGTERM, lambda number, _: _asked(folder, number))
    oracle = os.open(folder / "oracle", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    sys.stdout.write(f"consumer {os.getpid()} is ready\n")
    sys.stdout.flush()
    while not _STOPPING:
        if message := _take(folder):
            _log(oracle, "start", message)
            _handle(folder, message, seconds)
            _log(oracle, "end", message)
        else:
            time.sleep(0.005)


def _asked(folder: Path, number: int) -> None:
    _STOPPING.append(number)
    with (folder / "asked").open("a") as asked:
        asked.write(f"{os.getpid()} {number}\n")


def _take(folder: Path) -> str:
    for entry in os.scandir(folder / "queue"):
        try:
            Path(entry.path).rename(folder / "taken" / entry.name)
        except FileNotFoundError:  # another consumer has it
            continue
        return entry.name
    return ""


def _handle(folder: Path, message: str, seconds: float) -> None:
    if message.startswith("stuck"):
        while not (folder / "release").exists():
            time.sleep(0.01)
        return
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)


def _log(oracle: int, what: str, message: str) -> None:
    os.write(oracle, f"{what} {message} {os.getpid()}\n".encode())


if __name__ == "__main__":
    main()
