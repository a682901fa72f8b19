"""Given a job whose worker was lost, then it goes again, later each time, until it is dead."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.jobs.telling import NOW, event, told

from penstock.events.job import JobDispatched, JobEvent, JobFailed, JobRecovered, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.running import worker_loss

RUNNING = (JobDispatched, event(JobStarted, message=10))
REASON = "worker w on h was killed by signal 11 (SIGSEGV)"


def lost(times: int) -> JobRecord:
    """A running job that has lost so many workers before."""
    return told(*RUNNING, *[JobRecovered, event(JobStarted, message=10)] * times)


def test_the_first_loss_costs_no_time_and_the_delay_grows_from_the_second_on() -> None:
    delays = [worker_loss.delay_seconds(losses, draw=0.0) for losses in range(1, 7)]
    assert delays == [0.0, 1.0, 3.0, 9.0, 27.0, 60.0]


@pytest.mark.parametrize(("before", "state"), [(0, State.WAITING), (1, State.RETRYING)])
def test_a_job_that_goes_again(before: int, state: State) -> None:
    record = lost(before)
    made = worker_loss.recovered(record, REASON, source="executor/h", now=NOW, delayed=True)
    after = told(*_story(before), made)
    assert (after.state, after.lost_workers, after.attempt) == (state, before + 1, 1)
    assert after.put_off == (REASON if before else "")
    assert (after.available_at > NOW) is (before > 0)


def test_a_job_that_waits_is_kept_by_the_brokers_schedule_with_the_attempt_it_had() -> None:
    made = worker_loss.recovered(lost(1), REASON, source="executor/h", now=NOW, delayed=True)
    after = told(*_story(1), made)
    message = queue_messages.follow_up(Subjects("p"), after, NOW, {})
    assert message is not None
    assert message.subject == Subjects("p").schedule("reports", after.id)
    assert message.headers[queue_messages.SEQUENCE] == str(after.sequence)
    assert queue_messages.ATTEMPT not in message.headers, "the first attempt still"


def test_what_the_platform_interrupts_goes_again_without_delay() -> None:
    made = worker_loss.recovered(lost(3), REASON, source="worker/h.w", now=NOW, delayed=False)
    assert made.due_at is None


def test_a_dead_job_says_how_its_worker_ended() -> None:
    dead = worker_loss.poisoned(lost(4), REASON, source="executor/h", now=NOW)
    assert dead.error.kind == "poison"
    assert dead.error.message == f"lost its worker 5 times in a row; the last time: {REASON}"
    once = worker_loss.poisoned(lost(0), REASON, source="executor/h", now=NOW)
    assert once.error.message == f"lost its worker: {REASON}"


@pytest.mark.parametrize(
    ("max_lost", "tries", "limit"), [(0, 0, 5), (0, 1, 1), (0, 2, 5), (4, 1, 4), (9, 0, 9)]
)
def test_how_many_workers_a_job_may_lose(max_lost: int, tries: int, limit: int) -> None:
    started = event(JobStarted, max_lost=worker_loss.own_limit(max_lost, tries))
    assert worker_loss.limit(told(JobDispatched, started), max_lost_workers=5) == limit


def test_a_failure_between_makes_the_next_loss_the_first() -> None:
    record = told(*_story(2), JobFailed)
    made = worker_loss.recovered(record, REASON, source="executor/h", now=NOW, delayed=True)
    assert made.due_at is None


def test_a_due_time_lies_within_the_delay() -> None:
    made = worker_loss.recovered(lost(2), REASON, source="executor/h", now=NOW, delayed=True)
    assert made.due_at is not None
    assert timedelta(seconds=1.5) <= made.due_at - NOW <= timedelta(seconds=3)


def _story(before: int) -> list[type[JobEvent] | JobEvent]:
    return [*RUNNING, *[JobRecovered, event(JobStarted, message=10)] * before]


# --- workers with several slots -------------------------------------------------------------------
def shared(*together: int) -> JobRecord:
    """A running job that lost workers which ran so many jobs, one after another."""
    story: list[JobEvent | type[JobEvent]] = []
    for count in together:
        story += [event(JobRecovered, together=count), RUNNING[1]]
    return told(*RUNNING, *story)


def test_a_loss_that_was_shared_is_counted_apart() -> None:
    record = shared(500, 62)
    assert (record.lost_workers, record.lost_together, record.lost_beside) == (0, 2, 62)
    alone = shared(500, 62, 1)
    assert (alone.lost_workers, alone.lost_together, alone.lost_beside) == (1, 2, 1)
    assert told(*RUNNING).lost_beside == 0


def test_a_job_that_was_stuck_need_not_run_alone() -> None:
    stuck = told(*RUNNING, event(JobRecovered, strategy="checkpoint"))
    assert (stuck.lost_workers, worker_loss.most_beside(stuck)) == (1, 0)


def test_after_each_further_shared_loss_half_as_many_run_until_the_job_is_the_only_one() -> None:
    company, losses = 1024, [1024]
    while company > 1:
        losses.append(company)
        company = worker_loss.most_beside(shared(*losses))
    assert losses == [1024, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2]
    assert len(losses) < worker_loss.MOST_SHARED_LOSSES


def test_a_job_is_a_suspect_from_its_second_shared_loss_on_or_when_it_was_alone() -> None:
    stories = [(), (100,), (100, 100), (1,), (100, 1)]
    limits = [worker_loss.most_beside(shared(*story)) for story in stories]
    assert limits == [0, 0, 50, 1, 1]


def test_a_loss_is_a_suspects_doing_where_there_was_one() -> None:
    assert worker_loss.to_blame(is_suspect=False, ran=100, suspects=1) == 100
    assert worker_loss.to_blame(is_suspect=True, ran=100, suspects=1) == 1


@pytest.mark.parametrize(
    ("before", "together", "limit", "is_last"),
    [
        ((), 100, 2, False),  # it may be another's doing
        ((100, 12), 1, 2, False),
        ((100, 12, 1), 1, 2, True),  # alone twice
        ((100, 12, 1), 3, 2, False),
        ((), 100, 1, True),  # it must not run twice, whoever is to blame
        ((9,) * 10, 9, 5, False),
        ((9,) * 11, 9, 5, True),  # it was never given the room
    ],
)
def test_only_losses_of_its_own_count_towards_the_limit_within_a_bound(
    before: tuple[int, ...], together: int, limit: int, is_last: bool
) -> None:
    assert worker_loss.is_last(shared(*before), limit, together) is is_last


@pytest.mark.parametrize(
    ("before", "together", "message"),
    [
        ((20, 1), 1, "2 times in a row as the only suspect (and once together with other jobs)"),
        ((20, 2), 1, "as the only suspect (and 2 times together with other jobs)"),
        ((9,) * 11, 9, "12 times in a row together with other jobs"),
    ],
)
def test_the_dead_letter_says_which_losses_were_shared(
    before: tuple[int, ...], together: int, message: str
) -> None:
    dead = worker_loss.poisoned(
        shared(*before), REASON, source="executor/h", now=NOW, together=together
    )
    assert dead.error.message == f"lost its worker {message}; the last time: {REASON}"


def test_one_loss_that_was_shared_is_named_so() -> None:
    dead = worker_loss.poisoned(shared(), REASON, source="executor/h", now=NOW, together=20)
    assert dead.error.message == f"lost its worker together with other jobs: {REASON}"


def test_what_a_shared_loss_hit_is_not_delayed() -> None:
    made = worker_loss.recovered(
        shared(9, 9, 4), REASON, source="executor/h", now=NOW, delayed=True, together=4
    )
    assert made.due_at is None


def test_the_message_of_a_suspect_says_in_what_company_it_may_run() -> None:
    made = worker_loss.recovered(shared(8, 1), REASON, source="executor/h", now=NOW, delayed=True)
    assert made.due_at is not None
    losses = [event(JobRecovered, together=8), RUNNING[1], JobRecovered, RUNNING[1]]
    after = told(*RUNNING, *losses, made)
    message = queue_messages.follow_up(Subjects("p"), after, NOW, {})
    assert message is not None
    assert message.headers[queue_messages.BESIDE] == "1"
    plain = queue_messages.ready(Subjects("p"), told(JobDispatched), {})
    assert queue_messages.BESIDE not in plain.headers
