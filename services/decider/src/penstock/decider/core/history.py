"""The chain of reasons that leads from a measurement to a number of workers."""

from __future__ import annotations

from typing import Any

from penstock.events.scaling import Reason


class Trail:
    """Collects reasons; the number of workers is always that of the last one.

    Every change of the number goes through here, so a chain cannot fail to add up. A reason that
    changed the number carries the number before it as ``values["from"]``.
    """

    __slots__ = ("_reasons", "workers")

    def __init__(self) -> None:
        self._reasons: list[Reason] = []
        self.workers = 0

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(self._reasons)

    def say(self, step: str, rule: str, workers: int, text: str, **values: Any) -> None:
        """A step that speaks whether or not it changes the number."""
        if self._reasons and workers != self.workers:
            values = {"from": self.workers, **values}
        self._reasons.append(
            Reason(step=step, rule=rule, workers=workers, text=text, values=values)
        )
        self.workers = workers

    def change(self, step: str, rule: str, workers: int, text: str, **values: Any) -> None:
        """A step that has something to say only if it changes the number."""
        if workers != self.workers:
            self.say(step, rule, workers, text, **values)

    def take(self, reasons: tuple[Reason, ...]) -> None:
        """Goes on from reasons that somebody else gave."""
        self._reasons.extend(reasons)
        if reasons:
            self.workers = reasons[-1].workers
