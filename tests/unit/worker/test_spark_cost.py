"""What an attempt has cost on Spark, out of what its monitoring interface tells."""

from __future__ import annotations

from typing import Any

from penstock.events.job import SparkCost
from penstock.worker.spark.cost import ask, total, warm

TAG = "penstock-token-7"


def job(*stages: int, tags: tuple[str, ...] = (f"SparkConnect_Session_x_Tag_{TAG}",)) -> Any:
    return {"stageIds": list(stages), "jobTags": list(tags)}


def stage(number: int, **fields: int) -> Any:
    return {"stageId": number, "numCompleteTasks": 1, **fields}


def test_all_stages_of_all_its_jobs_count_and_no_others() -> None:
    jobs = [job(1, 2), job(2, 3), job(4, tags=("other",)), job(5, tags=(f"x_{TAG}0",))]
    stages = [
        stage(1, executorCpuTime=1_500_000_000, inputRecords=10, shuffleWriteBytes=100),
        stage(2, executorCpuTime=500_000_000, shuffleReadBytes=100, peakExecutionMemory=7),
        stage(2, executorCpuTime=1_000_000_000, shuffleReadBytes=50),  # its second try
        stage(3, outputRecords=3, peakExecutionMemory=9),
        stage(4, executorCpuTime=9_000_000_000, inputRecords=99),
        stage(5, executorCpuTime=9_000_000_000),
        {"stageId": 3, "numCompleteTasks": 0},  # skipped
    ]
    assert total(jobs, stages, TAG) == SparkCost(
        cpu_seconds=3.0, rows_read=10, rows_written=3, shuffle_read_bytes=150,
        shuffle_write_bytes=100, peak_memory_bytes=9, stages=4,
    )  # fmt: skip


def test_nothing_costs_nothing_and_what_cannot_be_asked_is_not_known() -> None:
    assert total([], [], TAG) == SparkCost()
    assert ask("http://127.0.0.1:1", TAG) is None
    assert ask("file:///etc/passwd", TAG) is None


def test_a_web_ui_that_is_not_there_is_no_error_to_a_first_job() -> None:
    warm("http://127.0.0.1:1")
    warm("file:///etc/passwd")
