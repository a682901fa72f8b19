"""Reads arrival traces: CSV with a timestamp a row, or with a timestamp and a count."""

from __future__ import annotations

import csv
import math
import re
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from penstock.decider.simulator.model.load import Floats, Trace

_TIMES = ("timestamp", "time", "datetime", "date", "period", "ts", "at", "arrival", "arrived")
_COUNTS = ("count", "value", "requests", "arrivals", "invocations", "jobs", "hits", "n")
_FORMATS = ("%d/%b/%Y:%H:%M:%S", "%d.%m.%Y %H:%M:%S")
_DAY_OR_MONTH = re.compile(r"\s*\d{1,2}/\d{1,2}/\d{2,4}\b")
_FOREIGN_FILES = {
    b"\x1f\x8b": "is compressed (gzip): unpack it first",
    b"BZh": "is compressed (bzip2): unpack it first",
    b"\xfd7zXZ": "is compressed (xz): unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed (zstd): unpack it first",
    b"PK\x03\x04": "is an archive or a workbook (zip): unpack it, or save it as CSV, first",
    b"PAR1": "is Parquet: save it as CSV first",
}
"""Files that begin so are no text."""
MOST_BYTES = 1024**3
"""All rows of a trace are in memory at once."""
_GAP = 1.5
"""A step between two bins that is this many times the usual one is a gap in the recording."""
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""POSIX times beyond these are in nano-, micro- or milliseconds."""


class BadTrace(ValueError):
    """A file that is no trace: says where, what was found and what was expected."""


def read(
    path: Path,
    *,
    time: str | None = None,
    value: str | None = None,
    size: str | None = None,
    exact: bool = False,
) -> Trace:
    """The trace in a file.

    Columns are found by their usual names, whatever the case, else the first column is the time. A
    file without a header has columns ``0``, ``1`` and so on. Times without a zone are UTC.

    Args:
        time: name of the column of times, where it is unusual.
        value: name of the column of counts, where it is unusual.
        size: a column to keep, that jobs take their run time from.
        exact: counts that are whole numbers are kept as they are; see `Trace.exact`.

    Raises:
        BadTrace, OSError.
    """
    header, rows = _rows(path)
    at = _column(path, header, time, _TIMES)
    count = _column(path, header, value, _COUNTS)
    times = _times(path, rows, 0 if at is None else at)
    order = np.argsort(times, kind="stable")
    times = times[order]
    origin = float(times[0])
    columns = {}
    if size is not None:
        sizes = _figures(path, rows, _column(path, header, size, ()) or 0)
        columns[size] = sizes[order]
    time_column = header[0 if at is None else at]
    if count is None:
        if times[0] == times[-1]:
            raise BadTrace(
                f"{path}: found one time only ({len(times)} rows), expected two or more in "
                f"the column {time_column!r}"
            )
        return Trace(
            name=path.stem,
            origin=origin,
            times=times - origin,
            columns=columns,
            time_column=time_column,
        )
    counts = _figures(path, rows, count)[order]
    return Trace(
        name=path.stem,
        origin=origin,
        times=times - origin,
        counts=counts,
        widths=_widths(path, times),
        exact=exact and bool((counts == np.floor(counts)).all()),
        time_column=time_column,
        count_column=header[count],
    )


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows; a first row that begins with a time is no header."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        raise BadTrace(
            f"{path}: expected a regular file (no device, pipe or folder) of at most "
            f"{MOST_BYTES:,} bytes, found {status.st_size:,}"
        )
    with path.open("rb") as binary:
        head = binary.read(8)
    for magic, kind in _FOREIGN_FILES.items():
        if head.startswith(magic):
            raise BadTrace(f"{path}: {kind}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        mark = max(",;\t", key=first.count)
        rows = [row for row in csv.reader(file, delimiter=mark) if any(row)]
    if not rows:
        raise BadTrace(f"{path}: found nothing, expected rows of times")
    if any(_moment(cell) is not None or _DAY_OR_MONTH.match(cell) for cell in rows[0]):
        return [str(number) for number in range(len(rows[0]))], rows
    if len(rows) == 1:
        raise BadTrace(f"{path}: found a header only, expected rows of times below it")
    return [name.strip() for name in rows[0]], rows[1:]


def _column(
    path: Path, header: Sequence[str], wanted: str | None, usual: Sequence[str]
) -> int | None:
    """A column's index: the named one, else the first with a usual name, else None."""
    names = [name.lower() for name in header]
    if wanted is None:
        return next((names.index(name) for name in usual if name in names), None)
    if wanted.lower() not in names:
        raise BadTrace(f"{path}: no column {wanted!r}; its columns are {', '.join(header)}")
    return names.index(wanted.lower())


def _times(path: Path, rows: Sequence[Sequence[str]], column: int) -> Floats:
    times = np.empty(len(rows))
    for index, row in enumerate(rows):
        moment = _moment(row[column]) if column < len(row) else None
        if moment is None and column < len(row) and _DAY_OR_MONTH.match(row[column]):
            raise BadTrace(
                f"{path}: row {index + 1}: found {_shown(row, column)}, of which day and month "
                "cannot be distinguished; expected ISO 8601 (2026-02-01 10:00:00+01:00) or POSIX "
                "seconds"
            )
        if moment is None:
            raise BadTrace(
                f"{path}: row {index + 1}: found {_shown(row, column)}, expected a time "
                "(ISO 8601 or POSIX); name its column with --time"
            )
        times[index] = moment
    for beyond, unit in _EPOCHS:
        if times.max() > beyond:
            return times / unit
    return times


def _moment(text: str) -> float | None:
    """POSIX seconds, or any number as it stands; None for no time at all."""
    text = text.strip()
    try:
        number = float(text)
        return number if math.isfinite(number) else None
    except ValueError:
        pass
    try:
        return _posix(datetime.fromisoformat(text))
    except ValueError:
        pass
    for pattern in _FORMATS:
        try:
            return _posix(datetime.strptime(text, pattern))
        except ValueError:
            continue
    return None


def _posix(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _figures(path: Path, rows: Sequence[Sequence[str]], column: int) -> Floats:
    figures = np.empty(len(rows))
    for index, row in enumerate(rows):
        try:
            figures[index] = float(row[column])
        except (ValueError, IndexError):
            figures[index] = math.nan
        if not 0 <= figures[index] < math.inf:
            raise BadTrace(
                f"{path}: row {index + 1}: found {_shown(row, column)}, expected a number, "
                "zero or more"
            )
    return figures


def _shown(row: Sequence[str], column: int) -> str:
    return repr(row[column][:40]) if column < len(row) else f"{len(row)} columns"


def _widths(path: Path, times: Floats) -> Floats:
    """Each bin reaches to the next; where the recording has a gap, it is of the usual width."""
    if len(times) < 2:
        raise BadTrace(f"{path}: found one bin, expected two or more: their width is unknown")
    steps = np.diff(times)
    usual = float(np.percentile(steps[steps > 0], 50, method="lower")) if steps.any() else 0.0
    if usual <= 0:
        raise BadTrace(f"{path}: found one time only, expected bins that follow each other")
    steps = np.where(steps > _GAP * usual, usual, steps)
    return np.append(steps, usual)
