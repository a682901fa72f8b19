"""Messages that no worker will ever take: more workers for them would stand idle."""

from __future__ import annotations

STUCK_SECONDS = 60.0


class StuckWatch:
    """Counts what waits as stuck while nothing moves although workers are ready.

    It counts again as soon as a message comes, is claimed or ends. Until then also after the
    workers ended: else they would be started for the same messages each minute.
    """

    def __init__(self) -> None:
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
            return 0
        if self._is_stuck:
            return waiting
        if not idle_workers:
            self._since = None
            return 0
        self._since = now if self._since is None else self._since
        self._is_stuck = now - self._since >= STUCK_SECONDS
        return waiting if self._is_stuck else 0
