"""The history of a number of workers: the reasons that lead to it from a measurement."""

from __future__ import annotations

from typing import Any

from penstock.events.scaling import Reason


class History:
    """Collects reasons; the number of workers is always that of the last one.

    Every change of the number goes through here, so a history cannot fail to add up. A reason that
    changed the number carries the number before it as ``values["from"]``.
    """

    __slots__ = ("_reasons", "workers")

    def __init__(self) -> None:
        self._reasons: list[Reason] = []
        self.workers = 0

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(self._reasons)

    def add(self, step: str, rule: str, workers: int, text: str, **values: Any) -> None:
        """Adds a reason, whether or not it changes the number."""
        if self._reasons and workers != self.workers:
            values = {"from": self.workers, **values}
        self._reasons.append(
            Reason(step=step, rule=rule, workers=workers, text=text, values=values)
        )
        self.workers = workers

    def change(self, step: str, rule: str, workers: int, text: str, **values: Any) -> None:
        """Adds a reason only if it changes the number."""
        if workers != self.workers:
            self.add(step, rule, workers, text, **values)

    def extend(self, reasons: tuple[Reason, ...]) -> None:
        """Continues from the reasons of a strategy."""
        self._reasons.extend(reasons)
        if reasons:
            self.workers = reasons[-1].workers
