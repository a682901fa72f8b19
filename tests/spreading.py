"""How tests are spread over processes: those of a file stay together, and Java runs in one only."""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

WITH_SPARK = ("test_bench_spark", "test_pipeline", "test_spark", "test_stories")
"""How the names of files begin whose tests start a Java process for a minute."""


def starts_spark(nodeid: str) -> bool:
    """Whether the tests of this file start a Java process."""
    return PurePath(nodeid.partition("::")[0]).name.startswith(WITH_SPARK)


class ByFile(LoadFileScheduling):
    """A unit of work is a file, and all files with Spark together: two cores carry one Java."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if starts_spark(nodeid) else super()._split_scope(nodeid)
