"""Rows of events as Parquet files, written by the tasks that read them.

Handing rows to Spark's own writer takes more than all the rest (measured: docs/benchmarks.md). So
where a lake is a folder of files, a task writes into a folder that no reader uses and returns the
names of its files; the driver moves them into place. Files of a failed task are never named.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.events import ASIDE, MALFORMED, UNKNOWN

PARTITIONS = ("set", "day", "event")
DDL = (
    "path string, bytes bigint, rows bigint, first bigint, last bigint, "
    f"{MALFORMED} bigint, {UNKNOWN} bigint"
)
"""A row each file; ``path`` below the folder that the task was given."""
_SCHEMA = pa.schema(
    [("path", pa.string())]
    + [(part.split()[0], pa.int64()) for part in DDL.split(", ") if "bigint" in part]
)
_GROUP_ROWS = 100_000
"""Rows in memory of a task before some are written: about 100 MB."""
_LEVEL = 1
_NO_TWO_ALIKE = ("body", "raw", "id", "payload", "subject")


class Landing:
    """The files of one task: one for each set, day and event."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"{uuid.uuid4().hex}.zstd.parquet"
        self._files: dict[str, _File] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of one event."""
        days = pc.unique(rows["day"]).to_pylist()
        for day in days:
            of_day = rows if len(days) == 1 else rows.filter(pc.equal(rows["day"], day))
            place = f"set={rows['set'][0]}/day={day}/event={rows['event'][0]}/{self._name}"
            if place not in self._files:
                self._files[place] = _File(self._folder / place)
            self._files[place].add(of_day.drop_columns(list(PARTITIONS)))

    def close(self) -> pa.RecordBatch:
        """Ends the files; what they are, as rows of :data:`DDL`."""
        written: defaultdict[str, list[object]] = defaultdict(list)
        for place, file in self._files.items():
            size = file.close()
            aside = f"set={ASIDE}/" in place
            written["path"].append(place)
            written["bytes"].append(size)
            for name in ("rows", "first", "last"):
                written[name].append(getattr(file, name))
            for why in (MALFORMED, UNKNOWN):
                written[why].append(file.rows if aside and f"/event={why}/" in place else 0)
        columns = [pa.array(written[field.name], field.type) for field in _SCHEMA]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self.rows, self.first, self.last = 0, 0, 0

    def add(self, rows: pa.RecordBatch) -> None:
        ends = pc.min_max(rows["stream_sequence"])
        first, last = ends["min"].as_py(), ends["max"].as_py()
        self.first = min(self.first or first, first)
        self.rows, self.last = self.rows + rows.num_rows, max(self.last, last)
        self._waiting.append(rows)
        if sum(batch.num_rows for batch in self._waiting) >= _GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        self._writer = self._writer or self._open(rows.schema)
        self._writer.write_table(rows)
        self._waiting = []

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # a dictionary of values that never repeat is larger than the values
        alike = [name for name in schema.names if name not in _NO_TWO_ALIKE]
        return pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=alike,
        )

    def close(self) -> int:
        """Its bytes."""
        if self._waiting:
            self._write()
        assert self._writer
        self._writer.close()
        return self._path.stat().st_size


def land(rows: Iterable[pa.RecordBatch], folder: Path) -> pa.RecordBatch:
    """Writes all of these; what the files are."""
    landing = Landing(folder)
    for batch in rows:
        landing.add(batch)
    return landing.close()
