"""Where a consumer group stands in a topic, as partitions move, stay behind and begin anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.sources.partitions import Offsets, Reset, TopicProgress

STUCK = 60.0


def progress(*looks: dict[int, Offsets], reset: Reset = "earliest") -> TopicProgress:
    """After a look a second."""
    topic = TopicProgress(reset, STUCK)
    for second, look in enumerate(looks):
        topic.observe(look, float(second))
    return topic


def sums(topic: TopicProgress) -> tuple[int, int, int]:
    return topic.waiting, topic.arrived, topic.ended


# --- where a group begins -----------------------------------------------------------------------
def test_the_lag_is_what_is_between_the_committed_offset_and_the_end() -> None:
    assert sums(progress({0: Offsets(0, 10, 4), 1: Offsets(0, 5, 5)})) == (6, 15, 9)


def test_what_retention_removed_is_not_waited_for() -> None:
    assert sums(progress({0: Offsets(8, 10, 4)})) == (2, 10, 8)


def test_without_a_committed_offset_earliest_waits_for_all_that_is_held() -> None:
    assert sums(progress({0: Offsets(3, 10, None)})) == (7, 10, 3)


def test_without_a_committed_offset_latest_waits_for_what_came_since_the_first_look() -> None:
    topic = progress({0: Offsets(3, 10, None)}, reset="latest")
    assert topic.waiting == 0
    topic.observe({0: Offsets(3, 12, None)}, 1.0)
    assert topic.waiting == 2
    topic.observe({0: Offsets(3, 12, 12)}, 2.0)
    assert (topic.waiting, topic.epoch) == (0, 0)


def test_a_committed_offset_beyond_the_end_is_as_good_as_none() -> None:
    assert progress({0: Offsets(0, 10, 500)}).waiting == 10
    assert progress({0: Offsets(0, 10, 500)}, reset="latest").waiting == 0


# --- counters -----------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_sums_only_grow_within_an_epoch(moves) -> None:
    topic, end, committed = TopicProgress("earliest", STUCK), 0, 0
    for second, (come, taken) in enumerate(moves):
        before = topic.arrived, topic.ended
        end += come
        committed = min(committed + taken, end)
        topic.observe({0: Offsets(0, end, committed or None)}, float(second))
        assert (topic.waiting, topic.arrived, topic.ended) == (end - committed, end, committed)
        assert topic.arrived >= before[0]
        assert topic.ended >= before[1]
    assert topic.epoch == 0


def test_ends_and_positions_that_go_back_begin_an_epoch() -> None:
    begin = {0: Offsets(0, 10, 5), 1: Offsets(0, 3, 3)}
    assert progress(begin, begin).epoch == 0
    for after in (
        {0: Offsets(0, 2, None), 1: Offsets(0, 3, 3)},  # made anew
        {0: Offsets(0, 10, 1), 1: Offsets(0, 3, 3)},  # the group's offsets were reset
        {0: Offsets(0, 10, 5)},  # fewer partitions
    ):
        assert progress(begin, after).epoch == 1


def test_a_partition_that_is_added_begins_no_epoch() -> None:
    topic = progress({0: Offsets(0, 10, 5)}, {0: Offsets(0, 10, 5), 1: Offsets(0, 2, None)})
    assert (topic.epoch, topic.partitions, topic.waiting) == (0, 2, 7)


# --- offsets without a record -------------------------------------------------------------------
def test_offsets_without_a_record_do_not_wait_and_never_come_back() -> None:
    topic = progress({0: Offsets(0, 10, 8)})
    topic.skip(0, 9)
    topic.skip(0, 10)
    assert sums(topic) == (0, 10, 10)
    topic.observe({0: Offsets(0, 13, 8)}, 1.0)
    assert sums(topic) == (3, 13, 10)
    topic.observe({0: Offsets(0, 13, 9)}, 2.0)
    assert sums(topic) == (3, 13, 10)
    topic.observe({0: Offsets(0, 13, 12)}, 3.0)
    assert sums(topic) == (1, 13, 12)
    assert topic.epoch == 0


def test_a_group_that_is_put_back_before_such_offsets_begins_an_epoch() -> None:
    topic = progress({0: Offsets(0, 10, 4)})
    topic.skip(0, 6)
    topic.observe({0: Offsets(0, 10, 8)}, 1.0)
    topic.skip(0, 9)
    topic.observe({0: Offsets(0, 10, 7)}, 2.0)
    assert (topic.epoch, topic.waiting) == (1, 3)


# --- stuck partitions ---------------------------------------------------------------------------
def looks_with_one_behind(seconds: int) -> list[dict[int, Offsets]]:
    """Partition 0 goes on, 1 stays at offset 2, and in both a record comes each second."""
    return [
        {0: Offsets(0, second + 1, second), 1: Offsets(0, 1_000 + second, 2)}
        for second in range(seconds)
    ]


def test_a_partition_that_stays_behind_while_the_group_goes_on_is_stuck() -> None:
    assert progress(*looks_with_one_behind(60)).stuck == 0
    topic = progress(*looks_with_one_behind(63))
    assert topic.waiting - topic.stuck == 2  # one in each partition: what came since counts
    assert topic.lags == {0: 1}


def test_a_stuck_partition_counts_again_when_it_moves() -> None:
    topic = progress(*looks_with_one_behind(100))
    topic.observe({0: Offsets(0, 101, 100), 1: Offsets(0, 1_200, 3)}, 101.0)
    assert (topic.stuck, topic.waiting) == (0, 1_198)


def test_nothing_is_stuck_while_the_group_commits_nowhere() -> None:
    still = {0: Offsets(0, 10, 5), 1: Offsets(0, 1_000, 2)}
    topic = progress(*[still] * 500)
    assert topic.stuck == 0
    # Workers are back: the first that commits condemns no other.
    topic.observe({0: Offsets(0, 10, 6), 1: Offsets(0, 1_000, 2)}, 501.0)
    assert topic.stuck == 0


def test_who_commits_first_after_a_silence_condemns_no_other() -> None:
    topic = progress({0: Offsets(0, 10, 1), 1: Offsets(0, 99, 1)})
    topic.observe({0: Offsets(0, 10, 2), 1: Offsets(0, 99, 2)}, 1.0)
    topic.observe({0: Offsets(0, 10, 3), 1: Offsets(0, 99, 2)}, 501.0)
    assert topic.stuck == 0
    topic.observe({0: Offsets(0, 10, 4), 1: Offsets(0, 99, 2)}, 562.0)
    assert topic.stuck == 97


def test_an_idle_partition_says_nothing_about_one_that_waits() -> None:
    idle_beside = [{0: Offsets(0, 5, 5), 1: Offsets(0, 10 + nth, 2)} for nth in range(500)]
    assert progress(*idle_beside).stuck == 0
