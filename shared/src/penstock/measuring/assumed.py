"""Assumptions where nothing was measured yet."""

from __future__ import annotations

from typing import Final

UNKNOWN_JOB_SECONDS: Final = 1.0
"""Run time of a job while none has ended."""
UNKNOWN_SPAWN_SECONDS: Final = 1.0
"""Time until a worker is ready while none has been."""
LEAST_JOB_SECONDS: Final = 1e-6
"""Run times are divided by: one of zero is taken for this."""
