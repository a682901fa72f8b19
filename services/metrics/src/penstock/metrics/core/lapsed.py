"""Jobs that no worker holds any more and the broker has not yet delivered to another."""

from __future__ import annotations


class LapsedClaims:
    """The broker counts a job given back, or lost with its worker, as claimed until it is
    delivered again; with all workers busy or none left that may take long. Such a job waits.

    It shows as more claimed jobs than living workers hold, for longer than a claim and two reports
    take, while the queue hands out nothing (redeliveries would go first).

    Args:
        patience_seconds: how long it must have lasted.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._since: float | None = None
        self._least = 0

    def observe(self, claimed: int, held: int, delivered: bool, now: float) -> None:
        """The pool was looked at.

        Args:
            claimed: jobs that the broker counts as claimed.
            held: jobs that living workers report.
            delivered: the queues handed out jobs since the last observation.
            now: of a steady clock.
        """
        excess = claimed - max(held, 0)
        if delivered or excess <= 0:
            self._since, self._least = None, 0
        elif self._since is None:
            self._since, self._least = now, excess
        else:
            self._least = min(self._least, excess)

    def waiting(self, now: float) -> int:
        """Jobs that wait for a redelivery."""
        return self._least if self._lasted(now) >= self._patience_seconds else 0

    def oldest_seconds(self, now: float) -> float:
        """How long they have waited at least; 0 when there are none."""
        return self._lasted(now) if self.waiting(now) else 0.0

    def _lasted(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since
