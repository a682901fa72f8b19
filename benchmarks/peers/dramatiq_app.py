"""The benchmark's jobs for Dramatiq, on Redis."""

from __future__ import annotations

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

_URL = os.environ["PEERS_URL"]

results = RedisBackend(url=f"{_URL}/1")
broker = RedisBroker(url=f"{_URL}/0")
broker.add_middleware(Results(backend=results, store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="bench")
def noop(number: int) -> int:
    return number


@dramatiq.actor(queue_name="bench")
def nap(number: int) -> int:
    time.sleep(0.1)
    return number


@dramatiq.actor(queue_name="bench")
def stamp() -> float:
    return time.time()


def dispatch(name: str, count: int) -> None:
    actor = broker.get_actor(name)
    for number in range(count):
        actor.send(number)


def ask() -> float:
    return float(stamp.send().get_result(block=True, timeout=30_000))


def recorded() -> int:
    """A result is a key, and there is nothing else in that database."""
    return int(results.client.dbsize())
