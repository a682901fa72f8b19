"""A seeded part of a suite that is too long to be run for each change."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

MOST_MINUTES = 5
"""A test that says it takes longer (``@pytest.mark.long(minutes=60)``) is in no part."""


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="run about one test in N of each file (see --sample-seed)",
    )
    parser.addoption(
        "--sample-seed", default="1", metavar="SEED", help="which tests --one-in chooses"
    )


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what ``--one-in`` leaves out. After other deselection, in each process alike."""
    one_in: int = config.getoption("--one-in")
    if one_in == 1:
        return
    nodeids = [item.nodeid for item in items if minutes(item) <= MOST_MINUTES]
    kept = sample(nodeids, one_in, config.getoption("--sample-seed"))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def minutes(item: pytest.Item) -> float:
    """How long a test says that it takes; 0 where it does not say."""
    mark = item.get_closest_marker("long")
    return float(mark.kwargs.get("minutes", 0)) if mark else 0.0


def sample(nodeids: Sequence[str], one_in: int, seed: str) -> set[str]:
    """One test in ``one_in`` of each file; of a rest, one with the chance that is due to it."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        by_file[nodeid.partition("::")[0]].append(nodeid)
    kept: set[str] = set()
    for file, tests in by_file.items():
        chance = random.Random(f"{seed} {file}")
        count, rest = divmod(len(tests), one_in)
        kept.update(chance.sample(tests, count + (chance.random() < rest / one_in)))
    return kept
