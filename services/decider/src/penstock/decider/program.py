"""The fingerprint of the program: a replay by another program may differ without a fault.

The fingerprint covers all code that a recomputed decision depends on: the core, the settings and
profiles, the events that it is written as, and every installed strategy and policy by its content.
Not covered are the C library's mathematics, the time zone data, and what plug-ins import from
other distributions.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path

from penstock.decider.plugins import GROUPS

log = logging.getLogger("penstock.decider")

COVERED = (
    "penstock.config",
    "penstock.decider.publishing.adopting",
    "penstock.decider.core",
    "penstock.decider.intake",
    "penstock.decider.publishing.journal",
    "penstock.decider.publishing.recorder",
    "penstock.events",
    "penstock.measuring",
)
"""Packages (whole) and modules: how settings and snapshots are read, the decision, its event."""


@cache
def program() -> str:
    """Version and fingerprint of the decider, its runtime, and the same of each plug-in."""
    own = _fingerprint(path for module in COVERED for path in sources(module))
    plugins = sorted(_plugin(point) for group in GROUPS for point in entry_points(group=group))
    return " ".join(
        [
            f"{version('penstock-decider')}+{own}",
            f"python-{platform.python_version()}",
            f"msgspec-{version('msgspec')}",
            *plugins,
        ]
    )


def sources(module: str) -> list[Path]:
    """The files of a module, or of the package that it is."""
    spec = find_spec(module)
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [Path(spec.origin)] if spec.origin else []
    return [
        path
        for folder in spec.submodule_search_locations
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]


def _plugin(point: EntryPoint) -> str:
    release = point.dist.version if point.dist else "?"
    try:
        content = _fingerprint(sources(_distributed(point.module)))
    except Exception as error:  # code of others, that could not be loaded either
        log.debug("the content of %s cannot be read: %r", point.value, error)
        content = "?"
    return f"{point.name}@{release}+{content}"


def _distributed(module: str) -> str:
    """The outermost part of a dotted name that is no namespace: all of it is one package's."""
    for name in _upward(module):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            return name
    return module


def _upward(module: str) -> Iterator[str]:
    """``a``, ``a.b``, ``a.b.c``."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _fingerprint(paths: Iterable[Path]) -> str:
    content = blake2b(digest_size=4)
    for path in paths:
        # name and length go first, so that no content moves between files unnoticed
        raw = path.read_bytes()
        content.update(f"{path.name} {len(raw)}\n".encode())
        content.update(raw)
    return content.hexdigest()
