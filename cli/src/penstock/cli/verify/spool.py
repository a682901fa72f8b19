"""Histories sorted by job, on disk: memory holds one part of them at a time."""

from __future__ import annotations

import zlib
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.bus.protocol import Stored
from penstock.events.batch import BATCH_EVENTS
from penstock.events.envelope import Event, UnknownEvent, encode
from penstock.events.graph import GRAPH_EVENTS
from penstock.events.job import JOB_EVENTS
from penstock.jobs.event_store.event_log import read_event
from penstock.verifying import workflows
from penstock.verifying.rules import History

PART_MESSAGES = 100_000
"""About 100 MB of events in memory."""
_MOST_PARTS = 256
_LARGE_BYTES = 1_000
"""Of a body: calls and results are left out of what is larger, no rule is about them."""
_LEFT_OUT = ("payload", "result")
_LENGTH_BYTES = 4
_WHEN = datetime.fromtimestamp(0, UTC)
_CODECS = {"job": JOB_EVENTS, "batch": BATCH_EVENTS, "graph": GRAPH_EVENTS}

Histories = dict[str, History]


class _Message(msgspec.Struct, array_like=True):
    sequence: int
    subject: str
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode


class Spool:
    """Messages of jobs and graphs in files of a folder, by a hash of what belongs together.

    Batches are of another file each time, and are read before all jobs.

    Args:
        folder: an empty one.
        messages: about how many will come.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        self._folder = folder
        self.parts = min(max(-(-messages // PART_MESSAGES), 1), _MOST_PARTS)
        self._files: dict[str, BinaryIO] = {}

    def put(self, noun: str, key: str, sequence: int, subject: str, body: bytes) -> None:
        """Adds a message.

        Args:
            noun: ``job``, ``batch`` or ``graph``.
            key: id of the job, batch or graph.
            sequence: of the message.
            subject: of the message.
            body: of the message.
        """
        if len(body) > _LARGE_BYTES:
            body = _shortened(Stored(subject, sequence, _WHEN, body), noun)
        together = (workflows.graph_of(key) or key) if noun == "job" else key
        part = zlib.crc32(together.encode()) % self.parts
        message = _encode(_Message(sequence, subject, body))
        file = self._file("batches" if noun == "batch" else "jobs", part)
        file.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)

    def batches(self, part: int, first: int) -> Histories:
        """A part of the batches; their events from sequence ``first`` on."""
        return self._read("batches", part, first)["batch"]

    def jobs(self, part: int, first: int) -> tuple[Histories, Histories]:
        """A part of the jobs, and the graphs that belong to them; events as of :meth:`batches`."""
        histories = self._read("jobs", part, first)
        return histories["job"], histories["graph"]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, kind: str, part: int) -> BinaryIO:
        name = f"{kind}-{part}"
        if name not in self._files:
            self._files[name] = (self._folder / name).open("w+b")
        return self._files[name]

    def _read(self, kind: str, part: int, first: int) -> dict[str, Histories]:
        histories: dict[str, Histories] = defaultdict(lambda: defaultdict(list))
        file = self._file(kind, part)
        file.seek(0)
        while length := file.read(_LENGTH_BYTES):
            message = _decode(file.read(int.from_bytes(length, "big")))
            if message.sequence < first:
                continue
            _, noun, key, _ = message.subject.rsplit(".", 3)
            stored = Stored(message.subject, message.sequence, _WHEN, message.body)
            event = read_event(stored, _CODECS[noun])
            histories[noun][key].append((message.sequence, event))
        return histories


def _shortened(stored: Stored, noun: str) -> bytes:
    event: Event | UnknownEvent = read_event(stored, _CODECS[noun])
    names = [name for name in _LEFT_OUT if name in getattr(event, "__struct_fields__", ())]
    if isinstance(event, UnknownEvent) or not names:
        return stored.body
    return encode(msgspec.structs.replace(event, **dict.fromkeys(names, b"")))
