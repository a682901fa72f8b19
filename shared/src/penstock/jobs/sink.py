"""Writing a job's output once, although a deposed attempt may still run.

An attempt writes into a folder of its own beside the target, and commits that folder in the job's
history, where a deposed attempt loses (:meth:`penstock.jobs.Context.commit`). Only then the folder
takes the target's place, by one rename. An attempt that begins after a commit completes the
rename and writes nothing.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.jobs.errors import Cancelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.jobs.running.context import Context

_MARK = "_penstock.json"
"""Spark does not read files that begin so; folders beside the target begin with a dot, since it
does read ``_day=1``."""
_AT_FDCWD, _EXCHANGE = -100, 2
"""See renameat2(2)."""


def write_parquet(
    context: Context,
    frame: DataFrame,
    path: str | Path,
    *,
    name: str = "",
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
) -> bool:
    """Writes a frame to a folder, exactly once a job, in whole or not at all.

    Readers see the folder as it was before or as it is after. The folder is the unit that is
    replaced: a partition such as ``lake/orders/day=2026-11-20``, or a table. It must be a path that
    Spark and this worker both see: a local disk, or a mount with locks and renames. For an object
    store use a table format, with :func:`transaction`.

    Args:
        context: of the running job.
        frame: what is written.
        path: of the folder.
        name: where a job writes the same path more than once; each name is written once.
        overwrite: replace a folder that another job wrote; else it is an error.
        options: of Spark's Parquet writer.

    Returns:
        False when an earlier attempt of the job had written it already.

    Raises:
        Cancelled: another attempt has begun, or the job was cancelled; nothing was changed.
        FileExistsError: the folder exists, and ``overwrite`` is not set.
        ValueError: the path is no file path.
    """
    target = _checked(path)
    key = f"{target.name}{f'.{name}' if name else ''}"
    if (folder := context.committed(key)) is not None:
        _publish(Path(folder), target, context.job_id, key, overwrite)
        return False
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it")
    own_folder = target.parent / f".{key}.{context.job_id}.{context.fencing_token}"
    try:
        frame.write.mode("overwrite").options(**(options or {})).parquet(f"file://{own_folder}")
        (own_folder / _MARK).write_text(json.dumps({"job": context.job_id, "key": key}), "utf-8")
        folder = context.commit(key, str(own_folder))
    except (Cancelled, Exception):
        shutil.rmtree(own_folder, ignore_errors=True)
        raise
    _publish(Path(folder), target, context.job_id, key, overwrite)
    _clear(target, context.job_id, key)
    return folder == str(own_folder)


def transaction(context: Context, name: str = "", version: int = 1) -> dict[str, str]:
    """Writer options for table formats that skip a transaction they have seen, such as Delta Lake.

    All attempts of a job use the same identifiers: the first commit stands, those that follow are
    skipped. A job that is retried with other arguments has others.

    Args:
        context: of the running job.
        name: of the table, where a job writes several.
        version: 1, 2, … of the job's writes to the table.

    Example::

        frame.write.format("delta").options(**transaction(context)).mode("append").save(path)
    """
    application = f"penstock-{context.work_id}{f'-{name}' if name else ''}"
    return {"txnAppId": application, "txnVersion": str(version)}


def _checked(path: str | Path) -> Path:
    text = str(path).removeprefix("file://")
    if "://" in text or text.startswith("file:"):
        raise ValueError(
            f"found {str(path)!r}, expected a file path: only there can a folder be renamed; "
            "for an object store use a table format with penstock.jobs.sink.transaction"
        )
    return Path(text).absolute()


def _publish(folder: Path, target: Path, job_id: str, key: str, overwrite: bool) -> None:
    """Puts a committed folder in the target's place; does nothing where that was done before.

    Under a lock: of two who publish the same folder, the second finds nothing left to do.
    """
    with _locked(target):
        if not _is_of(folder, job_id, key):  # published before, and perhaps replaced since
            return
        if not target.exists():
            folder.rename(target)
        elif _is_of(target, job_id, key) or overwrite:
            _exchange(folder, target)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            raise FileExistsError(
                f"{target} was written by another job meanwhile; {folder} is kept"
            )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    file = os.open(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _is_of(folder: Path, job_id: str, key: str) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads((folder / _MARK).read_text("utf-8")) == {"job": job_id, "key": key})
    return False


def _exchange(one: Path, other: Path) -> None:
    """Swaps two folders, at once where the file system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0:
        return
    between = one.with_name(f"{one.name}.old")
    other.rename(between)
    one.rename(other)
    between.rename(one)


def _clear(target: Path, job_id: str, key: str) -> None:
    """Removes the folders of attempts that ended before their commit."""
    for left in target.parent.glob(f".{glob.escape(key)}.{job_id}.*"):
        shutil.rmtree(left, ignore_errors=True)
