"""Whole studies: rows of means, whatever the number of processes; the command; the picture."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.config import Profile
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model import durations
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import picture, study
from penstock.decider.simulator.studies.study import SimulationResult, Study

TRACE = Trace(
    name="short",
    origin=1_000_000.0,
    times=np.arange(4) * 15.0,
    counts=np.array([10.0, 40.0, 0.0, 20.0]),
    widths=np.full(4, 15.0),
)


def question(**changed: Any) -> Study:
    settings: dict[str, Any] = {
        "traces": [TRACE],
        "names": ["hybrid", "keda:2"],
        "slas": [2.0, 10.0],
        "quantile": 0.9,
        "spawns": [Spawning(seconds=1.0)],
        "service": "lognormal:1,1",
        "durations": durations.Lognormal(1.0, 1.0),
        "thin": [1.0],
        "seeds": 2,
        "profile": Profile(min_workers=0, max_workers=50),
        "strategies": BUILTIN,
    }
    return Study(**{**settings, **changed})


@pytest.fixture(scope="module")
def rows() -> list[SimulationResult]:
    return list(study.run(question()))


def test_a_row_for_each_trace_promise_and_strategy(rows) -> None:
    asked = [(row.sla_seconds, row.strategy) for row in rows]
    assert asked == [(2, "hybrid"), (2, "keda:2"), (10, "hybrid"), (10, "keda:2")]
    for row in rows:
        assert row.wait_p50 <= row.wait_p95 <= row.wait_p99 <= row.wait_max
        assert 0 <= row.late_share <= row.late_share_worst <= 1
        assert row.worker_seconds >= row.bound_worker_seconds > 0 or row.late_share > 0.1
        assert row.reversals <= row.actions


def test_a_looser_promise_has_a_lower_bound_and_fewer_late(rows) -> None:
    tight, loose = rows[1], rows[3]
    assert loose.bound_worker_seconds <= tight.bound_worker_seconds
    assert loose.late_share <= tight.late_share


def test_figures_are_means_over_the_seeds(rows) -> None:
    each = [study.solve(question(), study.Case(0, 2.0, 0, seed, "hybrid")) for seed in range(2)]
    assert rows[0].worker_seconds == pytest.approx(sum(one.worker_seconds for one in each) / 2)
    assert rows[0].wait_max == max(one.wait_max for one in each)


def test_several_processes_find_the_same(rows) -> None:
    assert list(study.run(question(), processes=2)) == rows


@pytest.mark.parametrize("processes", [1, 2])
def test_the_share_that_is_done_rises_to_all_of_it(processes) -> None:
    day = msgspec.structs.replace(TRACE, times=TRACE.times * 60, widths=TRACE.widths * 60)
    shares: list[float] = []
    rows = list(study.run(question(traces=[day]), processes, shares.append))
    assert len(rows) == 4
    assert shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)
    assert shares[-1] == 1


def test_the_picture_shows_every_panel(rows, tmp_path) -> None:
    path = tmp_path / "picture.svg"
    picture.draw(rows, path)
    drawn = path.read_text()
    assert "<svg" in drawn
    assert drawn.count('id="axes_') == 2


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["timestamp,value", *(f"{second},{second % 7}" for second in range(0, 200, 10))]
    (tmp_path / "counts.csv").write_text("\n".join(lines) + "\n")

    def run(*arguments: str):
        return CliRunner().invoke(cli, ["simulate", *arguments])

    return run


def test_the_command_prints_the_figures_as_json(simulate) -> None:
    shown = simulate(
        *("counts.csv", "--strategy", "hybrid,peak", "--sla", "5", "--quantile", "0.9"),
        *("--spawn", "0.5,2", "--service", "lognormal:0.5,0.5", "--thin", "0.5"),
        *("--seeds", "1", "--json", "--processes", "1", "--set", "max_workers=20"),
    )
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert [(row["spawn_seconds"], row["strategy"]) for row in found] == [
        (0.5, "hybrid"),
        (0.5, "peak"),
        (2.0, "hybrid"),
        (2.0, "peak"),
    ]
    figures = {"late_share", "wait_p50", "wait_p95", "wait_p99", "wait_max"}
    figures |= {"worker_seconds", "actions", "reversals", "bound_worker_seconds", "trace"}
    assert figures <= found[0].keys()
    assert msgspec.convert(found, list[SimulationResult])
    assert shown.stderr == ""


def test_the_command_prints_a_table(simulate) -> None:
    shown = simulate("counts.csv", "--strategy", "hybrid", "--seeds", "1", "--picture", "p.svg")
    assert shown.exit_code == 0, shown.output
    assert "hybrid" in shown.output
    assert "x bound" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--strategy", "hybird"), "did you mean 'hybrid'"),
        (("--service", "normal:1"), "expected lognormal:MEAN,CV"),
        (("--service", "column:size"), "no column 'size'"),
        (("--thin", "0"), "expected a number above 0"),
        (("--sla", "x"), "expected seconds above 0"),
        (("--sla", "1e12"), "up to a year"),
        (("--set", "max_workers"), "expected NAME=VALUE"),
        (("--set", "max_wrokers=3"), "max_wrokers"),
        (
            ("--set", "options.queue_size.up_step=0"),
            "up_step: expected a whole number >= 1, found 0",
        ),
        (("--set", "options.que_size.up_step=1"), "did you mean 'queue_size'"),
        (("--value", "count"), "its columns are timestamp, value"),
        (("--profile", "nobody"), "unknown profile"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(simulate, arguments, said) -> None:
    shown = simulate("counts.csv", *arguments)
    assert shown.exit_code == 2, shown.output
    assert said in shown.output
    assert shown.output.count("\n") == 1


def test_times_over_more_than_a_year_are_refused(simulate, tmp_path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("timestamp\n0\n1\n50000000\n", "utf-8")
    shown = simulate(str(path))
    assert shown.exit_code == 2, shown.output
    assert "found times over 578.7 days, expected at most 366" in shown.output


def test_one_arrival_is_simulated_and_has_no_rate(simulate, tmp_path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("timestamp\n5\n", "utf-8")
    shown = simulate(str(path), "--strategy", "hybrid,peak", "--seeds", "1")
    assert shown.exit_code == 0, shown.output


def test_a_file_that_is_not_there_is_refused(simulate) -> None:
    shown = simulate("nowhere.csv")
    assert shown.exit_code == 2
    assert "nowhere.csv" in shown.output
