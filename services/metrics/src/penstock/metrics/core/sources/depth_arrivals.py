"""Arrivals up to now, of a depth that is of now and counters that are seconds late.

What ever came waits or left the queue: A(t) = waiting(t) + left(t). The depth is exact; how many
left is known as of the counter's last change, the anchor. Since then as many came as the depth grew
and consumers took, and they took about as fast as before.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, pairwise

import msgspec

MOST_LATE_SECONDS = 6.0
"""The server collects its counters every 5 s, and a look is up to a second later: what happened
before that is in them."""
_STEADY_SECONDS = 3.5
"""While none waits, messages are taken to go on so long after the counter's last change: longer,
and their end is seen later; shorter, and those since the change seem to have come just now."""
_REMEMBERED = 200
"""Deliveries after which older ones count half for how fast a consumer takes them."""


class DepthCounts(msgspec.Struct, frozen=True):
    """A queue's figures at one look.

    Attributes:
        waiting: messages that wait now.
        consumers: that are connected now.
        published: by the server's counter, some seconds late.
        delivered: deliveries by the server's counter, as late.
        redelivered: of these, those of messages that were delivered before.
    """

    waiting: int
    consumers: int
    published: int
    delivered: int
    redelivered: int = 0

    @property
    def left(self) -> int:
        """Messages that were delivered for the first time."""
        return self.delivered - self.redelivered


class _Moment(msgspec.Struct, frozen=True):
    """A look.

    ``taken``: messages that consumers took since the one before, about. ``sent``: what publishers
    had sent until then, at the least.
    """

    at: float
    waiting: float
    taken: float
    sent: int


class DepthArrivals:
    """The counts of one queue, look by look.

    A counter that has changed is taken to be of the middle between this look and the one before;
    one that has not for longer than it can be late, to be of that long ago.

    Attributes:
        epoch: how often the counts began anew.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._forget()

    def begin_anew(self) -> None:
        """The next figures are not compared with those before, such as after a lost connection."""
        if self._latest is not None:
            self.epoch += 1
            self._forget()

    def _forget(self) -> None:
        self._first: DepthCounts | None = None
        self._latest: DepthCounts | None = None
        self._pace = _Pace()
        self._looks: deque[_Moment] = deque()  # the anchor first
        self._anchored = 0.0
        self._published: int | None = None
        self._began_at = self._sent_at = 0.0
        self._removed, self._is_calm = 0, False

    def arrived(self, counts: DepthCounts, now: float) -> int:
        """How many came in this epoch, up to now; counters that fell begin another one.

        Args:
            counts: of this look.
            now: of a steady clock.

        Returns:
            An estimate; a later one may be lower.
        """
        before = self._latest
        if before and (counts.published < before.published or counts.delivered < before.delivered):
            self.begin_anew()
        if self._latest is None or self._first is None:
            self._first = self._latest = counts
            self._looks.append(_Moment(now, counts.waiting, 0.0, 0))
            self._began_at = self._sent_at = now
            return 0
        self._move(self._latest, counts, now)
        if counts.published > self._latest.published:
            self._sent_at = now
        self._latest, self._is_calm = counts, now - self._sent_at > MOST_LATE_SECONDS
        if self._published is None and now - self._began_at > MOST_LATE_SECONDS:
            self._published = counts.published  # before, it may grow by what came before
        total = round(self._anchored + self._since_anchor())
        return max(total + self._removed, self._sent(counts))

    def _move(self, before: DepthCounts, counts: DepthCounts, now: float) -> None:
        seconds = now - self._looks[-1].at
        self._pace.is_idle = now - self._looks[0].at > _STEADY_SECONDS
        taken, sent = self._pace.taken(before, counts, seconds), self._sent(counts)
        if counts.left > before.left:
            waiting, sent_before = (before.waiting + counts.waiting) / 2, self._sent(before)
            middle = _Moment(now - seconds / 2, waiting, 0.0, sent_before)
            span_seconds, anchored = middle.at - self._looks[0].at, self._anchored
            self._looks = deque([middle, _Moment(now, counts.waiting, taken / 2, sent)])
            self._anchor(counts.left, taken)
            came = self._anchored - anchored
            self._pace.learn(counts.left - before.left, came, span_seconds)
            return
        self._looks.append(_Moment(now, counts.waiting, taken, sent))
        if self._looks[1].at > now - MOST_LATE_SECONDS:
            return
        while self._looks[1].at <= now - MOST_LATE_SECONDS:
            self._looks.popleft()
        self._anchor(counts.left, 0.0)

    def _sent(self, counts: DepthCounts) -> int:
        """What publishers sent in this epoch, at the least."""
        return 0 if self._published is None else counts.published - self._published

    def _anchor(self, left: int, error: float) -> None:
        """The counter is known to be of the first of the looks, but for so many messages."""
        assert self._first
        anchor = self._looks[0]
        total = anchor.waiting - self._first.waiting + left - self._first.left
        # Messages that expire or are purged leave the queue undelivered.
        self._removed = max(self._removed, round(anchor.sent - total - error))
        self._anchored = total

    def _since_anchor(self) -> float:
        """Arrivals since then: growth of the depth, and what consumers took.

        0 where publishers sent nothing for as long as their counter can be late, and the depth
        has only fallen: what consumers took more slowly than expected would look like arrivals.
        """
        depths = [look.waiting for look in self._looks]
        if self._is_calm and all(after <= before for before, after in pairwise(depths)):
            return 0.0
        grown = self._looks[-1].waiting - self._looks[0].waiting
        return max(grown + sum(look.taken for look in islice(self._looks, 1, None)), 0.0)


class _Pace:
    """How fast consumers take messages.

    While messages wait, each takes them as fast as when messages waited before; while none does,
    messages leave as they came and left between the last two changes of the counter.

    Attributes:
        is_idle: the counter has not changed for so long that perhaps none comes any more.
    """

    def __init__(self) -> None:
        self.is_idle = False
        self._steady_rate = 0.0
        self._deliveries = self._consumer_seconds = 0.0  # while messages waited
        self._forget_span()

    def _forget_span(self) -> None:
        self._was_busy, self._span_joined, self._span_seconds = True, 0, 0.0

    def taken(self, before: DepthCounts, counts: DepthCounts, seconds: float) -> float:
        """About how many left the queue between two looks."""
        is_busy = bool(before.waiting and counts.waiting)
        joined = max(counts.consumers - before.consumers, 0) if counts.waiting else 0
        consumer_seconds = (before.consumers + counts.consumers) / 2 * seconds
        self._was_busy &= is_busy or not consumer_seconds  # without consumers nothing is taken
        self._span_joined += joined
        self._span_seconds += consumer_seconds
        if is_busy and self._consumer_seconds:
            return joined + consumer_seconds * self._deliveries / self._consumer_seconds
        if self.is_idle or not consumer_seconds:
            return float(joined)
        return joined + seconds * self._steady_rate

    def learn(self, deliveries: int, arrivals: float, seconds: float) -> None:
        """The counter has grown: so many were taken, and so many came, in so many seconds."""
        steady = max(min(arrivals, deliveries), 0.0)
        self._steady_rate = steady / seconds if seconds > 0 else 0.0
        if self._was_busy:
            self._deliveries += max(deliveries - self._span_joined, 0)
            self._consumer_seconds += self._span_seconds
        if self._deliveries > _REMEMBERED:
            self._deliveries /= 2
            self._consumer_seconds /= 2
        self._forget_span()
