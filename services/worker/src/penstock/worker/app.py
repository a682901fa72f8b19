"""`penstock worker --pool NAME`: one job worker without an executor."""

from __future__ import annotations

import sys

from penstock.config import ConfigError, Settings
from penstock.config.topology import pools
from penstock.worker import process


def run(settings: Settings, pool: str = "", burst: bool = False) -> None:
    """Serves a pool until it is told to stop; the only pool there is, when none is named.

    Args:
        burst: only until nothing waits.
    """
    known = sorted(pools(settings))
    if not pool and len(known) != 1:
        raise ConfigError(f"say which pool: --pool NAME; known pools: {', '.join(known) or 'none'}")
    sys.exit(process.main(process.alone(settings, pool or known[0], burst)))
