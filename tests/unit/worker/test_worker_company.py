"""Which suspects run beside each other, after workers were lost that ran several jobs."""

from __future__ import annotations

from penstock.worker.core.company import Company, offered_again_seconds


def taken(company: Company, *limits: int) -> list[bool]:
    return [company.takes(most_beside) for most_beside in limits]


def test_suspects_run_in_groups_of_the_smallest_company() -> None:
    company = Company()
    assert taken(company, 3, 2, 3) == [True, True, False]
    assert company.refused == 1
    assert taken(Company([3, 3]), 2, 3, 3) == [False, True, False]


def test_jobs_that_are_no_suspects_are_taken_beside_any() -> None:
    assert taken(Company([1]), 0, 1, 0) == [True, False, True]


def test_a_worker_that_runs_one_job_at_a_time_has_room_for_each() -> None:
    assert taken(Company(runs_one=True), 1, 1, 0) == [True, True, True]


def test_jobs_that_turn_out_to_be_suspects_leave_and_join_again() -> None:
    company = Company()
    assert taken(company, 0, 0, 3) == [True] * 3
    company.leave([0, 0, 3])
    assert taken(company, 1, 1) == [True, False]


def test_a_suspect_without_room_is_offered_less_often_the_longer_it_has_waited() -> None:
    waits = [offered_again_seconds(waited) for waited in (0.0, 10.0, 3600.0)]
    assert waits == [0.25, 1.0, 5.0]
