"""The property: whatever is configured and measured, the log recomputes equal, bit for bit."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from tests.exactness import configurations, living, values

from penstock.config import Settings
from penstock.decider.replay.verdict import Verdict
from penstock.events.envelope import Event
from penstock.events.snapshot import HostSnapshot, PoolSnapshot

_IDENTITY = frozenset(Event.__struct_fields__)
_POOL_FIELDS = values.table(PoolSnapshot, {}, _IDENTITY | {"pool", "queues"})
_HOST_FIELDS = values.table(HostSnapshot, {}, _IDENTITY | {"host", "pools"})

WEATHER = st.builds(
    living.Weather,
    pauses_seconds=st.lists(
        st.sampled_from([0.02, 0.1, 0.9, 1.0, 1.0, 3.3, 12.0, 31.0]), min_size=4, max_size=12
    ),
    pool_fields=st.lists(_POOL_FIELDS, max_size=3),
    host_fields=st.lists(_HOST_FIELDS, max_size=2),
)
TERMS = st.lists(st.tuples(configurations.settings(), WEATHER), min_size=1, max_size=2)


def replays_equal(
    terms: list[tuple[Settings, living.Weather]],
    seed: int,
    verify: Callable[[bytes], Verdict] = living.verify,
) -> Verdict:
    """Lives through the terms and recomputes them; raises AssertionError where it is not equal."""
    life = living.Life(seed, configurations.STRATEGIES, configurations.POLICIES)
    for settings, weather in terms:
        life.term(settings, configurations.adopted(settings), weather)
    verdict = verify(life.log())
    assert verdict.is_equal, "\n".join(living.words(verdict)) or verdict
    assert verdict.decisions == life.decisions
    return verdict


def share(number: int, seed: int, count: int) -> Counter[str]:
    """So many configurations; raises AssertionError at the first one that is not equal."""
    counts: Counter[str] = Counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as other:

        @hypothesis.seed(seed * 1_000_003 + number)
        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(TERMS, st.integers(0, 2**32))
        def one(terms: Any, world: int) -> None:
            verdict = replays_equal(
                terms, world, lambda log: other.submit(living.verify, log).result()
            )
            counts["configurations"] += 1
            counts["settings"] += len(terms)
            counts["pools"] += sum(len(settings.pools) for settings, _ in terms)
            for name in (
                "rounds",
                "decisions",
                "equal_decisions",
                "published",
                "equal_published",
                "states",
            ):
                counts[name] += getattr(verdict, name)
            counts["equal_states"] += verdict.equal_states
            for settings, _ in terms:
                for pool in settings.pools.values():
                    counts[f"strategy {pool.strategy or 'of its profile'}"] += 1

        one()
    return counts
