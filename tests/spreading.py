"""How tests are spread over processes: those of a file stay together, and Java runs in two only.

Most integration tests wait (for a lease to lapse, a process to start) and leave the cores to
others, so several processes share two cores. What computes comes last and fills the gaps.
"""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

PIPELINE = "tests/integration/pipeline/"
"""Its tests share one session."""
WITH_SPARK = (
    "test_bench_spark",
    "test_spark",
    "test_stories",
    "test_stream_",
    "test_testing_page",
    "test_tutorials",
    "test_workflow_example",
)
"""How the names of other files begin whose tests start a Java process for a minute."""
_FOLDERS = ("chaos", "turnover", "e2e", "integration", "contract", "exactness", "component", "unit")
"""Those with the longest files first, so that no process is left alone with one at the end."""


def java_group(nodeid: str) -> str:
    """What runs in one process, one after the other, since it needs Java; else empty."""
    path = PurePath(nodeid.partition("::")[0])
    if nodeid.startswith(PIPELINE):
        return "pipeline"
    is_unit = path.parts[1] == "unit"
    return "spark" if path.name.startswith(WITH_SPARK) and not is_unit else ""


def turn(nodeid: str) -> int:
    """When the test's turn is: the longest pieces of work come first."""
    if java_group(nodeid):
        return -1
    folder = PurePath(nodeid).parts[1]
    return _FOLDERS.index(folder) if folder in _FOLDERS else len(_FOLDERS)


class ByFile(LoadFileScheduling):
    """A unit of work is a file, or all files of a group with Java: two cores carry two Javas."""

    def _split_scope(self, nodeid: str) -> str:
        return java_group(nodeid) or super()._split_scope(nodeid)
