"""Files of encryption keys."""

from __future__ import annotations

import base64
from pathlib import Path


def write(path: Path, *ids: str) -> None:
    """A key for each id, the first of which encrypts."""
    lines = [f"{key} {base64.b64encode(key.ljust(32).encode()).decode()}\n" for key in ids]
    path.touch(mode=0o600)
    path.write_text("".join(lines))
