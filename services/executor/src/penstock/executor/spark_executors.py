"""Which executors run below this host's Spark Workers, and which of them have tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec
import psutil

from penstock.runtime.spark_master import Master, MasterAway

log = logging.getLogger("penstock.executor")


class Found(msgspec.Struct, frozen=True):
    """A process below a Worker; an application's executor, as far as its command line says."""

    pid: int
    app_id: str
    executor_id: str


def executors_below(workers: Mapping[str, int]) -> dict[str, tuple[Found, ...]]:
    """What each Worker has started and is not over.

    Args:
        workers: process ids by name.
    """
    return {name: tuple(_below(pid)) for name, pid in workers.items()}


def busy(master: Master, executors: Mapping[str, Sequence[Found]]) -> set[str]:
    """The Workers where tasks run, or will at once.

    An executor that its application does not know yet is starting; one whose application does not
    answer is taken as busy.
    """
    apps = {each.app_id for found in executors.values() for each in found}
    idle = {app_id: _idle(master, app_id) for app_id in apps}
    return {
        worker
        for worker, found in executors.items()
        if any(each.executor_id not in idle[each.app_id] for each in found)
    }


def _idle(master: Master, app_id: str) -> frozenset[str]:
    """Executors of an application that have no task now."""
    try:
        return frozenset(each.id for each in master.executors(app_id) if not each.active_tasks)
    except MasterAway as error:
        log.debug("%s", error)
        return frozenset()


def _below(pid: int) -> Iterator[Found]:
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    words = process.cmdline()
                    app_id, executor_id = _after(words, "--app-id"), _after(words, "--executor-id")
                    yield Found(process.pid, app_id, executor_id)


def _after(words: Sequence[str], name: str) -> str:
    """The argument behind ``name``; empty where it is not there."""
    return next((after for word, after in pairwise(words) if word == name), "")
