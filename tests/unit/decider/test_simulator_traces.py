"""Traces: what may stand in a file, and the jobs that are drawn from it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.decider.simulator.model import durations, load, traces
from penstock.decider.simulator.model.load import Trace


@pytest.fixture
def write(tmp_path):
    def written(text: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_a_time_a_row(write) -> None:
    trace = traces.read(
        write(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.4799600,3180,8\n"
        ),
        size="generatedtokens",
    )
    assert trace.counts is None
    assert trace.times == pytest.approx([0, 1.5])
    assert list(trace.columns["generatedtokens"]) == [10, 8]
    drawn = load.draw(trace, durations.parse("column:generatedtokens,0.5"))
    assert drawn.services == [5, 4]


def test_counts_in_bins_with_a_gap(write) -> None:
    trace = traces.read(
        write("period,count\n2024-01-01 00:00,3\n2024-01-01 00:01,5\n2024-01-01 01:00,2\n")
    )
    assert list(trace.counts) == [3, 5, 2]
    assert list(trace.times) == [0, 60, 3600]
    assert list(trace.widths) == [60, 60, 60]
    assert trace.duration_seconds == 3660


@pytest.mark.parametrize(
    ("text", "names", "times"),
    [
        ("when;load\n1700000000;5\n1700000060;6\n", {"time": "when", "value": "load"}, [0, 60]),
        ("1700000000000\n1700000000500\n", {}, [0, 0.5]),
        ("2\n1\n4\n", {}, [0, 1, 3]),
        ("ts\n2024-01-01T00:00:00Z\n2024-01-01T01:00:02+01:00\n", {}, [0, 2]),
        ("10/Apr/2014:00:04:00,x\n10/Apr/2014:00:04:09,y\n", {"time": "0"}, [0, 9]),
    ],
    ids=["named, semicolons", "milliseconds, no header", "unsorted", "zones", "log format"],
)
def test_other_ways_to_write_it(write, text, names, times) -> None:
    assert traces.read(write(text), **names).times == pytest.approx(times)


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ("", {}, "found nothing"),
        ("time\n", {}, "a header only"),
        ("time,count\nnever,1\n", {}, "row 1: found 'never', expected a time"),
        ("time,count\n1,2\n2,-3\n", {}, "row 2: found '-3', expected a number"),
        ("time,count\n1,2\n", {}, "found one bin"),
        ("time\n7\n7\n", {}, "found one time only"),
        ("when\n01/02/2026 10:00\n01/03/2026 10:00\n", {}, "row 1: .* cannot be distinguished"),
        ("01/02/2026,4\n", {}, "row 1: .* cannot be distinguished"),
        ("time,count\n1,2\n2,3\n", {"value": "cuont"}, "its columns are time, count"),
    ],
)
def test_what_is_no_trace_is_refused(write, text, names, said) -> None:
    with pytest.raises(traces.BadTrace, match=said):
        traces.read(write(text), **names)


@pytest.mark.parametrize(
    ("head", "message"), [(b"\x1f\x8b\x08", "is compressed .gzip"), (b"PAR1\x15", "is Parquet")]
)
def test_a_file_that_is_no_text_is_named_for_what_it_is(tmp_path, head, message) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(head)
    with pytest.raises(traces.BadTrace, match=message):
        traces.read(path)


@pytest.mark.parametrize(("counts", "exact"), [("100\n60,120", True), ("0.5\n60,2", False)])
def test_whole_counts_are_kept_where_that_is_asked_for(write, counts, exact) -> None:
    path = write(f"time,count\n0,{counts}\n")
    assert not traces.read(path).exact
    trace = traces.read(path, exact=True)
    assert trace.exact is exact
    if exact:
        arrivals = load.draw(trace, ONE_SECOND, seed=3).arrivals
        assert list(np.histogram(arrivals, bins=[0, 60, 120])[0]) == [100, 120]
        assert load.busiest(trace, 60).exact
        assert len(load.draw(trace, ONE_SECOND, thin=0.5).arrivals) < 220


def binned(*counts: float, width: float = 60.0) -> Trace:
    return Trace(
        name="binned",
        origin=0.0,
        times=np.arange(len(counts)) * width,
        counts=np.array(counts, dtype=float),
        widths=np.full(len(counts), width),
    )


ONE_SECOND = durations.Lognormal(1.0, 0.0)


def test_bins_become_a_poisson_process_in_their_time() -> None:
    drawn = load.draw(binned(0, 6000, 0, 3000), ONE_SECOND, seed=1)
    counts, _ = np.histogram(drawn.arrivals, bins=[0, 60, 120, 180, 240])
    assert counts[0] == counts[2] == 0
    assert counts[1] == pytest.approx(6000, abs=4 * 6000**0.5)
    assert counts[3] == pytest.approx(3000, abs=4 * 3000**0.5)
    assert drawn.arrivals == sorted(drawn.arrivals)
    assert set(drawn.services) == {1.0}


@pytest.mark.parametrize("factor", [0.1, 10])
def test_thinning_keeps_a_share_or_one_in_so_many(factor) -> None:
    drawn = load.draw(binned(50_000), ONE_SECOND, thin=factor, seed=2)
    assert len(drawn.arrivals) == pytest.approx(5000, abs=4 * 5000**0.5)


def test_a_seed_stands_for_its_jobs() -> None:
    spread = durations.Lognormal(1.0, 1.0)
    first, again, other = (load.draw(binned(100), spread, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_more_jobs_than_memory_holds_are_refused_with_a_way_out() -> None:
    with pytest.raises(load.TooMany, match="thin them by 50 or more"):
        load.draw(binned(1e9), ONE_SECOND)


def test_a_trace_of_more_than_a_year_is_refused() -> None:
    times = np.array([0.0, 1.0, durations.MOST_SECONDS + 2])
    trace = load.Trace(name="long", origin=0.0, times=times)
    with pytest.raises(load.TooMany, match="found times over 366 days, expected at most 366"):
        load.draw(trace, ONE_SECOND)
    assert len(load.draw(load.busiest(trace, 3600), ONE_SECOND).arrivals) == 2


@pytest.mark.parametrize("seconds", [1e9, np.inf, np.nan])
def test_a_run_time_of_more_than_a_year_is_refused(seconds: float) -> None:
    trace = load.Trace(
        name="a", origin=0.0, times=np.array([0.0, 1.0]), columns={"s": np.array([1.0, seconds])}
    )
    with pytest.raises(durations.TooLong, match="expected at most 31622400"):
        load.draw(trace, durations.Column("s"))


def test_the_busiest_part() -> None:
    part = load.busiest(binned(1, 1, 5, 6, 1), 120)
    assert (part.origin, list(part.counts), part.duration_seconds) == (120, [5, 6], 120)


@pytest.mark.parametrize(
    "text",
    [
        *("lognormal:0,1", "lognormal:a", "lognormal:1,2,3", "weibull:1", "column:", "column:x,0"),
        *("lognormal:1e308,1e300", "lognormal:1e9", "lognormal:1,2000", "lognormal:nan"),
    ],
)
def test_run_times_that_make_no_sense_are_refused(text) -> None:
    with pytest.raises(ValueError, match="expected lognormal"):
        durations.parse(text)


def test_lognormal_run_times_have_the_mean_and_spread_asked_for() -> None:
    drawn = np.array(load.draw(binned(200_000), durations.Lognormal(2.0, 0.5), seed=3).services)
    assert drawn.mean() == pytest.approx(2.0, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.02)


def test_a_device_a_pipe_and_a_huge_file_are_no_traces(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    huge = tmp_path / "huge.csv"
    huge.touch()
    os.truncate(huge, traces.MOST_BYTES + 1)
    for path in (Path("/dev/zero"), tmp_path / "pipe", huge):
        with pytest.raises(traces.BadTrace, match="expected a regular file"):
            traces.read(path)
