"""Strategy `queue_size`: steps up while many jobs wait, and down while few do.

    waiting > high_watermark: up_step (2) more    waiting < low_watermark: down_step (1) fewer

with `step_seconds` (60) between two steps, and nothing in between the marks.

Choose it where a long queue is normal and only its size matters: batches that run all day.

Weakness: it moves by a few workers a minute, whatever the promise; and the seconds behind a mark
depend on the run time, which it ignores.
"""

from __future__ import annotations

from penstock.config.section import Count
from penstock.decider.core.strategies.steps import Step, Steps, step
from penstock.decider.core.strategy import Demand, StrategyInputs


class Options(Steps, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        high_watermark: waiting jobs above which it steps up.
        low_watermark: waiting jobs below which it steps down.
    """

    high_watermark: Count = 1000
    low_watermark: Count = 100
    up_step: Step = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low_watermark > self.high_watermark:
            raise ValueError(
                f"found low_watermark {self.low_watermark} above "
                f"high_watermark {self.high_watermark}, expected it below"
            )


class QueueSize:
    """See the module."""

    name = "queue_size"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        waiting, options = inputs.snapshot.waiting, inputs.options
        low, high = options.low_watermark, options.high_watermark
        direction = (waiting > high) - (waiting < low)
        return step(inputs, options, self.name, direction, f"{waiting} waiting, of {low} to {high}")
