"""Rules over series of a pool, as an expression. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from penstock.console.core.alerts.expression import FUNCTIONS, Lookup, Node, evaluate, parse
from penstock.console.core.alerts.rules import Expression
from penstock.console.core.alerts.states import Observation, Reading
from penstock.console.core.alerts.world import PoolFacts, World, series

_ADVICE = "See the pool's page for how these figures went."


def read_expression(condition: Expression, world: World, now: float) -> Reading:
    """One observation for each pool."""
    node = parse(condition.text)
    observations = []
    for name, pool in sorted(world.pools.items()):
        if fnmatchcase(name, condition.pool):
            is_fresh = now - pool.measured_at <= world.stale_seconds
            look_up = _lookup(pool, now)
            is_met = evaluate(node, look_up) if is_fresh else None
            text = f"{name}: {condition.text} ({_values(node, look_up)})."
            observation = Observation(
                labels=(("pool", name),),
                is_met=is_met,
                text=text,
                advice=_ADVICE,
                link=f"/pools/{name}",
            )
            observations.append(observation)
    return Reading(observations=tuple(observations))


def _lookup(pool: PoolFacts, now: float) -> Lookup:
    newest = series(pool)

    def look_up(function: str, name: str, seconds: float) -> float | None:
        if not function:
            return newest.get(name)
        values = [
            sample[name] for at, sample in pool.samples if at >= now - seconds and name in sample
        ]
        if not values:
            return None
        if function == "avg":
            return sum(values) / len(values)
        if function == "change":
            return values[-1] - values[0]
        return min(values) if function == "min" else max(values)

    return look_up


def _values(node: Node, look_up: Lookup) -> str:
    """What was compared, such as "avg(waiting, 1m) is 4.2", each once."""
    tested = dict(_tested(node, look_up))
    measured = [f"{name} is {value:.4g}" for name, value in tested.items() if value is not None]
    return ", ".join(measured) or "nothing of it is measured"


def _tested(node: Node, look_up: Lookup) -> Iterator[tuple[str, float | None]]:
    if node.operator == "series":
        yield node.name, look_up("", node.name, 0.0)
    elif node.operator in FUNCTIONS:
        minutes, rest = divmod(node.number, 60)
        length = f"{node.number:g}s" if rest else f"{minutes:g}m"
        value = look_up(node.operator, node.name, node.number)
        yield f"{node.operator}({node.name}, {length})", value
    for part in node.parts:
        yield from _tested(part, look_up)
