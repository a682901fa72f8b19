"""Which code decides: a replay by other code may differ without anything being wrong."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.metadata import entry_points, version
from pathlib import Path

from penstock.decider import core
from penstock.decider.plugins import GROUPS


@cache
def program() -> str:
    """Version of the decider, fingerprint of the code that decides, and installed strategies."""
    sources = blake2b(digest_size=4)
    for path in sorted(Path(core.__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    added = sorted(
        f"{point.name}@{point.dist.version if point.dist else '?'}"
        for group in GROUPS
        for point in entry_points(group=group)
    )
    return " ".join([f"{version('penstock-decider')}+{sources.hexdigest()}", *added])
