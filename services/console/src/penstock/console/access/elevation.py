"""Sessions whose person proved a moment ago who it is: only these do what is dangerous.

A browser that was left open, or whose cookie was stolen, adds no account and makes no token.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

from penstock.operations.console_directory import Session

LASTS = timedelta(minutes=15)
"""After a login, or a further proof."""
_MOST = 10_000


class Elevations:
    """Further proofs of this process; another console asks for one of its own."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, datetime] = OrderedDict()

    def note(self, session_id: str, now: datetime) -> None:
        """The person of this session proved again who it is."""
        self._at[session_id] = now
        self._at.move_to_end(session_id)
        while len(self._at) > _MOST:
            self._at.popitem(last=False)

    def is_elevated(self, session: Session, now: datetime) -> bool:
        """Whether it may do what is dangerous."""
        proved_at = self._at.get(session.id, session.started_at)
        return now - proved_at < LASTS
