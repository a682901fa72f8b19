"""The benchmark's jobs for Huey, on Redis."""

from __future__ import annotations

import os
import time

from huey import RedisHuey

_RETRIES = 3 if os.environ["PEERS_MODE"] == "reliable" else 0

huey = RedisHuey("bench", url=f"{os.environ['PEERS_URL']}/0", blocking=True, results=True)


@huey.task(retries=_RETRIES)
def noop(number: int) -> int:
    return number


@huey.task(retries=_RETRIES)
def nap(number: int) -> int:
    time.sleep(0.1)
    return number


@huey.task(retries=_RETRIES)
def stamp() -> float:
    return time.time()


def dispatch(name: str, count: int) -> None:
    task = {"noop": noop, "nap": nap}[name]
    for number in range(count):
        task(number)


def ask() -> float:
    return float(stamp().get(blocking=True, timeout=30, preserve=True))


def recorded() -> int:
    return int(huey.storage.conn.hlen(huey.storage.result_key))
