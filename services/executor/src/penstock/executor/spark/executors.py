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


def active_tasks(
    master: Master, executors: Mapping[str, Sequence[Found]]
) -> dict[str, tuple[int | None, ...]]:
    """Of each Worker's executors, how many tasks they run now.

    None for one that its application does not know (it is starting) or that nobody tells about.
    """
    apps = {each.app_id for found in executors.values() for each in found}
    told = {app_id: _told(master, app_id) for app_id in apps}
    return {
        worker: tuple(told[each.app_id].get(each.executor_id) for each in found)
        for worker, found in executors.items()
    }


def _told(master: Master, app_id: str) -> dict[str, int]:
    try:
        return {each.id: each.active_tasks for each in master.executors(app_id)}
    except MasterAway as error:
        log.debug("%s", error)
        return {}


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
