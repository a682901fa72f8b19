"""Where a chain of audit entries is broken: changed, missing or slipped-in entries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

MOST_AHEAD = 1_000
"""Later messages, at least, by which is found out which of two that claim one place is genuine."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as the chain sees it.

    Attributes:
        sequence: of its message in the stream.
        number: that it bears.
        previous: the hash that it holds of the entry before.
        hash: that it bears.
        is_intact: that is the hash of its content.
        is_entry: the message holds an entry at all.
    """

    sequence: int
    number: int
    previous: str
    hash: str
    is_intact: bool
    is_entry: bool = True

    def follows(self, other: Link) -> bool:
        """Whether it was made to stand right after another one."""
        return self.number == other.number + 1 and self.previous == other.hash


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A message that does not fit.

    Attributes:
        number: of the entry that is changed or missing, or that a slipped-in one bears.
        sequence: of its message in the stream; of a missing one, that of the message after it.
        problem: how it does not fit.
    """

    number: int
    sequence: int
    problem: str


class ChainWalk:
    """Follows the genuine chain through all messages, past each that does not fit.

    Of two entries that claim one place, the one is genuine on which more others build: a hash that
    was there later cannot have been made before. Where entries are missing the chain goes on with
    the one after the gap.

    Attributes:
        entries: that are part of the chain.
        first: number of the oldest; 0 for none.
        newest: the last one that fits the one before; None before there was one.
    """

    def __init__(self) -> None:
        self.entries = self.first = 0
        self.newest: Link | None = None
        self._last: Link | None = None
        self._waiting: list[Link] = []

    def add(self, link: Link) -> Iterator[Fault | None]:
        """Takes the next message, and judges earlier ones when enough wait.

        Yields:
            For each message in the order of the stream: how it does not fit, None where it does.
        """
        self._waiting.append(link)
        if len(self._waiting) >= 2 * MOST_AHEAD:
            yield from self._judge(MOST_AHEAD)

    def end(self) -> Iterator[Fault | None]:
        """Judges those that wait; see :meth:`add`."""
        yield from self._judge(len(self._waiting))

    def _judge(self, count: int) -> Iterator[Fault | None]:
        genuine = _genuine([link for link in self._waiting if link.is_entry], self._last)
        judged = self._waiting[:count]
        del self._waiting[:count]
        for link in judged:
            yield self._take(link) if link.sequence in genuine else self._foreign(link)

    def _take(self, link: Link) -> Fault | None:
        last, self._last = self._last, link
        self.entries += 1
        self.first = self.first or link.number
        if last is None or link.follows(last):
            self.newest = link
            wrong = f"the hash of entry {link.number} is not that of its content"
            return None if link.is_intact else _fault(link, wrong)
        if link.number == last.number + 1:
            return _fault(
                link, f"entry {link.number} does not hold the hash of entry {last.number}"
            )
        missing = f"entries are missing: {last.number + 1:,} to {link.number - 1:,}"
        return Fault(number=last.number + 1, sequence=link.sequence, problem=missing)

    def _foreign(self, link: Link) -> Fault:
        last = self._last
        after = f"after entry {last.number}" if last else "before the first entry"
        if not link.is_entry:
            number = last.number + 1 if last else 1
            problem = f"the message is no entry; it was added {after}"
            return Fault(number=number, sequence=link.sequence, problem=problem)
        claim = f"the message claims to be entry {link.number} but is not part of the chain"
        return _fault(link, f"{claim}; it was added {after}")


def _fault(link: Link, problem: str) -> Fault:
    return Fault(number=link.number, sequence=link.sequence, problem=problem)


def _genuine(entries: Sequence[Link], last: Link | None) -> set[int]:
    """Sequences of the messages that are part of the chain.

    Args:
        entries: in the order of the stream.
        last: entry of the chain before them; None where they are the first.
    """
    links = [last, *entries] if last else [*entries]
    lengths, nexts = _chains(links)
    genuine: set[int] = set()
    index = 0 if last else _start(links, lengths, 0, None)
    while index is not None:
        genuine.add(links[index].sequence)
        index = nexts[index] or _start(links, lengths, index + 1, links[index])
    return genuine


def _start(
    links: Sequence[Link], lengths: Sequence[int], begin: int, last: Link | None
) -> int | None:
    """Where the chain goes on after a gap: not with an entry beyond those that most build on."""
    later = [
        index
        for index in range(begin, len(links))
        if last is None or links[index].number > last.number
    ]
    longest = max(later, key=lengths.__getitem__, default=None)
    if longest is None:
        return None
    is_before = (index for index in later if links[index].number < links[longest].number)
    return min(longest, next(is_before, longest))


def _chains(links: Sequence[Link]) -> tuple[list[int], list[int | None]]:
    """By link: the length of the longest chain that begins there, and the index of its next."""
    lengths: list[int] = [1] * len(links)
    nexts: list[int | None] = [None] * len(links)
    heads: dict[tuple[int, str], int] = {}
    """By number and hash of the entry that is followed: the follower with the longest chain."""
    for index in range(len(links) - 1, -1, -1):
        link = links[index]
        follower = heads.get((link.number, link.hash))
        if follower is not None:
            lengths[index], nexts[index] = lengths[follower] + 1, follower
        place = (link.number - 1, link.previous)
        best = heads.get(place)
        if best is None or lengths[index] >= lengths[best]:
            heads[place] = index
    return lengths, nexts
