"""Whole studies: rows of means, whatever the number of processes; the command; the picture."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
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

PENSTOCK = "from penstock.cli.main import main; main()"
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


def test_a_bound_that_a_run_undercuts_is_left_out(rows) -> None:
    cheaper = msgspec.structs.replace(rows[0], worker_seconds=1.0, late_share=0.0)
    assert [row.cost_ratio for row in study.with_known_bounds([cheaper, *rows[1:]])] == [
        *(0, 0),
        *(row.cost_ratio for row in rows[2:]),
    ]
    assert study.with_known_bounds(rows) == rows


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
    assert drawn.count('id="axes_') == 4
    assert {"late share allowed", "actions an hour", "keda:2"} <= set(
        re.findall(r">([^<]+)<", drawn)
    )


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
    for row in found:
        assert row["cost_ratio"] == row["worker_seconds"] / row["bound_worker_seconds"]
        assert row["actions_per_hour"] == pytest.approx(row["actions"] / row["hours"])
        assert row["keeps_promise"] is (row["late_share"] <= 0.1)


@pytest.mark.parametrize(
    ("arguments", "promise"),
    [
        (("--profile", "critical"), (10, 0.99)),
        (("--profile", "critical", "--set", "sla_seconds=5", "--set", "quantile=0.9"), (5, 0.9)),
        (("--profile", "critical", "--sla", "7", "--quantile", "0.5"), (7, 0.5)),
    ],
)
def test_the_promise_is_the_pools_unless_one_is_given(simulate, arguments, promise) -> None:
    shown = simulate(
        *("counts.csv", "--strategy", "peak", "--seeds", "1", "--processes", "1", "--json"),
        *arguments,
    )
    [row] = json.loads(shown.stdout)
    assert (row["sla_seconds"], row["quantile"]) == promise


def test_the_command_prints_a_table(simulate) -> None:
    shown = simulate("counts.csv", "--strategy", "hybrid", "--seeds", "1", "--picture", "p.svg")
    assert shown.exit_code == 0, shown.output
    assert "hybrid" in shown.output
    assert "x bound" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--strategy", "hybird"), "did you mean 'hybrid'"),
        (("--strategy", "hpa:70"), "expected hpa:SHARE"),
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
        (("--set", "calm=2"), "did you mean options.deadline.calm?"),
        (("--set", "pools.mails.sla_seconds=5"), "without its pool: sla_seconds"),
        (("--set", "sla_seconds=x"), "penstock: sla_seconds: expected a number"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(simulate, arguments, said) -> None:
    shown = simulate("counts.csv", *arguments)
    assert shown.exit_code == 2, shown.output
    assert said in shown.output
    assert shown.output.count("\n") == 1


def refusal(simulate, tmp_path, text: str | bytes, *arguments: str) -> str:
    """The one line that refuses a file."""
    path = tmp_path / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    shown = simulate("own.csv", "--strategy", "peak", "--seeds", "1", *arguments)
    assert shown.exit_code == 2, shown.output
    assert shown.output.count("\n") == 1
    return shown.output


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("time,count\n0,0\n60,0\n", (), "no job arrives"),
        ("time\n0\n60\n", ("--thin", "0.001"), "no job is left"),
        ("time\n0\n1\n9000\n", ("--hours", "0.0001"), "one time only"),
        ("time,count\n0,1e9\n60,3\n", (), "thin them by 51 or more"),
        ("time,count,size\n0,1,1\n60,3,1\n", ("--service", "column:size"), "count jobs"),
        ("time\n0\n9\n", ("--hours", "0"), "x>0"),
        ("time\n0\n9\n", ("--picture", "nowhere/p.svg"), "no folder nowhere"),
        ("time\n0\n9\n", ("--picture", "p.docx"), "expected a name that ends in"),
    ],
)
def test_a_selection_that_cannot_be_simulated_is_refused(
    simulate, tmp_path, text, arguments, message
) -> None:
    assert message in refusal(simulate, tmp_path, text, *arguments)


def test_the_columns_and_the_jobs_are_named(simulate, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("when,amount\n0,100\n60,100\n")
    usual = ("own.csv", "--strategy", "peak", "--seeds", "2", "--processes", "1", "--json")
    shown = simulate(*usual)
    assert "own: time: when; one job a row: 2 jobs" in shown.stderr
    shown = simulate(*usual, "--value", "amount", "--hours", "5")
    assert "own: time: when; count: amount: 200 jobs" in shown.stderr
    assert "--hours 5 takes all of it" in shown.stderr
    [row] = json.loads(shown.stdout)
    assert row["jobs"] == 200


def test_run_times_in_another_unit_are_noted(simulate, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("time,ms\n0,90000\n60,90000\n")
    shown = simulate("own.csv", "--strategy", "peak", "--seeds", "1", "--service", "column:ms")
    assert "mean run time of 90000 s" in shown.stderr


def test_times_over_more_than_a_year_are_refused(simulate, tmp_path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("timestamp\n0\n1\n50000000\n", "utf-8")
    shown = simulate(str(path))
    assert shown.exit_code == 2, shown.output
    assert "found times over 578.7 days, expected at most 366" in shown.output


def test_a_file_that_is_not_there_is_refused(simulate) -> None:
    shown = simulate("nowhere.csv")
    assert shown.exit_code == 2
    assert "nowhere.csv" in shown.output


def test_an_interrupt_shows_the_rows_that_are_finished(tmp_path) -> None:
    rows = "".join(f"{second}\n" for second in range(100_000))
    (tmp_path / "long.csv").write_text(f"time\n{rows}")
    command = "simulate long.csv --strategy peak,hybrid,deadline --seeds 1 --processes 2"
    with subprocess.Popen(
        [sys.executable, "-c", PENSTOCK, *command.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "one job a row: 100000 jobs" in process.stderr.readline()
        assert "peak: 0.00% late" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        table, rest = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130
    assert "peak" in table
    assert "deadline" not in table
    assert rest.split() == ["penstock:", "interrupted"]
