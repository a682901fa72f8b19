"""Records of living workers: how an executor that starts again finds those it left behind.

``<run_dir>/workers/<worker>.json`` is written by the worker's process as its first act, before it
does anything that could be lost (a Spark Worker's by its executor, as soon as it is started), and
removed by the executor that sees it end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.operations.process_identity import start_ticks
from penstock.runtime.workers import claims_file, pulse

log = logging.getLogger("penstock.runtime")

_FOLDER = "workers"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One living worker.

    Attributes:
        start_ticks: start time of its process: a later one with the same id has another.
        started_with: digest of the settings that it was started with; empty where not known.
    """

    worker: str
    pool: str
    pid: int
    start_ticks: int
    started_at: float
    started_with: str = ""


def write(
    run_dir: Path,
    worker: str,
    pool: str,
    started_at: float,
    pid: int | None = None,
    started_with: str = "",
) -> Record:
    """Records a process, whole or not at all.

    Args:
        started_at: POSIX seconds.
        pid: None for this one.
        started_with: digest of the settings that it was started with.
    """
    pid = os.getpid() if pid is None else pid
    record = Record(
        worker=worker,
        pool=pool,
        pid=pid,
        start_ticks=start_ticks(pid) or 0,
        started_at=started_at,
        started_with=started_with,
    )
    folder = run_dir / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    half = folder / f".{worker}.new"
    half.write_bytes(msgspec.json.encode(record))
    half.replace(folder / f"{worker}.json")
    return record


def remove(run_dir: Path, worker: str) -> None:
    pulse.remove(run_dir, worker)
    claims_file.remove(run_dir, worker)
    with suppress(OSError):
        (run_dir / _FOLDER / f"{worker}.json").unlink()


def living(run_dir: Path) -> Iterator[Record]:
    """The workers that still run; records of others, and broken ones, are removed."""
    for file in sorted((run_dir / _FOLDER).glob("*.json")):
        try:
            record = msgspec.json.decode(file.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s: no readable record of a worker: %s; removed", file, error)
            record = None
        if record and record.worker == file.stem and start_ticks(record.pid) == record.start_ticks:
            yield record
        else:
            remove(run_dir, file.stem)
