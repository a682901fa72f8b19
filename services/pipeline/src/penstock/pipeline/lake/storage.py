"""A folder on any file system that Hadoop knows, through the session's own Java."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class Folder:
    """The operations of a file system that the lake needs.

    Args:
        uri: such as ``/data/lake``, ``hdfs://…`` or ``s3a://…``.
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._java: Any = spark._jvm
        path = self._java.org.apache.hadoop.fs.Path(uri)
        self._fs = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self.uri = str(self._fs.makeQualified(path).toString())

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self.uri}/{path}")

    def find(self, pattern: str) -> list[tuple[str, int]]:
        """Paths below the folder that fit a glob, with their sizes in bytes."""
        statuses = self._fs.globStatus(self._path(pattern)) or ()
        return sorted(
            (str(one.getPath().toString()).removeprefix(f"{self.uri}/"), int(one.getLen()))
            for one in statuses
        )

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, body: bytes) -> bool:
        """Makes a file unless there is one; False where there is. Of several, one succeeds."""
        if local := self.local(path):  # Hadoop looks first and then writes: a race
            local.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), local.open("xb") as made:
                made.write(body)
                return True
            return False
        try:
            self._fill(self._fs.create(self._path(path), False), body)
        except Py4JJavaError:
            if self.exists(path):
                return False
            raise
        return True

    def replace(self, path: str, body: bytes) -> None:
        """Writes over what is there; on some file systems a reader may see it half written."""
        if local := self.local(path):  # without the checksum beside it, which may be cut off
            fresh = local.with_name(f"_fresh-{uuid.uuid4().hex}")
            fresh.write_bytes(body)
            fresh.replace(local)
            return
        self._fill(self._fs.create(self._path(path), True), body)

    def local(self, path: str) -> Path | None:
        """Where it is for everybody's eyes; None on other file systems than files."""
        uri = self._path(path).toUri()
        return Path(str(uri.getPath())) if uri.getScheme() == "file" else None

    @staticmethod
    def _fill(stream: Any, body: bytes) -> None:
        try:
            stream.write(bytearray(body))
        finally:
            stream.close()

    def write(self, path: str, body: bytes) -> None:
        """All at once: a reader sees the file whole or not at all. Nothing may be there yet."""
        fresh = self._path(f"_fresh-{uuid.uuid4().hex}")
        self._fill(self._fs.create(fresh), body)
        target = self._path(path)
        self._fs.mkdirs(target.getParent())
        if not self._fs.rename(fresh, target):
            raise FileExistsError(f"{self.uri}/{path} cannot be written: is it there already?")

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)
