"""Short chaos; `make chaos RUNS=100 SEED=1` for long. `tests.histories` says what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.links import NotAllowed
from tests.chaos.plan import Kind, Plan, draw
from tests.chaos.run import run

from penstock.runtime.paths import temporary_dir

ANYWHERE = [kind for kind in Kind if kind is not Kind.FILL_DISK]


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_dir() as folder:
        yield folder


@pytest.mark.parametrize(
    "plan",
    [
        draw(4, ANYWHERE, 160),
        draw(1, [Kind.FILL_DISK, Kind.KILL_WORKER], 120, 2),
        draw(4, [Kind.CUT_HOST, Kind.KILL_WORKER, Kind.STOP_WORKER], 120, 3, namespaces=True),
    ],
    ids=["all that needs no root", "disk full", "partition"],
)
async def test_each_acknowledged_dispatch_ends_exactly_once(plan: Plan, folder: Path) -> None:
    try:
        verdict = await run(plan, folder)
    except NotAllowed as error:
        pytest.skip(str(error))
    assert verdict.good, f"{verdict}\n{last_words(folder)}"
    assert verdict.jobs > plan.jobs


def last_words(folder: Path) -> str:
    return "\n".join(f"{log.name}:\n{log.read_text()[-4000:]}" for log in folder.glob("*.log"))


def test_a_seed_is_a_plan() -> None:
    assert draw(1) == draw(1) != draw(2)
    assert {fault.kind for seed in range(40) for fault in draw(seed).faults} == set(Kind)
