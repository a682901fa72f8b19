"""How tests are spread over processes: those of a file stay together, and Java runs in one only.

Most integration tests wait (for a lease to lapse, a process to start) and leave the cores to
others, so several processes share two cores. What computes comes last and fills the gaps.
"""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

WITH_SPARK = ("test_bench_spark", "test_pipeline", "test_spark", "test_stories")
"""How the names of files begin whose tests start a Java process for a minute."""
_FOLDERS = ("chaos", "turnover", "e2e", "integration", "contract", "exactness", "component", "unit")
"""Those with the longest files first, so that no process is left alone with one at the end."""


def starts_spark(nodeid: str) -> bool:
    """Whether the tests of this file start a Java process."""
    path = PurePath(nodeid.partition("::")[0])
    return path.parts[1:2] != ("unit",) and path.name.startswith(WITH_SPARK)


def turn(nodeid: str) -> int:
    """When the test's turn is: the longest pieces of work come first."""
    if starts_spark(nodeid):
        return -1
    folder = PurePath(nodeid).parts[1]
    return _FOLDERS.index(folder) if folder in _FOLDERS else len(_FOLDERS)


class ByFile(LoadFileScheduling):
    """A unit of work is a file, and all files with Spark together: two cores carry one Java."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if starts_spark(nodeid) else super()._split_scope(nodeid)
