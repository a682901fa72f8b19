"""Makes what tests begin with."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from penstock.config import Settings
from penstock.config.load import check


class MakeSettings:
    """Settings of one test: a prefix of its own, so that tests share a broker, and a run folder.

    Calling it gives settings; ``settings(pools={...}, jobs={"claim_seconds": 1})`` lays tables over
    those of the test. Each call of one test has the same prefix.
    """

    def __init__(self, nats_url: Callable[[], str], run_dir: str) -> None:
        self.prefix = f"t{uuid.uuid4().hex[:10]}"
        self._nats_url, self._run_dir = nats_url, run_dir

    def __call__(self, **tables: Any) -> Settings:
        tree: dict[str, Any] = {
            "prefix": self.prefix,
            "nats": {"url": self._nats_url(), "connect_timeout_seconds": 10},
            # The broker reserves these for each prefix.
            "streams": {"events_max_bytes": 16_000_000},
            "logs": {"max_bytes": 10_000_000},
            "host": {"name": "test-host", "run_dir": self._run_dir},
            "jobs": {"unknown_after_seconds": 0},  # there is no other version of the job code
        }
        for name, table in tables.items():
            tree[name] = {**tree.get(name, {}), **table} if isinstance(table, dict) else table
        return check(tree)
