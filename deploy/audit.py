"""Compares what requirements.lock pins with known advisories.

python deploy/audit.py ADVISORIES    a folder, or a zip, of advisories in the OSV format, such as
                                     the export of the OSV database for PyPI, fetched beforehand
python deploy/audit.py               asks pip-audit, if it is installed

Exit code 1: a pinned version is affected. Where neither is there, or pip-audit reaches no database,
the audit is skipped and says why (exit code 0, so that work without a network goes on; exit code 2
with --required).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-build.lock")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.M)
_WAIT_SECONDS = 300


class Skipped(Exception):
    """Nothing was compared; the text says why."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="audit.py", description="Known advisories of what is pinned."
    )
    parser.add_argument("advisories", nargs="?", type=Path, help="folder or zip, OSV format")
    parser.add_argument("--required", action="store_true", help="a skipped audit is a failure")
    options = parser.parse_args(arguments)
    pins = pinned((ROOT / lock).read_text("utf-8") for lock in LOCKS)
    try:
        affected = list(
            matches(pins, read(options.advisories)) if options.advisories else by_pip_audit()
        )
    except Skipped as reason:
        sys.stdout.write(f"audit skipped: {reason}\n")
        return 2 if options.required else 0
    for line in sorted(affected):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(affected)} known advisories for {len(pins)} pinned packages\n")
    return 1 if affected else 0


def pinned(locks: Iterable[str]) -> dict[str, set[str]]:
    """Versions by canonical name; a lock may pin one name for several Pythons."""
    pins: dict[str, set[str]] = {}
    for name, version in (pin.groups() for lock in locks for pin in _PINNED.finditer(lock)):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


def read(source: Path) -> Iterator[Mapping[str, Any]]:
    """Advisories of a folder or zip. Raises Skipped: there is none."""
    if source.is_dir():
        texts: Iterable[bytes] = (path.read_bytes() for path in sorted(source.rglob("*.json")))
    elif source.is_file() and zipfile.is_zipfile(source):
        archive = zipfile.ZipFile(source)
        texts = (archive.read(name) for name in archive.namelist() if name.endswith(".json"))
    else:
        raise Skipped(f"{source}: found no folder and no zip of advisories; fetch OSV's for PyPI")
    count = 0
    for text in texts:
        count += 1
        yield json.loads(text)
    if not count:
        raise Skipped(f"{source}: holds no advisory")


def matches(pins: Mapping[str, set[str]], advisories: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each advisory that affects a pinned version."""
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for part in advisory.get("affected", ()):
            package = part.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") != "PyPI":
                continue
            for version in sorted(pins.get(name, ())):
                if is_affected(version, part):
                    summary = str(advisory.get("summary", ""))
                    yield f"{name} {version}: {advisory.get('id')} {summary}".rstrip()


def is_affected(version: str, part: Mapping[str, Any]) -> bool:
    """As the OSV schema evaluates it: a listed version, or inside a range of the ecosystem."""
    if version in part.get("versions", ()):
        return True
    return any(
        _inside(Version(version), ranges.get("events", ()))
        for ranges in part.get("ranges", ())
        if ranges.get("type") == "ECOSYSTEM"
    )


def _inside(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """The last event that the version has reached decides; what cannot be read comes first."""
    inside = False
    for at, kind in sorted(
        (_version(text), kind) for event in events for kind, text in event.items()
    ):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def by_pip_audit() -> Iterator[str]:
    """What pip-audit reports. Raises Skipped: it is not installed, or reaches no database."""
    if not (program := shutil.which("pip-audit")):
        raise Skipped(
            "no advisories are given and pip-audit is not installed; run "
            "'make audit ADVISORIES=folder-or-zip', or install pip-audit"
        )
    locks = [word for lock in LOCKS for word in ("--requirement", str(ROOT / lock))]
    argv = [program, "--disable-pip", "--require-hashes", "--format", "json", *locks]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=_WAIT_SECONDS
        )
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise Skipped("pip-audit reached no database of advisories") from None
    for package in report["dependencies"]:
        for advisory in package.get("vulns", ()):
            yield f"{package['name']} {package['version']}: {advisory['id']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
