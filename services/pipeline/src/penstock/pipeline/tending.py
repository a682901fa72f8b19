"""Queries that are started again when they fail: a broker restarts, a Python worker dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.bus.protocol import BusRefused
from penstock.pipeline.core.options import BadOption
from penstock.pipeline.core.patience import Trouble, after_failure, pause_seconds
from penstock.pipeline.core.ranges import StreamChanged

log = logging.getLogger("penstock.pipeline")

_LASTING = tuple(error.__name__ for error in (BusRefused, BadOption, StreamChanged))
"""What another try does not change; of errors in its Python processes Spark hands on the text."""


class Tending:
    """Some queries, kept running.

    Args:
        starts: by name, what starts it. landed: how many batches of it have landed in this run.
        give_up: raises where trying again is of no use, because the lake is somebody else's.
    """

    def __init__(
        self,
        spark: SparkSession,
        starts: Mapping[str, Callable[[], StreamingQuery]],
        landed: Callable[[str], int],
        give_up: Callable[[], None],
    ) -> None:
        self._spark, self._starts, self._landed, self._give_up = spark, starts, landed, give_up
        self._troubles: dict[str, Trouble] = {}

    def run(self) -> None:
        """Until each query has ended by itself, as those do that only catch up.

        Raises:
            StreamingQueryException: one failed for good, or for too long.
        """
        running = {name: start() for name, start in self._starts.items()}
        while running:
            for name, query in list(running.items()):
                if query.isActive:
                    continue
                if error := query.exception():
                    running[name] = self._again(name, error)
                else:
                    del running[name]
            self._await_one()

    def _await_one(self) -> None:
        try:
            self._spark.streams.awaitAnyTermination(_LOOK_SECONDS)
        except StreamingQueryException:
            return  # the query itself says so too
        finally:
            self._spark.streams.resetTerminated()

    def _again(self, name: str, error: StreamingQueryException) -> StreamingQuery:
        self._give_up()
        trouble = after_failure(self._troubles.get(name), self._landed(name), time.monotonic())
        self._troubles[name] = trouble
        pause = pause_seconds(trouble, time.monotonic())
        said = str(error)
        if pause is None or any(f"{kind}: " in said for kind in _LASTING):
            raise error
        log.warning("%s: failed, goes on in %.1f s: %s", name, pause, said.strip()[-500:])
        time.sleep(pause)
        return self._starts[name]()


_LOOK_SECONDS = 1
