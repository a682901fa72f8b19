"""Which failed tests CI may run once more, alone: few, and only those of real processes.

A test that starts executors, workers and brokers can fail because two cores were busy. One that
judges whether a job is lost or ends twice, whether a replay is equal, or what a key may do, fails
for a reason; and so does one that starts no process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

MOST = 4
_WITH_PROCESSES = ("integration", "e2e")
_JUDGES = (
    "test_batches_killed",
    "test_disk_full",
    "test_forged",
    "test_invariants",
    "test_permi",
    "test_pipeline_killed",
    "test_replay",
    "test_reply_subjects",
    "test_turnover",
)


def refused(nodeids: Iterable[str]) -> str:
    """Why these tests get no second attempt; empty where they do."""
    failed = list(nodeids)
    if len(failed) > MOST:
        return f"{len(failed)} tests failed; at most {MOST} are run once more"
    final = [nodeid for nodeid in failed if not _may_repeat(nodeid)]
    return f"a failure of these is final: {', '.join(final)}" if final else ""


def _may_repeat(nodeid: str) -> bool:
    path = PurePath(nodeid.partition("::")[0])
    return path.parts[1] in _WITH_PROCESSES and not path.name.startswith(_JUDGES)
