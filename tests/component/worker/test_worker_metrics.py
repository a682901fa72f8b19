"""What jobs record in metrics of their own, and what they did by function, in the reports."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec
import pytest
from tests.component.worker.given import QUEUE, Stage, settings

from penstock.events.worker import WorkerReport
from penstock.jobs import Context, job, registry
from penstock.jobs.lifecycle import State
from penstock.measuring.job_series import JobSeries
from penstock.worker.core.function_tallies import MAX_FUNCTIONS, OTHER, FunctionTallies
from penstock.worker.running.job_metrics import MAX_REPORT_BYTES, MAX_SERIES, JobMetrics


@job(queue=QUEUE)
def load(context: Context, rows: int, fails: bool = False) -> None:
    context.metrics.counter("rows_loaded", rows, {"table": "orders"})
    context.metrics.gauge("rows_in_table", 10 * rows)
    context.metrics.histogram("batch_rows", rows)
    if fails:
        raise ValueError(rows)


@job(queue=QUEUE)
def misname(context: Context) -> None:
    context.metrics.counter("Rows-Loaded")


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY.update({each.name: each for each in (load, misname)})
    yield
    for each in (load, misname):
        del registry.REGISTRY[each.name]


class Reports:
    """All that workers report."""

    def __init__(self) -> None:
        self.reports: list[WorkerReport] = []

    def take(self, _: str, body: bytes) -> None:
        self.reports.append(msgspec.json.decode(body, type=WorkerReport))

    @property
    def series(self) -> dict[str, float]:
        together = JobSeries(1000)
        for report in self.reports:
            for series in report.series:
                together.merge(series)
        return {key.name: one.value for key, one in together}


async def test_reports_carry_what_jobs_recorded_also_of_one_that_failed() -> None:
    stage, heard = Stage(settings()), Reports()
    await stage.bus.listen(stage.subjects.worker_report("*", "*"), heard.take)
    async with stage.worker():
        for rows in (3, 4):
            await stage.ended(await stage.client.dispatch(load(rows=rows, fails=rows == 4)))
    assert heard.series == {"rows_loaded": 7, "rows_in_table": 40, "batch_rows": 7}
    done = [report.functions[load.name] for report in heard.reports if report.functions]
    assert sum(one.started for one in done) == 2
    assert sum(one.finished for one in done) == 2
    assert sum(one.failed for one in done) == 1
    assert sum(attempts for one in done for _, attempts in one.run_buckets) == 2


async def test_a_name_that_cannot_be_one_fails_the_job_and_says_why() -> None:
    stage = Stage(settings())
    async with stage.worker():
        view = await stage.ended(await stage.client.dispatch(misname()))
    assert view.state is State.DEAD
    assert "Rows-Loaded" in view.error.message


def test_series_beyond_the_bound_are_dropped_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = JobMetrics()
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        for number in range(MAX_SERIES + 3):
            metrics.counter("seen", 1, {"user": number})
        metrics.gauge("seen", 1)
    series, dropped = metrics.take()
    assert (len(series), dropped) == (MAX_SERIES, 4)
    assert [record.message.split(":")[0] for record in caplog.records] == ["metric 'seen'"]
    metrics.counter("seen", 2, {"user": 0})
    assert [one.value for one in metrics.take()[0]] == [2], "since the last report"


def test_a_report_that_was_not_published_is_added_to_the_next_one() -> None:
    metrics = JobMetrics()
    metrics.counter("rows", 2)
    metrics.gauge("depth", 9)
    lost = metrics.take()
    metrics.counter("rows", 3)
    metrics.gauge("depth", 1)
    metrics.put_back(*lost)
    assert {one.name: one.value for one in metrics.take()[0]} == {"rows": 5, "depth": 1}


def test_what_does_not_fit_one_report_goes_with_the_next_ones() -> None:
    metrics = JobMetrics()
    for number in range(MAX_SERIES):
        labels = {f"label{n}": f"{number:03}" + "x" * 97 for n in range(8)}
        metrics.counter("rows", 1, labels)
    sent = []
    while taken := metrics.take()[0]:
        assert len(msgspec.json.encode(taken)) < MAX_REPORT_BYTES * 1.1
        sent += taken
    assert len({one.labels for one in sent}) == len(sent) == MAX_SERIES


def test_a_counter_does_not_fall() -> None:
    with pytest.raises(ValueError, match="use a gauge"):
        JobMetrics().counter("rows", -1)


def test_functions_beyond_the_bound_are_counted_together() -> None:
    tallies = FunctionTallies()
    for number in range(MAX_FUNCTIONS + 2):
        tallies.started(f"f{number}")
    done = tallies.take()
    assert len(done) == MAX_FUNCTIONS + 1
    assert done[OTHER].started == 2
    assert tallies.take() == {}
