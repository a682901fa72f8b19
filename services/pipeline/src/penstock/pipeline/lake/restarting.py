"""Queries that are started again when they fail: a broker restarts, a Python worker dies.

Where that does not help, Java may be what is broken: then all of the session is made anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.bus.protocol import BusRefused
from penstock.pipeline.core.options import BadOption
from penstock.pipeline.core.patience import (
    BARREN_SESSIONS,
    Trouble,
    after_failure,
    pause_seconds,
)
from penstock.pipeline.core.ranges import StreamChanged

Result = TypeVar("Result")
log = logging.getLogger("penstock.pipeline")

_LASTING = tuple(error.__name__ for error in (BusRefused, BadOption, StreamChanged))
"""Errors that last; of errors in its Python processes Spark passes on the text only."""


_MOST_LETTERS = 500
_TRACES = ("\tat ", "  ", "Traceback ")
"""Beginnings of lines of Java's and Python's stack traces."""
_ABOUT_THE_QUERY = "=== Streaming Query ==="
"""The heading that Spark puts after the reason."""


class QueryFailed(RuntimeError):
    """A query failed for good; the text is kept, as Spark's exception needs its Java to be read."""


class Stuck(QueryFailed):
    """A query failed for as long as one session is given. ``landed``: its batches before that."""

    def __init__(self, text: str, landed: int) -> None:
        super().__init__(text)
        self.landed = landed


def reason(error: str) -> str:
    """The end of the error text, without where in Spark it was and which query that is."""
    message = error.partition(_ABOUT_THE_QUERY)[0]
    lines = [line for line in message.splitlines() if line and not line.startswith(_TRACES)]
    return "\n".join(lines)[-_MOST_LETTERS:].strip()


def in_sessions(one: Callable[[], Result]) -> Result:
    """``one()``, which opens a session: again in another one as long as queries get stuck.

    Raises:
        Stuck: in so many sessions in a row, none of which landed a batch.
    """
    barren = 0
    while True:
        try:
            return one()
        except Stuck as stuck:
            # a session that landed batches made progress: only fruitless ones in a row end the run
            barren = 0 if stuck.landed else barren + 1
            if barren >= BARREN_SESSIONS:
                raise
            log.warning(
                "no batch for too long, restarting with a fresh Java; last error: %s", stuck
            )


class RestartedQueries:
    """Some queries, kept running.

    Args:
        spark: the session.
        starts: by name, the function that starts it.
        landed: how many batches of it have landed in this run.
        give_up: raises where trying again is of no use, because another run holds the lake.
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
            QueryFailed: one failed for good. Stuck: for too long.
        """
        running = {name: start() for name, start in self._starts.items()}
        while running:
            for name, query in list(running.items()):
                if query.isActive:
                    continue
                if error := query.exception():
                    running[name] = self._restart(name, error)
                else:
                    del running[name]
            self._await_one()

    def _await_one(self) -> None:
        try:
            self._spark.streams.awaitAnyTermination(_LOOK_SECONDS)
        except StreamingQueryException:
            return  # the query itself has the same exception
        finally:
            self._spark.streams.resetTerminated()

    def _restart(self, name: str, error: StreamingQueryException) -> StreamingQuery:
        self._give_up()
        landed, text = self._landed(name), str(error)
        trouble = after_failure(self._troubles.get(name), landed, time.monotonic())
        self._troubles[name] = trouble
        pause = pause_seconds(trouble, time.monotonic())
        problem = f"{name}: {reason(text)}"
        if any(f"{kind}: " in text for kind in _LASTING):
            raise QueryFailed(problem)
        if pause is None:
            raise Stuck(problem, landed)
        log.warning("query failed, restarting it in %.1f s; %s", pause, problem)
        time.sleep(pause)
        return self._starts[name]()


_LOOK_SECONDS = 1
