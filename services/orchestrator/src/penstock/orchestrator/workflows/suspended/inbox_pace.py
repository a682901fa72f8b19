"""How often large inboxes are read: what is sent to some workflows must not hold up the others."""

from __future__ import annotations

_MOST_QUICK = 100
"""Events of an inbox that is read whenever there is a reason to."""
_PAUSE_SECONDS = 1.0
_BETWEEN_SECONDS = 0.25
_FORGOTTEN_SECONDS = 60.0


class InboxPace:
    """Of each workflow whose inbox is large at most one reading a second, of all four.

    The more of them there are, the longer each of them rests: twice as long as the others take, so
    that each has its turn.
    """

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._free_at = 0.0

    def allows(self, key: str, now: float) -> bool:
        """Whether the inbox of a workflow may be read now; then it counts as read.

        Args:
            key: id of the workflow.
            now: POSIX seconds.
        """
        if key not in self._next:
            return True
        if now < max(self._next[key], self._free_at):
            return False
        self._free_at = now + _BETWEEN_SECONDS
        self._next[key] = now + max(_PAUSE_SECONDS, 2 * _BETWEEN_SECONDS * len(self._next))
        return True

    def was_read(self, key: str, events: int, now: float) -> None:
        """An inbox was read, with so many events."""
        if events <= _MOST_QUICK:
            self._next.pop(key, None)
        elif key not in self._next:
            self._forget_old(now)
            self._next[key] = now + _PAUSE_SECONDS

    def _forget_old(self, now: float) -> None:
        for key in [key for key, at in self._next.items() if at < now - _FORGOTTEN_SECONDS]:
            del self._next[key]
