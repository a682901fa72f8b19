"""How much is remembered of what suspended workflows wait for: any event of theirs adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.orchestrator.core.suspended import SuspendedWorkflow

MOST_REMEMBERED_BYTES = 64_000_000
"""About 15 workflows that wait for 10,000 jobs each."""
_SMALL_BYTES = 1_000
"""No more than its events have: what waits for two or three steps is never forgotten."""
_KEPT_SHARE = 0.9
_READ_BYTES_A_SECOND = 20_000_000
"""Of what was forgotten, and is compared with the log though nothing came for it."""


class RememberedWaits:
    """Forgets what those wait for that nothing came for longest, as if this process had just begun.

    What was forgotten is read from the log when something comes for the workflow, and once in a
    while if nothing does.

    Args:
        unfinished: all workflows, by id.
        most_bytes: what is remembered of all that wait for more than a few steps, roughly.
        read_soon: has a workflow read that was about to be woken.
    """

    def __init__(
        self,
        unfinished: Mapping[str, SuspendedWorkflow],
        most_bytes: int,
        read_soon: Callable[[str], None],
    ) -> None:
        self._unfinished, self._most_bytes = unfinished, most_bytes
        self._read_soon = read_soon
        self._sizes: dict[str, int] = {}  # least recently used first
        self._total = 0
        self._read_at = 0.0

    def note(self, key: str, now: float) -> None:
        """Something came for a workflow, or it was read.

        Args:
            key: its id.
            now: POSIX seconds by the broker's clock.
        """
        self._drop(key)
        workflow = self._unfinished.get(key)
        if workflow is not None and (size := workflow.size) > _SMALL_BYTES:
            self._sizes[key] = size
            self._total += size
            if self._total > self._most_bytes:
                self._forget(now)

    def _drop(self, key: str) -> None:
        self._total -= self._sizes.pop(key, 0)

    def _forget(self, now: float) -> None:
        """Of a tenth, so that this is rare."""
        for key in [key for key in self._sizes if key not in self._unfinished]:
            self._drop(key)
        for key, size in list(self._sizes.items()):
            if self._total <= self._most_bytes * _KEPT_SHARE:
                return
            self._drop(key)
            workflow = self._unfinished[key]
            if workflow.is_over:  # it is gone as soon as its steps were cancelled
                continue
            if workflow.is_due:
                self._read_soon(key)
            self._read_at = max(self._read_at, now) + size / _READ_BYTES_A_SECOND
            workflow.forget_wait(size, not_before=self._read_at)
