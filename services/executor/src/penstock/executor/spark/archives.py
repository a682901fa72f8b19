"""Has this host's class archives made, beside everything else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from penstock.executor.spark.java import SparkMissing, find_spark
from penstock.runtime import children
from penstock.runtime.interpreter import module_command
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor")

_CHECK_SECONDS = 5.0
_USED_CHECKS = 12
"""A host that uses Spark once will use it again: after a minute of use making it pays."""
_BUSY_CHECKS = 360
"""Making one takes two minutes of a core, at the lowest priority: for so many checks, half an hour,
it waits for a moment in which no job runs here. On a host that always runs jobs it is made then."""


async def keep_made(
    used: Mapping[str, Callable[[], bool]],
    is_idle: Callable[[], bool],
    make: Callable[[str], Awaitable[None]] | None = None,
    check_seconds: float = _CHECK_SECONDS,
) -> None:
    """Has each archive made that is missing once it was needed for a while; one try each.

    Args:
        used: by kind of archive, whether such a process runs now.
        is_idle: whether no job runs on this host now.
        make: makes one of a kind; None has it made by a process of the lowest priority.
        check_seconds: time between two looks at ``used``.
    """
    looks = dict.fromkeys(used, 0)
    while looks:
        await asyncio.sleep(check_seconds)
        for kind in [kind for kind in looks if used[kind]()]:
            looks[kind] += 1
            if looks[kind] >= (_USED_CHECKS if is_idle() else _BUSY_CHECKS):
                del looks[kind]
                await (make or _make)(kind)


async def _make(kind: str) -> None:
    with suppress(SparkMissing, children.ChildFailed):
        if await asyncio.to_thread(lambda: bool(find_spark().archive(kind).flags)):
            return
        log.info("class archive %r is being made: Spark will start faster", kind)
        argv = module_command("penstock.executor.spark.training", kind, *lines.flags())
        child = children.start(argv, name="spark training")
        await child.ended()
        await child.stop()
