"""Which executors run below this host's Spark Workers, and which of them have tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec
import psutil

from penstock.spark.master import Master, MasterAway

log = logging.getLogger("penstock.executor")


class SparkExecutor(msgspec.Struct, frozen=True):
    """A process below a Worker; an application's executor, by its command line."""

    pid: int
    app_id: str
    executor_id: str


def executors_below(workers: Mapping[str, int]) -> dict[str, tuple[SparkExecutor, ...]]:
    """The processes that each Worker has started and that still run.

    Args:
        workers: process ids by name.
    """
    return {name: tuple(_below(pid)) for name, pid in workers.items()}


def active_tasks(
    master: Master, executors: Mapping[str, Sequence[SparkExecutor]]
) -> dict[str, tuple[int | None, ...]]:
    """Of each Worker's executors, how many tasks they run now.

    None for one that its application does not know (it is starting), or whose application does not
    answer.
    """
    apps = {executor.app_id for below in executors.values() for executor in below}
    tasks = {app_id: _tasks(master, app_id) for app_id in apps}
    return {
        worker: tuple(tasks[executor.app_id].get(executor.executor_id) for executor in below)
        for worker, below in executors.items()
    }


def _tasks(master: Master, app_id: str) -> dict[str, int]:
    try:
        return {executor.id: executor.active_tasks for executor in master.executors(app_id)}
    except MasterAway as error:
        log.debug("%s", error)
        return {}


def _below(pid: int) -> Iterator[SparkExecutor]:
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    words = process.cmdline()
                    app_id, executor_id = _after(words, "--app-id"), _after(words, "--executor-id")
                    yield SparkExecutor(process.pid, app_id, executor_id)


def _after(words: Sequence[str], name: str) -> str:
    """The argument behind ``name``; empty where it is not there."""
    return next((after for word, after in pairwise(words) if word == name), "")
