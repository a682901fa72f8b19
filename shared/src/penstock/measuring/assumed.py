"""What is assumed where nothing was measured yet."""

from __future__ import annotations

from typing import Final

UNKNOWN_JOB_SECONDS: Final = 1.0
"""How long a job runs of which none has ended."""
UNKNOWN_SPAWN_SECONDS: Final = 1.0
"""How long a worker takes to be ready in a pool where none was."""
