"""Rules that go up and down in steps from where they are, with a pause between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from penstock.config.section import NonNegative, Section
from penstock.decider.core.strategy import Demand, StrategyInputs, ask

Step = Annotated[int, Meta(ge=1, le=10_000)]
_STEPPED_AT = "stepped_at"


class Steps(Section, frozen=True, kw_only=True):
    """The sizes of steps and the pause between them.

    Attributes:
        up_step: workers added at a time.
        down_step: workers removed at a time.
        step_seconds: between two steps.
    """

    up_step: Step = 1
    down_step: Step = 1
    step_seconds: NonNegative = 60.0


def step(inputs: StrategyInputs, steps: Steps, name: str, direction: int, why: str) -> Demand:
    """The demand one step up (1) or down (-1) or here (0); at least 1 while there is work.

    When the last step was is remembered; a clock that was set back does not hold up the next one.
    """
    snapshot, current = inputs.snapshot, inputs.current
    least = 1 if snapshot.waiting or snapshot.running else 0
    stepped_at = inputs.memory.get(_STEPPED_AT)
    passed = None if stepped_at is None else inputs.now - stepped_at
    held = passed is not None and 0 <= passed < steps.step_seconds
    if held and direction and passed is not None:
        why += f", the next step is {steps.step_seconds - passed:.0f} s away"
    by = 0 if held else max(direction, 0) * steps.up_step + min(direction, 0) * steps.down_step
    memory: Mapping[str, Any] = {_STEPPED_AT: inputs.now} if by else inputs.memory
    return ask(name, max(current + by, least), why, memory=memory)
