"""How often logins may fail: by address, by account, and by both. Pure but for the clock given."""

from __future__ import annotations

from collections import OrderedDict

WINDOW_SECONDS = 900.0
FROM_ONE_ADDRESS, TO_ONE_ACCOUNT, OF_THE_PAIR = 30, 50, 10
"""Failures within the window after which further tries are refused without a look at them.

An account alone has the highest bound: else a stranger who knows its name could lock it.
"""
_MOST_KEYS = 10_000


class LoginLimits:
    """Counts the failures of the last quarter of an hour, of this process."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def wait_seconds(self, address: str, account: str, now: float) -> float:
        """For how long a try is refused; 0: it may be made.

        Args:
            now: seconds of a monotonic clock.
        """
        return max(self._wait(key, most, now) for key, most in _keys(address, account))

    def failed(self, address: str, account: str, now: float) -> None:
        """Notes a failure."""
        for key, most in _keys(address, account):
            failures = self._failures.setdefault(key, [])
            failures.append(now)
            del failures[:-most]
            self._failures.move_to_end(key)
        while len(self._failures) > _MOST_KEYS:
            self._failures.popitem(last=False)

    def succeeded(self, address: str, account: str) -> None:
        """Forgets the failures of this account from this address, and that this was counted as one.

        Else thirty people of one office could not log in within a quarter of an hour.
        """
        self._failures.pop((address, account), None)
        for key in ((address, ""), ("", account)):
            if failures := self._failures.get(key):
                failures.pop()

    def _wait(self, key: tuple[str, str], most: int, now: float) -> float:
        recent = [at for at in self._failures.get(key, ()) if now - at < WINDOW_SECONDS]
        return WINDOW_SECONDS - (now - recent[0]) if len(recent) >= most else 0.0


def _keys(address: str, account: str) -> tuple[tuple[tuple[str, str], int], ...]:
    return (
        ((address, account), OF_THE_PAIR),
        ((address, ""), FROM_ONE_ADDRESS),
        (("", account), TO_ONE_ACCOUNT),
    )
