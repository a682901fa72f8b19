"""A stream in memory: messages by sequence, found by subject, appended with compare-and-set."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from penstock.bus.patterns import compiled, matches
from penstock.bus.protocol import Expect, Extent, Outgoing, Stored, StreamFull, WrongSequence

_AROUND_BYTES = 30


class Stream:
    """One stream.

    Args:
        config: as `penstock.bus.streams` declares it; the parts that shape behaviour are obeyed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name: str = config["name"]
        self.allows_atomic: bool = config.get("allow_atomic", False)
        self.last_sequence = 0
        self.messages: dict[int, Stored] = {}
        self._patterns: list[str] = config["subjects"]
        self._max_bytes: int = max(config.get("max_bytes", 0), 0)
        self._refuses_when_full = config.get("discard") == "new"
        self._bytes = self.extra_bytes = 0
        self.denies_removal: bool = config.get("deny_purge", False)
        self._keeps_last_only = config.get("max_msgs_per_subject") == 1
        self._sequences: dict[str, dict[int, None]] = {}
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Subjects by what stands before any of their dots: makes wildcard look-ups cheap."""

    def takes(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self._patterns)

    def check(self, message: Outgoing) -> None:
        """Raises WrongSequence where the message's expectation does not hold, StreamFull."""
        if (expect := message.expect) is not None:
            last = self.last(_guarded(message, expect))
            actual = last.sequence if last else 0
            if actual != expect.sequence:
                raise WrongSequence(message.subject, expect.sequence, actual)
        size = _size(message.subject, message.body, message.headers)
        if self._refuses_when_full and self._bytes + size > self._max_bytes + self.extra_bytes:
            raise StreamFull(f"{message.subject}: its stream is full (maximum bytes exceeded)")

    def add(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str],
        at: float,
        compared: Expect | None = None,
    ) -> Stored:
        self.last_sequence += 1
        stored = Stored(
            subject=subject,
            sequence=self.last_sequence,
            at=datetime.fromtimestamp(at, UTC),
            body=body,
            headers=dict(headers),
            compared=compared,
        )
        if self._keeps_last_only:
            self.remove(subject)
        self.messages[stored.sequence] = stored
        self._bytes += _size(subject, body, headers)
        self._sequences.setdefault(subject, {})[stored.sequence] = None
        for head in _heads(subject):
            self._below[head][subject] = None
        return stored

    def last(self, pattern: str, before: int = 0) -> Stored | None:
        if before:
            numbers = [number for number in self._in_order(pattern) if number < before]
            return self.messages[numbers[-1]] if numbers else None
        ends = [next(reversed(sequences)) for sequences in self._sequences_of(pattern)]
        return self.messages[max(ends)] if ends else None

    def next(self, pattern: str, sequence: int) -> Stored | None:
        for number in self._in_order(pattern):
            if number >= sequence:
                return self.messages[number]
        return None

    def history(self, pattern: str, limit: int, start: int = 1) -> list[Stored]:
        numbers = [number for number in self._in_order(pattern) if number >= start]
        return [
            replace(self.messages[number], behind=len(numbers) - 1 - place)
            for place, number in enumerate(numbers[:limit])
        ]

    def last_per_subject(self, pattern: str) -> list[Stored]:
        ends = sorted(next(reversed(sequences)) for sequences in self._sequences_of(pattern))
        return [self.messages[number] for number in ends]

    def count(self, pattern: str) -> dict[str, int]:
        return {subject: len(self._sequences[subject]) for subject in self._subjects(pattern)}

    def extent(self) -> Extent:
        return Extent(
            first=next(iter(self.messages), self.last_sequence + bool(self.last_sequence)),
            last=self.last_sequence,
            messages=len(self.messages),
            bytes=self._bytes,
            max_bytes=self._max_bytes + self.extra_bytes,
            configured_bytes=self._max_bytes,
        )

    def remove(self, pattern: str, before: int = 0) -> None:
        for number in self._in_order(pattern):
            if not before or number < before:
                self.drop(number)

    def drop(self, sequence: int) -> None:
        """Deletes one message if it is there."""
        stored = self.messages.pop(sequence, None)
        if stored is None:
            return
        self._bytes -= _size(stored.subject, stored.body, stored.headers)
        left = self._sequences[stored.subject]
        del left[sequence]
        if not left:
            del self._sequences[stored.subject]
            for head in _heads(stored.subject):
                del self._below[head][stored.subject]

    def _subjects(self, pattern: str) -> list[str]:
        literal = re.split(r"[*>]", pattern, maxsplit=1)[0]
        if literal == pattern:
            return [pattern] if pattern in self._sequences else []
        near = self._below.get(literal.rstrip("."), {}) if literal else self._sequences
        is_match = compiled(pattern).fullmatch
        return [subject for subject in near if is_match(subject)]

    def _sequences_of(self, pattern: str) -> Iterator[dict[int, None]]:
        return (self._sequences[subject] for subject in self._subjects(pattern))

    def _in_order(self, pattern: str) -> list[int]:
        return sorted(number for numbers in self._sequences_of(pattern) for number in numbers)


def _size(subject: str, body: bytes, headers: Mapping[str, str]) -> int:
    """As NATS counts it: subject, headers and body, and 30 bytes around them."""
    named = sum(len(key) + len(value) + 4 for key, value in headers.items())
    return len(subject) + len(body) + (named + 12 if named else 0) + _AROUND_BYTES


def _guarded(message: Outgoing, expect: Expect) -> str:
    return expect.subject or message.subject


def _heads(subject: str) -> Iterator[str]:
    at = subject.find(".")
    while at >= 0:
        yield subject[:at]
        at = subject.find(".", at + 1)
