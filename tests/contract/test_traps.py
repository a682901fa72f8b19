"""Traps of JetStream and of its client that were met, and the tests that keep us out of them.

A trap that is left out is one of a part that we do not use: KV and its watchers (state is kept by
compare-and-set on plain streams), nats-py's `fetch` and `publish` (frames and pulls are our own),
counters, priority groups, replicas that lag (see `a_replica_that_lags`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TRAPS: dict[str, tuple[str, ...]] = {
    "a late acknowledgement is not fenced": (
        "test_a_late_acknowledgement_is_not_fenced_and_does_no_harm",
        "test_a_late_completion_does_not_take_the_claim_of_another",
        "test_a_late_ack_of_a_failed_attempt_does_not_take_the_message_of_the_next",
        "test_a_frozen_worker_that_wakes_does_not_take_the_job_from_its_heir",
    ),
    "giving back is not fenced either": (
        "test_a_late_release_does_not_take_the_claim_of_another",
        "test_a_frozen_worker_that_is_asked_to_end_takes_nothing_along",
        "test_the_death_of_a_stopped_worker_takes_nothing_from_its_heir",
    ),
    "a delayed NAK holds a place of max_ack_pending": (
        "test_a_job_that_waits_for_its_retry_holds_no_claim",
    ),
    "max_ack_pending and max_waiting are too small by default": (
        "test_many_claims_do_not_block_what_is_ready",
        "test_many_idle_pullers_are_served",
    ),
    "consumers of a work queue must not overlap": ("test_queues_do_not_overlap",),
    "a cancelled fetch leaves a live pull": (
        "test_a_cancelled_fetch_loses_nothing",
        "test_a_fetch_after_a_cancelled_one_gets_what_came",
        "test_a_closed_puller_keeps_nothing",
    ),
    "a fetch of many may raise a plain TimeoutError": (
        "test_an_empty_queue_answers_nothing_in_time",
    ),
    "KV cannot make a key anew while the marker of the expired one lives": (
        "test_a_record_that_expired_can_be_made_anew_at_once",
    ),
    "KV update drops the time to live": ("test_a_record_that_is_renewed_still_expires",),
    "KV watchers are blind for seconds after a restart": (
        "test_follow_goes_on_through_a_restart",
        "test_a_pause_outlives_the_broker",
    ),
    "publish changes the headers of its caller": ("test_the_headers_are_those_of_the_sender",),
    "an update of a stream resets what its sender does not know": (
        "test_what_an_operator_set_on_a_stream_stays",
    ),
    "lists come in pages of 256": ("test_more_queues_than_the_broker_lists_at_a_time",),
    "no consumer may cover the subjects of schedules": ("test_schedules_wait_beside_the_queue",),
    "max_age deletes schedules; async persist forbids atomic batches": (
        "test_nothing_ages_out_of_the_stream_that_schedules_wait_in",
    ),
    "the broker's cron skips and doubles when clocks change": (
        "test_a_daily_tick_comes_once_when_clocks_change",
    ),
    "servers before 2.15.1 lack fixes that we build upon": (
        "test_the_broker_is_new_enough_for_what_is_asked_of_it",
        "test_an_old_server_is_not_taken",
    ),
    "a consumer that is resumed wakes nobody until a message comes": (
        "test_a_paused_queue_is_paused_for_everyone",
    ),
    "many messages at a time lapse while the first are worked on": (
        "test_always_one_and_never_more_than_the_budget",
        "test_nothing_is_held_behind_a_long_job",
        "test_what_was_claimed_behind_it_runs_elsewhere_and_once",
    ),
    "a job that nobody can extend for lapses though it runs": (
        "test_a_job_that_computes_longer_than_its_claim_runs_once",
        "test_a_job_that_computes_in_c_longer_than_its_claim_runs_once",
    ),
    "what is delivered without an acknowledgement is delivered once, whether or not it comes": (
        "test_what_was_under_way_on_a_connection_that_broke_is_followed",
        "test_a_delivery_that_never_came_is_asked_for_again",
    ),
    "consumers are left behind": ("test_followers_leave_no_consumer_behind",),
    "redeliveries come in another order, and twice": (
        "test_doubled_messages_run_nothing_twice",
        "test_doubles_of_a_running_job_are_dropped",
        "test_each_acknowledged_dispatch_ends_exactly_once",
    ),
    "a direct read may lag behind": ("test_a_replica_that_lags_loses_no_job",),
    "an answer that does not come may belong to a message that is stored": (
        "test_a_start_whose_answer_was_lost",
        "test_a_completion_whose_answer_was_lost",
        "test_lost_answers_lose_no_job",
    ),
    "a de-duplication window ends": ("test_of_many_who_expect_nothing_one_creates",),
    "a message that was replaced is back when the last is removed and the server killed": (
        "test_a_record_is_removed_for_good_by_a_mark_alone",
        "test_removed_schedules_and_definitions",
        "test_a_snapshot_that_is_back_is_not_restored",
    ),
    "a process may die between an event and its message": (
        "test_a_dispatch_without_its_queue_message",
        "test_a_retry_without_its_schedule",
        "test_a_death_without_its_letter",
    ),
}

_TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def known() -> set[str]:
    return {
        name
        for file in _TESTS.rglob("*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M)
    }


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_has_tests_that_exist(trap: str, known: set[str]) -> None:
    assert TRAPS[trap]
    assert set(TRAPS[trap]) - known == set()
