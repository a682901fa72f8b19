"""Which jobs run beside each other after a worker was lost that ran several."""

from __future__ import annotations

from penstock.worker.core.company import LOOK_SECONDS, ROOM_SECONDS, Company, Room


def taken(company: Company, *limits: int) -> list[bool]:
    return [company.takes(most_beside) for most_beside in limits]


def test_a_suspect_is_taken_where_few_enough_are_and_no_other_joins_it() -> None:
    assert taken(Company(3, ()), 2, 0, 5, 0) == [False, True, True, False]
    assert taken(Company(0, ()), 1, 0, 1) == [True, False, False]
    assert taken(Company(100, ()), 0, 0) == [True, True]


def test_suspects_run_in_groups_of_the_smallest_company() -> None:
    company = Company(0, ())
    assert taken(company, 3, 2, 3) == [True, True, False]
    assert company.refused == [3]
    assert company.took_suspect


def test_jobs_that_turn_out_to_be_suspects_leave_and_join_again() -> None:
    company = Company(0, ())
    assert taken(company, 0, 0, 3) == [True] * 3
    company.leave([0, 0, 3])
    assert taken(company, 1, 1) == [True, False]


def test_one_that_need_not_wait_runs_beside_others_but_not_beside_suspects() -> None:
    company = Company(9, (), is_patient=False)
    assert taken(company, 1, 1) == [True, False]


def test_room_is_made_for_a_suspect_that_was_given_back() -> None:
    room, company = Room(), Company(9, ())
    company.takes(2)
    assert room.update(company, now=0.0)
    assert room.capacity(11, unfinished=9, now=0.1) == 0
    assert room.capacity(11, unfinished=1, now=0.1) == 1
    assert room.capacity(11, unfinished=9, now=LOOK_SECONDS) == 1, "another may have taken it"
    assert not room.update(Company(9, ()), now=LOOK_SECONDS)
    assert room.capacity(11, unfinished=9, now=LOOK_SECONDS) == 11


def test_room_is_not_made_for_ever() -> None:
    room = Room()
    for now in range(int(ROOM_SECONDS)):
        assert room.is_patient(now)
        company = Company(9, ())
        company.takes(2)
        room.update(company, now)
    assert not room.is_patient(ROOM_SECONDS)
    room.clear()
    assert room.is_patient(ROOM_SECONDS)


def test_while_suspects_end_here_the_others_wait_for_their_turn() -> None:
    room = Room()
    for now in range(2 * int(ROOM_SECONDS)):
        company = Company(0, ())
        taken(company, 1, 1)
        room.update(company, now)
        assert room.is_patient(now)
