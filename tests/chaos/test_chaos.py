"""Short chaos; `make chaos RUNS=100 SEED=1` for long. `tests.histories` says what must hold."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.__main__ import arguments, words_of
from tests.chaos.allowed import NotAllowed
from tests.chaos.faults import DO
from tests.chaos.plan import ABOUT, Kind, Plan, draw
from tests.chaos.run import run
from tests.waiting import eventually

from penstock.runtime.paths import temporary_dir

ANYWHERE = [
    kind
    for kind in Kind
    if kind not in (Kind.FILL_DISK, Kind.HANG_DISK, Kind.SHIFT_CLOCK, Kind.FORGE)
]
KILLS = [Kind.KILL_WORKER, Kind.KILL_ORCHESTRATOR, Kind.KILL_BROKER, Kind.KILL_EXECUTOR]
DISKS = [Kind.FILL_DISK, Kind.HANG_DISK, Kind.KILL_WORKER]
PARTITION = [Kind.CUT_HOST, Kind.KILL_WORKER, Kind.STOP_WORKER]
STRANGERS = [Kind.FORGE, Kind.OPEN_BATCHES, Kind.SHIFT_CLOCK]


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_dir() as folder:
        yield folder


@pytest.mark.long
@pytest.mark.parametrize(
    "plan",
    [
        draw(4, ANYWHERE, 160, workflows=12),
        draw(102, KILLS, 100, workflows=34),
        draw(2, DISKS, 120, 3),
        draw(2, STRANGERS, 100, 3),
        draw(4, PARTITION, 120, 3, namespaces=True, workflows=6),
    ],
    ids=[
        "all that needs no root",
        "random workflows under kills",
        "disk full and hanging",
        "forged messages and a wrong clock",
        "partition",
    ],
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


def test_the_command_that_repeats_a_run_draws_the_same_plan() -> None:
    strangers = draw(9, [Kind.FORGE, Kind.CANCEL], 80, 3, namespaces=True, workflows=4)
    for plan in (draw(7), strangers):
        options = arguments(plan.again.split()[3:])
        size = options.jobs, options.count, plan.namespaces, options.workflows
        again = draw(options.seed, options.faults, *size)
        assert again == plan
        assert options.namespaces == ("always" if plan.namespaces else "never")


def test_a_run_beside_others_has_their_options() -> None:
    options = arguments(["--jobs", "80", "--count", "3", "--faults", "forge", "--beside", "2"])
    again = arguments([*words_of(options), "--seed", "7"])
    assert (again.runs, again.seed, again.beside) == (1, 7, 1)
    for name in ("jobs", "count", "faults", "namespaces", "workflows"):
        assert getattr(again, name) == getattr(options, name)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_runs_beside_each_other_end_with_the_process_that_started_them(
    number: signal.Signals, tmp_path: Path
) -> None:
    words = ["--beside", "2", "--runs", "2", "--namespaces", "never", "--faults", "cancel"]
    with (tmp_path / "output").open("w") as output:
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos", *words, stdout=output, stderr=output
        )
    below: set[int] = set()
    try:
        await eventually(lambda: len(_below(parent.pid)) >= 4, 180, "runs and their services")
        below |= set(_below(parent.pid))
        parent.send_signal(number)
        await asyncio.wait_for(parent.wait(), 120)
        await eventually(lambda: not any(map(_is_alive, below)), 120, "the end of the runs")
    finally:
        for pid in filter(_is_alive, {parent.pid, *below, *_below(parent.pid)}):
            os.kill(pid, signal.SIGKILL)
        await parent.wait()


def _below(pid: int) -> list[int]:
    """Processes that a process started, and what these started."""
    try:
        direct = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [one for child in direct for one in (child, *_below(child))]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_each_kind_of_fault_is_described_and_done() -> None:
    assert set(ABOUT) == set(DO) == set(Kind)
