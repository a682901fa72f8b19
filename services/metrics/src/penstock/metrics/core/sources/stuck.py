"""Messages that no worker will ever take: more workers for them would stand idle."""

from __future__ import annotations

STUCK_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 600.0, 3600.0
"""After so long stuck messages count again, each time after twice as long."""
_RUNS = 3.0
"""Nothing has moved for as long as so many messages take."""


class StuckWatch:
    """Counts what waits as stuck while nothing moves although workers are ready.

    It counts again as soon as a message comes, is claimed or ends. Until then also after the
    workers ended: else they would be started for the same messages each minute. But not for ever,
    as a worker that handles a message may look idle: one that waits for others uses no processor,
    and not every system shows what is in work.

    Args:
        runtime_seconds: of one message; None where that is not known.
    """

    def __init__(self, runtime_seconds: float | None = None) -> None:
        self._seconds = max(STUCK_SECONDS, _RUNS * (runtime_seconds or 0.0))
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._state: tuple[int, int | None] | None = None
        self._since: float | None = None
        self._is_stuck = False

    def observe(
        self, waiting: int, claimed: int | None, moved: bool, idle_workers: int, now: float
    ) -> int:
        """The queue was looked at.

        Args:
            waiting: messages that wait.
            claimed: messages that are delivered; None where that is not known.
            moved: messages came or ended since the look before.
            idle_workers: workers that are ready and have none.
            now: of a steady clock.

        Returns:
            Messages that are stuck.
        """
        state = (waiting, claimed)
        if moved or state != self._state or not waiting or claimed:
            self._state, self._since, self._is_stuck = state, None, False
            self._pause_seconds = FIRST_PAUSE_SECONDS
            return 0
        if self._is_stuck and self._since is not None:
            if now - self._since < self._seconds + self._pause_seconds:
                return waiting
            self._since, self._is_stuck = None, False
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        if not idle_workers:
            self._since = None
            return 0
        self._since = now if self._since is None else self._since
        self._is_stuck = now - self._since >= self._seconds
        return waiting if self._is_stuck else 0
