"""The buses that a test runs over: one in the usual run, both in the long one.

The contract suite proves that the bus in memory and NATS behave alike, so a test of what is above
the bus need not run over both each time.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest


def both(usual: Literal["memory", "nats"]) -> list[Any]:
    """Parameters of a fixture: ``usual`` in each run, the other bus in the long suite only."""
    return [
        kind if kind == usual else pytest.param(kind, marks=pytest.mark.long)
        for kind in ("memory", "nats")
    ]


on_both = pytest.mark.parametrize("stage", ["memory", "nats"], indirect=True)
"""For a test that takes another way through the code over each bus: both in each run."""
