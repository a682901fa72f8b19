"""Streams to be read by Spark, filled without an installation around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.bus.protocol import Outgoing
from penstock.bus.publishing import Publisher
from penstock.events.envelope import encode
from penstock.events.job import JobStarted
from penstock.pipeline.core.options import Reach
from penstock.pipeline.link import Link


class Tap:
    """A connection that makes and fills streams."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._publisher = Publisher(link.client, 30.0)
        link.run(self._publisher.open())

    def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        return self.link.run(self.link.ask(verb, body))

    def make(self, stream: str, subject: str) -> None:
        self.ask(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [subject]})

    def fill(self, subject: str, bodies: Iterable[bytes]) -> None:
        answers = self.link.run(
            self._publisher.append_many([Outgoing(subject, body) for body in bodies])
        )
        assert all(isinstance(answer, int) for answer in answers), answers


@contextmanager
def tap(url: str) -> Iterator[Tap]:
    with Link(Reach(servers=url)) as link:
        yield Tap(link)


def started(number: int) -> bytes:
    """An event that tells which one it is."""
    return encode(
        JobStarted(
            job_id=f"job-{number}",
            queue="q",
            worker="w",
            host="h",
            pickup_seconds=0.5,
            attempt=number,
        )
    )
