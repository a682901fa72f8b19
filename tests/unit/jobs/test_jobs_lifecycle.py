"""The life of a job: every edge of the table, and what no order of events can do."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.telling import BROKEN, EVENT_TYPES, NOW, event, told

from penstock.events.envelope import Event, UnknownEvent, encode
from penstock.events.job import (
    JOB_EVENTS,
    MAX_JOB_TAGS,
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobMoved,
    JobProgressed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
    JobTagged,
)
from penstock.events.workflow import (
    MemoCarried,
    StepRecorded,
    WorkflowAdvanced,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import InlineResult
from penstock.jobs import lifecycle
from penstock.jobs.errors import IllegalTransition
from penstock.jobs.lifecycle import (
    TRANSITIONS,
    JobRecord,
    State,
    carried,
    evolve,
    fold,
)
from penstock.jobs.reading.job_list import leads_to

DELAYED = event(JobDispatched, due_at=NOW + timedelta(hours=1))

REACHED: dict[State | None, JobRecord | None] = {
    None: None,
    State.SCHEDULED: told(DELAYED),
    State.WAITING: told(JobDispatched),
    State.RUNNING: told(JobDispatched, JobStarted),
    State.RETRYING: told(JobDispatched, JobStarted, JobFailed, JobRetrying),
    State.SUSPENDED: told(JobDispatched, JobStarted, WorkflowAdvanced),
    State.COMPLETED: told(JobDispatched, JobStarted, JobCompleted),
    State.DEAD: told(JobDispatched, JobDead),
    State.CANCELLED: told(JobDispatched, JobCancelled),
}
"""A job in each state, and None for one that does not exist."""

LEGAL = {
    (state, edge.event): edge.target or state for edge in TRANSITIONS for state in edge.sources
}


def test_every_event_and_every_state_is_in_the_table() -> None:
    assert {edge.event for edge in TRANSITIONS} == set(EVENT_TYPES)
    in_place_of_others = {JobCarried, MemoCarried}
    assert {*EVENT_TYPES, *in_place_of_others} == set(JOB_EVENTS)
    assert {edge.target for edge in TRANSITIONS} - {None} | {State.SCHEDULED} == set(State)
    assert all(record is None or record.state is state for state, record in REACHED.items())


@pytest.mark.parametrize(("state", "kind"), LEGAL)
def test_an_edge(state: State | None, kind: type[JobEvent]) -> None:
    after = evolve(REACHED[state], event(kind), 99)
    assert after.state is LEGAL[state, kind]
    assert after.sequence == 99


@pytest.mark.parametrize(
    ("state", "kind"),
    [(s, k) for s in REACHED for k in EVENT_TYPES if (s, k) not in LEGAL],
)
def test_what_is_no_edge_is_refused_with_the_story(
    state: State | None, kind: type[JobEvent]
) -> None:
    with pytest.raises(IllegalTransition) as refused:
        evolve(REACHED[state], event(kind), 99)
    for part in ("j1", kind.__name__, str(state or "nothing"), "99"):
        assert part in str(refused.value)


def test_nothing_but_a_new_life_may_follow_the_end() -> None:
    ended = {state for state in State if state.ended}
    assert ended == {State.COMPLETED, State.DEAD, State.CANCELLED}
    assert {kind for state, kind in LEGAL if state in ended} == {JobRevived, JobTagged}
    assert (State.COMPLETED, JobRevived) not in LEGAL


def test_a_delayed_job_is_scheduled_until_it_is_due() -> None:
    record = told(DELAYED)
    assert (record.state, record.available_at) == (State.SCHEDULED, NOW + timedelta(hours=1))
    assert told(JobDispatched).available_at == NOW


def test_a_start_is_remembered_by_its_sequence() -> None:
    record = told(JobDispatched, event(JobStarted, message=10), JobProgressed)
    assert (record.token, record.sequence, record.message) == (2, 3, 10)
    assert (record.attempt, record.worker, record.done, record.total) == (1, "w", 1, 2)


def test_a_moved_job_waits_in_another_queue_and_its_messages_are_void() -> None:
    record = told(JobDispatched, event(JobStarted, message=10), JobReleased, JobMoved)
    assert (record.queue, record.payload, record.message) == ("others", b"moved", 0)
    assert (record.life_from, record.moved, record.messages_from) == (1, 4, 4)
    assert record.available_at == told(JobDispatched, JobStarted, JobReleased).available_at
    again = fold(enumerate(carried(record, "orchestrator"), 9))
    assert again is not None
    assert (again.queue, again.moved) == ("others", 4)
    assert leads_to(event(JobMoved), State.WAITING)
    assert not leads_to(event(JobMoved), State.RUNNING)


@pytest.mark.parametrize("state", State)
def test_tags_change_and_nothing_else(state: State) -> None:
    before = REACHED[state]
    assert before is not None
    after = evolve(before, event(JobTagged, added=("a", "b", "a"), removed=("c",)), 99)
    assert after == msgspec.structs.replace(before, tags=("a", "b"), sequence=99)
    assert after.changed_by < 99, "its messages are as good as before"
    again = fold(enumerate(carried(after, "orchestrator"), 100))
    assert again is not None and again.tags == ("a", "b")


def test_a_job_has_a_bounded_number_of_bounded_tags_whatever_is_stored() -> None:
    many = tuple(f"t{n}" for n in range(100))
    record = told(JobDispatched, event(JobTagged, added=(*many, "x" * 101, "")))
    assert record.tags == many[:MAX_JOB_TAGS]
    record = told(JobDispatched, event(JobTagged, added=("", "x" * 101)))
    assert record.tags == ()


def test_tags_are_kept_by_a_new_life() -> None:
    record = told(JobDispatched, JobTagged, JobDead, JobRevived)
    assert (record.tags, record.life) == (("seen",), 2)


def test_a_workflow_keeps_what_it_recorded_over_suspensions_a_new_life_and_carrying() -> None:
    wakes_at = NOW + timedelta(days=20)
    suspended = event(WorkflowAdvanced, due_at=wakes_at)
    record = told(JobDispatched, JobStarted, StepRecorded, suspended)
    assert record.workflow is not None
    assert [bool(entry.inline) for entry in record.workflow.entries] == [True, False]
    assert (record.wakes_at, record.available_at) == (wakes_at, wakes_at)
    kept = fold(enumerate(carried(record, "orchestrator"), 9))
    assert kept is not None
    assert (kept.state, kept.workflow, kept.wakes_at) == (
        State.SUSPENDED, record.workflow, wakes_at,
    )  # fmt: skip
    again = told(JobDispatched, JobStarted, suspended, JobStarted, JobDead, JobRevived)
    assert again.workflow is not None
    assert again.workflow.advances == 1


def test_what_an_attempt_recorded_that_knew_too_little_is_ignored() -> None:
    record = told(JobDispatched, JobStarted, StepRecorded, WorkflowAdvanced, JobStarted)
    again = told(
        JobDispatched, JobStarted, StepRecorded, WorkflowAdvanced, JobStarted,
        StepRecorded, WorkflowAdvanced,
    )  # fmt: skip
    assert (again.state, again.workflow) == (State.SUSPENDED, record.workflow)


def test_a_pause_lasts_over_states_until_it_is_resumed_or_the_workflow_ends() -> None:
    record = told(JobDispatched, JobStarted, WorkflowPaused, JobReleased, JobStarted)
    assert (record.is_paused, record.pause_reason, record.message) == (True, "wrong day", 10)
    assert evolve(record, event(WorkflowResumed), 9).message == 10, "that of the running advance"
    advanced = evolve(record, event(WorkflowAdvanced), 9)
    assert advanced.is_paused
    assert evolve(advanced, event(WorkflowResumed), 10).message == 0
    assert not evolve(advanced, event(JobCancelled), 10).is_paused


def test_an_advance_counts_tries_and_losses_anew() -> None:
    record = told(
        JobDispatched, JobStarted, JobRecovered, JobStarted, JobFailed, JobRetrying,
        event(JobStarted, attempt=2), WorkflowAdvanced,
    )  # fmt: skip
    assert (record.next_attempt, record.lost_workers, record.error) == (1, 0, None)


def test_a_failure_with_a_retry() -> None:
    record = told(JobDispatched, JobStarted, JobFailed, JobRetrying)
    assert (record.state, record.attempt, record.next_attempt) == (State.RETRYING, 1, 2)
    assert (record.error, record.available_at) == (BROKEN, NOW + timedelta(seconds=30))


def test_a_success_after_a_failure_leaves_no_error() -> None:
    record = told(
        JobDispatched, JobStarted, JobFailed, JobRetrying,
        event(JobStarted, attempt=2), event(JobCompleted, attempt=2),
    )  # fmt: skip
    assert (record.state, record.error, record.result) == (State.COMPLETED, None, b"\x01")


@pytest.mark.parametrize("interruption", [JobReleased, JobRecovered])
def test_an_interruption_by_the_platform_uses_up_no_attempt(interruption: type[JobEvent]) -> None:
    record = told(JobDispatched, JobStarted, interruption)
    assert (record.state, record.next_attempt) == (State.WAITING, 1)


def test_lost_workers_are_counted_in_a_row() -> None:
    lost = [JobStarted, JobRecovered] * 3
    assert told(JobDispatched, *lost).lost_workers == 3
    assert told(JobDispatched, *lost, JobStarted, JobReleased).lost_workers == 3
    assert told(JobDispatched, *lost, JobStarted, JobFailed, JobRetrying).lost_workers == 0


def test_an_event_of_a_later_version_moves_the_sequence_and_nothing_else() -> None:
    unknown = UnknownEvent(type="JobBlessed", raw=b'{"type":"JobBlessed"}')
    events = [(3, event(JobDispatched)), (7, unknown)]
    record = lifecycle.fold(events)
    assert record is not None
    assert (record.state, record.sequence) == (State.WAITING, 7)
    assert lifecycle.fold([(1, unknown)]) is None


def test_what_may_not_follow_moves_the_sequence_and_nothing_else() -> None:
    record = told(JobDispatched, JobStarted)
    completed = lifecycle.advance(record, event(JobCompleted), 3)
    after = lifecycle.advance(completed, event(JobStarted, worker="thief"), 4)
    assert after == msgspec.structs.replace(completed, sequence=4)  # type: ignore[type-var]
    assert lifecycle.advance(None, event(JobStarted), 1) is None


def test_an_end_whose_earlier_events_left_the_log_is_told_alone() -> None:
    end = event(JobCompleted)
    record = lifecycle.fold([(7, event(JobStarted)), (8, end)])
    assert record is not None
    assert (record.state, record.result, record.payload) == (State.COMPLETED, end.result, b"")


def test_what_takes_the_place_of_events_leads_to_the_same_record() -> None:
    paused = told(JobDispatched, JobStarted, WorkflowAdvanced, WorkflowPaused)
    assert paused.is_paused
    for record in filter(None, [*REACHED.values(), paused]):
        [carried] = lifecycle.carried(record, "test")
        raw = JOB_EVENTS.decode(encode(carried))
        assert lifecycle.fold([(50, raw)]) == msgspec.structs.replace(record, sequence=50)
        after = lifecycle.advance(record, raw, 51)
        assert after == msgspec.structs.replace(record, sequence=51)


def test_a_large_memo_is_carried_in_parts_and_counts_once_it_is_whole() -> None:
    record = told(JobDispatched, JobStarted)
    for number in range(1, 8):
        inline = InlineResult("page", "page", bytes(100_000))
        record = evolve(record, event(StepRecorded, number=number, inline=inline), number + 2)
    record = evolve(record, event(WorkflowAdvanced), 10)
    first, *parts = lifecycle.carried(record, "test")
    assert max(len(encode(part)) for part in [first, *parts]) < 500_000
    history = [(at, JOB_EVENTS.decode(encode(one))) for at, one in enumerate([first, *parts], 50)]
    whole = lifecycle.fold(history)
    assert whole == msgspec.structs.replace(record, sequence=history[-1][0])
    for cut in (history[:-1], [history[0], *history[2:]]):
        partial = lifecycle.fold(cut)
        assert partial is not None and partial.workflow is not None and partial.workflow.following
    again = lifecycle.fold([*history, *[(at + 50, one) for at, one in history]])
    assert again is not None and again.workflow == record.workflow


def test_a_new_life_begins_anew_and_remembers_that_it_is_not_the_first() -> None:
    lived = told(JobDispatched, JobStarted, JobRecovered, JobStarted, JobFailed, JobDead)
    record = evolve(lived, event(JobRevived, payload=b"other"), 9)
    assert (record.state, record.life, record.life_from) == (State.WAITING, 2, 9)
    assert (record.attempt, record.next_attempt, record.lost_workers, record.message) == (
        0,
        1,
        0,
        0,
    )
    assert (record.payload, record.error) == (b"other", None)
    assert record.dispatched_at == lived.dispatched_at


def test_what_was_committed_stands_for_all_attempts_and_lives_with_the_same_arguments() -> None:
    record = told(JobDispatched, JobStarted, JobCommitted, JobRecovered, JobStarted)
    assert record.commits == {"orders": "/lake/_orders.j1.2"}
    dead = evolve(record, event(JobDead), 9)
    assert evolve(dead, event(JobRevived), 10).commits == record.commits
    assert evolve(dead, event(JobRevived, changed=True), 10).commits == {}


def test_a_life_can_be_told_without_the_one_before() -> None:
    """Dead letters are kept longer than events."""
    assert told(JobRevived, JobStarted, JobCompleted).state is State.COMPLETED


any_events = st.lists(st.sampled_from(EVENT_TYPES), max_size=40)
unreadable = st.builds(
    UnknownEvent, type=st.just("JobStarted"), raw=st.binary(max_size=9), unreadable=st.just("bad")
)


@given(any_events, st.lists(st.tuples(st.integers(0, 80), unreadable), max_size=9))
def test_a_story_with_garbage_folds_as_without_it(
    kinds: list[type[JobEvent]], garbage: list[tuple[int, UnknownEvent]]
) -> None:
    """Garbage is what cannot be read, and every event that may not follow where it lies."""
    story: list[tuple[int, Event | UnknownEvent]] = [
        (10 * place, event(kind)) for place, kind in enumerate(kinds, 1)
    ]
    for place, (at, rubbish) in enumerate(garbage):
        story.append((10 * (at % (len(kinds) + 1)) + 1 + place, rubbish))
    story.sort(key=lambda entry: entry[0])
    ignored = dict(lifecycle.ignored_events(story))
    counted = [entry for entry in story if entry[0] not in ignored]
    assert all(isinstance(rubbish, JobEvent) for _, rubbish in counted)

    with_garbage, without = lifecycle.fold(story), lifecycle.fold(counted)
    if without is None or with_garbage is None:
        assert with_garbage is without
        return
    assert with_garbage == msgspec.structs.replace(without, sequence=story[-1][0])
    changes = [sequence for sequence, legal in counted if not isinstance(legal, JobTagged)]
    assert (without.sequence, without.changed_by) == (counted[-1][0], changes[-1])
    record: JobRecord | None = None
    for sequence, legal in counted:
        record = lifecycle.advance(record, legal, sequence)
        assert record is not None
        assert record.changed_by == max(one for one in changes if one <= sequence)


@given(any_events)
def test_no_order_of_events_ends_a_job_twice(kinds: list[type[JobEvent]]) -> None:
    """Whoever appends what, whenever: what the table lets through tells lives with one end each."""
    record: JobRecord | None = evolve(None, event(JobDispatched), 1)
    accepted: list[type[JobEvent]] = [JobDispatched]
    for sequence, kind in enumerate(kinds, 2):
        try:
            record = evolve(record, event(kind), sequence)
        except IllegalTransition:
            continue
        accepted.append(kind)
    assert record is not None
    ends = [kind for kind in accepted if kind in (JobCompleted, JobDead, JobCancelled)]
    assert len(ends) == record.life - (0 if record.state.ended else 1)
    assert accepted.count(JobRevived) == record.life - 1
    assert accepted.count(JobDispatched) == 1
    assert lifecycle.fold(enumerate(map(event, accepted), 1)).state is record.state  # type: ignore[union-attr]
