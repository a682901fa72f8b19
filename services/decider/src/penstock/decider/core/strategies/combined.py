"""Strategy `combined`: the weighted mean of what other strategies ask for.

    workers = sum of weight x demand / sum of weights

Each part has its own settings, `[pools.NAME.options.PART]`, and its own memory. Installed
strategies can be mixed like those that ship.

Choose it where no single signal is trusted, to soften one with another.

Weakness: a mean. When one part needs far more workers, the others lower the result, and by the time
they agree jobs are late. Where one part keeps the promise alone, use that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.config.explain import hint
from penstock.config.section import Positive, Section
from penstock.decider.core import options
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs, ask, check


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        weights: by strategy; only their proportion counts. Where none are given, `queue_size`,
            `throughput` and `wait_time` count alike.
    """

    weights: dict[str, Positive] = msgspec.field(
        default_factory=lambda: {"queue_size": 1.0, "throughput": 1.0, "wait_time": 1.0}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights:
            raise ValueError("found no weights, expected at least one: weights.hybrid = 1")


class Combined:
    """See the module.

    Args:
        parts: the strategies that can be mixed, by name.
    """

    name = "combined"

    def __init__(self, parts: Mapping[str, Strategy]) -> None:
        self._parts = parts
        self.options = _among(parts)

    def demand(self, inputs: StrategyInputs) -> Demand:
        weights: dict[str, float] = inputs.options.weights
        total = sum(weights.values())
        demands = {part: self._demand(part, inputs) for part in weights}
        workers = (
            sum(weights[part] * part_demand.workers for part, part_demand in demands.items())
            / total
        )
        sentences = [f"{weights[part] / total:.0%} of {_why(demands[part])}" for part in demands]
        return ask(
            self.name,
            workers,
            "; ".join(sentences),
            {
                f"{part}_workers": round(part_demand.workers, 3)
                for part, part_demand in demands.items()
            },
            memory={
                part: part_demand.memory
                for part, part_demand in demands.items()
                if part_demand.memory
            },
        )

    def _demand(self, part: str, inputs: StrategyInputs) -> Demand:
        memory = inputs.memory.get(part, {})
        inputs = msgspec.structs.replace(inputs, memory=memory)
        return check(options.demand(part, self._parts, inputs))


def _among(parts: Iterable[str]) -> type[Options]:
    """The settings, with weights for these strategies only."""

    class Among(Options, frozen=True, kw_only=True):
        def __post_init__(self) -> None:
            super().__post_init__()
            for name in self.weights.keys() - set(parts):
                raise ValueError(f"weights of unknown strategy {name!r}; {hint(name, parts)}")

    return Among


def _why(demand: Demand) -> str:
    return demand.reasons[-1].text if demand.reasons else f"{demand.workers:g} wanted"
