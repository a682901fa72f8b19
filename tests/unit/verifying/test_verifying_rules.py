"""Each rule of the event log: a log that keeps all, and changes that break one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.unit.verifying.whole_log import (
    FLOW_STEP,
    MEMBERS,
    NOW,
    RESULT,
    SIGNAL,
    STEPS,
    TICK,
    Log,
    at,
    completed,
    dead,
    dispatched,
    run,
    started,
)

from penstock.cli.verify.report_text import sentences
from penstock.events.batch import BatchCompleted, BatchFailed, BatchReopened, Counts
from penstock.events.envelope import UnknownEvent
from penstock.events.graph import GraphCompleted
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobProgressed,
    JobRecovered,
    JobRevived,
    JobTagged,
)
from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.events.workflow import WorkflowContinued
from penstock.events.workflow_memo import (
    InlineResult,
    Resolution,
)
from penstock.verifying import workflows
from penstock.verifying.checker import MOST_SHOWN, Extent
from penstock.verifying.rules import Rule

Change = Callable[[Log], object]


def jobs(**histories: object) -> Change:
    return lambda log: log.jobs.update(histories)


def batch(index: int, event: object) -> Change:
    def change(log: Log) -> None:
        log.batches["b"][index] = (log.batches["b"][index][0], event)

    return change


def completed_batch(**counts: int) -> Change:
    return batch(2, BatchCompleted(batch_id="b", counts=Counts(**counts)))


def schedule(**fields: object) -> Change:
    def change(log: Log) -> None:
        log.schedule = replace(log.schedule, **fields)

    return change


def command(epoch: int, version: int) -> Change:
    command = WorkersScaled(host="h", epoch=epoch, version=version, pools={})
    return lambda log: log.commands.append((3, command))


def moved(job_id: str, by: int) -> Change:
    def change(log: Log) -> None:
        log.jobs[job_id] = [(number + by, event) for number, event in log.jobs[job_id]]

    return change


def flow(index: int, **fields: object) -> Change:
    """Another event of the workflow in the place of one."""

    def change(log: Log) -> None:
        number, event = log.jobs["w"][index]
        log.jobs["w"][index] = number, replace(event, **fields)

    return change


def consumes(**fields: object) -> Change:
    """The workflow takes note of another end of its step."""
    done = Resolution(key="one", outcome="completed", value=RESULT)
    return flow(4, consumed=(replace(done, **fields),))


def again(index: int, **fields: object) -> Change:
    """One more event of the workflow, like one that it has."""

    def change(log: Log) -> None:
        event = replace(log.jobs["w"][index][1], **fields)
        log.jobs["w"].insert(5, (89, event))

    return change


SENT = Resolution(key="go", outcome="received", sequence=SIGNAL)
lost = JobRecovered(job_id="a", reason="its worker was killed")
BROKEN: dict[str, tuple[Rule, Change]] = {
    "a job still waits": (Rule.ENDS, jobs(a=at(1, dispatched()))),
    "a job completes twice": (
        Rule.ONCE, jobs(a=at(1, dispatched(), started(), completed(), completed()))
    ),
    "a job starts after its end": (
        Rule.ONCE, jobs(a=at(1, dispatched(), started(), completed(), started()))
    ),
    "a job is dead and completed": (
        Rule.ONCE, jobs(a=at(1, dispatched(), started(), dead(), completed()))
    ),
    "a job is dispatched twice": (
        Rule.LEGAL, jobs(a=at(1, dispatched(), dispatched(), started(), completed()))
    ),
    "a job completes without a start": (Rule.LEGAL, jobs(a=at(1, dispatched(), completed()))),
    "a job has no dispatch": (Rule.LEGAL, jobs(a=at(2, started(), completed()))),
    "a batch closes twice": (
        Rule.LEGAL, lambda log: log.batches["b"].insert(2, (28, log.batches["b"][1][1]))
    ),
    "a graph ends twice": (
        Rule.LEGAL, lambda log: log.graphs["g"].append((60, GraphCompleted(graph_id="g")))
    ),
    "a message of a job is no event": (
        Rule.READABLE,
        lambda log: log.jobs["a"].append(
            (99, UnknownEvent(type="JobStarted", raw=b"", unreadable="no JSON"))
        ),
    ),
    "a message of a batch is no event": (
        Rule.READABLE,
        lambda log: log.batches["b"].append(
            (99, UnknownEvent(type="BatchClosed", raw=b"", unreadable="no JSON"))
        ),
    ),
    "attempts count down": (
        Rule.TOKEN,
        jobs(a=at(1, dispatched(), started(attempt=2), lost, started(), completed())),
    ),
    "a token does not grow": (
        Rule.TOKEN,
        jobs(a=[(1, dispatched()), (3, started()), (2, lost), (4, started()), (5, completed())]),
    ),
    "an outdated worker completes the job": (
        Rule.OUTDATED,
        jobs(a=at(1, dispatched(), started(), lost, started(worker="w2"), completed())),
    ),
    "an outdated worker reports progress": (
        Rule.OUTDATED,
        jobs(a=at(1, dispatched(), started(), lost, started(worker="w2"),
                  JobProgressed(job_id="a", done=1, source="w1"), completed(worker="w2"))),
    ),
    "a batch counts a failure as a completion": (Rule.BATCH, completed_batch(completed=2)),
    "a batch counts a job too many": (Rule.BATCH, completed_batch(completed=2, failed=1)),
    "a batch ends with a job pending": (
        Rule.BATCH, completed_batch(completed=1, failed=1, pending=1)
    ),
    "a batch ends without one of its jobs": (
        Rule.BATCH, lambda log: log.jobs.update({"b_01234567_2": [*at(22, dispatched()), *at(90)]})
    ),
    "a batch has more failures than allowed": (
        Rule.BATCH, lambda log: log.batches.update(
            b=[(20, replace(log.batches["b"][0][1], allowed_failures=0)), *log.batches["b"][1:]]
        ),
    ),
    "a batch whose jobs are not in the log": (
        Rule.BATCH, lambda log: [log.jobs.pop(member) for member in MEMBERS]
    ),
    "a step is dispatched too early": (Rule.GRAPH, moved(STEPS[1], -3)),
    "a step that the graph does not have": (
        Rule.GRAPH, lambda log: log.jobs.update({"g_step_2": run("g_step_2", 46)})
    ),
    "a graph completes without a step": (Rule.GRAPH, lambda log: log.jobs.pop(STEPS[1])),
    "a workflow's step is dispatched too early": (Rule.WORKFLOW, moved(FLOW_STEP, -2)),
    "a workflow's step that it never scheduled": (
        Rule.WORKFLOW, lambda log: log.jobs.update({"w_step_7": run("w_step_7", 91)})
    ),
    "a workflow schedules a step twice": (Rule.WORKFLOW, again(2, number=2)),
    "a workflow takes note of a step twice": (Rule.WORKFLOW, again(
        4, number=2, inline=InlineResult("other", "f")
    )),
    "a workflow records an inline step twice": (Rule.WORKFLOW, again(4, number=2, consumed=())),
    "a workflow takes note of another result": (Rule.WORKFLOW, consumes(value=b"\x01")),
    "a workflow takes a completed step for a failed one": (
        Rule.WORKFLOW, consumes(outcome="failed", value=b"")
    ),
    "a workflow takes note of a step before its end": (Rule.WORKFLOW, moved(FLOW_STEP, 5)),
    "a workflow takes note of what it does not wait for": (Rule.WORKFLOW, consumes(key="other")),
    "a workflow consumes a signal that came later": (
        Rule.WORKFLOW, flow(4, consumed=(replace(SENT, sequence=95),))
    ),
    "a workflow consumes one signal twice": (
        Rule.WORKFLOW, lambda log: [
            flow(2, scheduled=(*log.jobs["w"][2][1].scheduled, replace(
                log.jobs["w"][2][1].scheduled[1], n=2, key="go#2")))(log),
            flow(4, consumed=(SENT, replace(SENT, key="go#2")))(log),
        ]
    ),
    "a batch's callback comes too early": (Rule.CALLBACK, moved("b_then", -5)),
    "a graph's callback comes too early": (Rule.CALLBACK, moved("g_finally", -5)),
    "a batch that completed calls catch": (
        Rule.CALLBACK, lambda log: log.jobs.update(b_catch=run("b_catch", 80))
    ),
    "a job for a time that is no tick": (
        Rule.TICK, lambda log: (log.jobs.update({TICK[:-1] + "1": run("x", 90)}),
                                schedule(dispatched=2)(log))
    ),
    "a tick without a job": (Rule.TICK, lambda log: log.jobs.pop(TICK)),
    "more jobs than ticks": (Rule.TICK, schedule(dispatched=0)),
    "fewer jobs than ticks": (Rule.TICK, schedule(dispatched=2)),
    "an epoch has two leaders": (
        Rule.FENCED, lambda log: log.leaders.append((72, LeaderChanged(leader="d3", epoch=9)))
    ),
    "a command of an older leader": (Rule.FENCED, command(3, 2)),
    "a command of the same version": (Rule.FENCED, command(9, 1)),
    "a command of no leader": (Rule.FENCED, command(10, 1)),
    "a command of an epoch between those of leaders": (
        Rule.FENCED, lambda log: [log.commands.pop(), command(8, 1)(log)]
    ),
    "a command of an epoch before the first leader": (
        Rule.FENCED, lambda log: log.commands.insert(0, (0, replace(log.commands[0][1], epoch=2)))
    ),
    "a command of an epoch that the lease has passed": (
        Rule.FENCED, lambda log: [setattr(log, "extent", replace(log.extent, reached=50)),
                                  command(10, 1)(log)]
    ),
    "a declared schedule with fewer jobs than ticks": (
        Rule.TICK, schedule(taken_over=6, dispatched=8)
    ),
    "a declared schedule with more jobs than ticks": (
        Rule.TICK, schedule(taken_over=7, dispatched=7)
    ),
}  # fmt: skip


def test_a_log_that_keeps_every_rule_is_not_blamed() -> None:
    report = Log().report(acknowledged=("a",))
    assert report.violations == []
    assert report.is_kept and report.unjudged == []
    assert (report.jobs, report.batches, report.graphs) == (10, 1, 1)
    assert (report.schedules, report.hosts, report.living) == (1, 1, 0)


@pytest.mark.parametrize(("rule", "change"), BROKEN.values(), ids=BROKEN)
def test_a_breach_is_reported(rule: Rule, change: Change) -> None:
    log = Log()
    change(log)
    report = log.report()
    assert rule in report.broken, report
    assert not report.is_kept


@pytest.mark.parametrize("is_compensated", [True, False])
def test_of_steps_that_were_given_up_only_those_to_be_undone_count(is_compensated: bool) -> None:
    log = Log()
    first = log.jobs["w"][2][1]
    steps = (replace(first.scheduled[0], is_compensated=is_compensated), first.scheduled[1])
    flow(2, scheduled=steps, cancelled=(0,))(log)
    assert (Rule.WORKFLOW in log.report().broken) is not is_compensated


def test_a_workflow_that_began_anew_may_use_its_keys_again() -> None:
    log = Log()
    history = log.jobs["w"]
    continued = WorkflowContinued(job_id="w", queue="q", generation=1, payload=b"")
    advanced, recorded = history[2][1], history[4][1]
    again = replace(advanced, scheduled=(replace(advanced.scheduled[0], n=2),))
    history[5:] = [
        (90, continued),
        (91, started("w")),
        (92, again),
        (97, started("w")),
        (98, replace(recorded, consumed=recorded.consumed[:1])),
        (99, completed("w")),
    ]
    other = run("w_step_2", 93)
    log.jobs["w_step_2"] = [*other[:2], (95, replace(other[2][1], result=RESULT))]
    assert log.report().violations == []
    history[8] = (98, recorded)
    assert Rule.WORKFLOW in log.report().broken  # the signal was consumed before


def test_each_rule_of_the_log_alone_has_a_breach_that_is_tried() -> None:
    elsewhere = {Rule.DECISION, Rule.CARRIED}  # tests of `penstock replay`, and below
    assert {rule for rule, _ in BROKEN.values()} == set(Rule) - elsewhere


def test_a_violation_names_rule_and_place() -> None:
    log = Log()
    completed_batch(completed=2)(log)
    (violation,) = log.report().violations
    assert str(violation) == (
        "batch b at sequence 29: it counts 2 completed; its jobs' events add up to 1 completed, "
        "1 failed (rule batch: a batch's counts equal a recount of its jobs' events)"
    )


def test_only_the_first_violations_are_kept() -> None:
    log = Log()
    log.jobs.update({f"j{n}": at(1000 + n, dispatched(f"j{n}")) for n in range(MOST_SHOWN + 7)})
    report = log.report()
    assert len(report.violations) == MOST_SHOWN
    assert report.broken == {"ends": MOST_SHOWN + 7}


# --- what may be ----------------------------------------------------------------------------------
def test_a_job_that_lives_is_no_breach() -> None:
    log = Log()
    log.jobs["a"] = at(1, dispatched(), started())
    report = log.report(must_end=False)
    assert report.is_kept and report.living == 1


def test_a_requeued_job_may_end_again() -> None:
    revived = JobRevived(job_id="a", queue="q", function="f", payload=b"")
    log = Log()
    log.jobs["a"] = at(1, dispatched(), started(), dead(), revived, started(), completed())
    assert log.report().is_kept


def test_a_job_requeued_after_its_batch_ended_is_not_counted_again() -> None:
    revived = JobRevived(job_id=MEMBERS[1], queue="q", function="f", payload=b"")
    log = Log()
    log.jobs[MEMBERS[1]] += at(90, revived, started(MEMBERS[1]), completed(MEMBERS[1]))
    assert log.report().is_kept


def test_what_came_while_the_orchestrator_counted_may_be_left_out() -> None:
    log = Log()
    log.batches["b"][2] = (35, log.batches["b"][2][1])
    log.jobs["b_then"] = run("b_then", 36)
    log.jobs["b_01234567_2"] = run("b_01234567_2", 33)
    log.jobs["b_01234567_2"][2] = (60, completed("b_01234567_2"))
    assert log.report().is_kept


def test_each_end_of_a_reopened_batch_is_recounted() -> None:
    revived = JobRevived(job_id=MEMBERS[1], queue="q", function="f", payload=b"")
    log = Log()
    log.jobs[MEMBERS[1]] += at(91, revived, started(MEMBERS[1]), completed(MEMBERS[1]))
    closed = log.batches["b"][1][1]
    log.batches["b"] += [
        (90, BatchReopened(batch_id="b", round=1)),
        (94, closed),
        (95, BatchCompleted(batch_id="b", counts=Counts(completed=2))),
    ]
    assert log.report().is_kept
    log.batches["b"][-1] = (95, BatchFailed(batch_id="b", counts=Counts(failed=2), reason=""))
    assert set(log.report().broken) == {Rule.BATCH}


def test_a_leader_may_be_late_to_announce_itself() -> None:
    log = Log()
    log.leaders += [(72, LeaderChanged(leader="d3", epoch=5)), (73, log.leaders[1][1])]
    assert log.report().is_kept


def test_a_declared_schedule_may_have_taken_over_what_an_earlier_one_counted() -> None:
    log = Log()
    del log.jobs[TICK]
    schedule(taken_over=7, dispatched=7, last_tick=NOW - timedelta(hours=2))(log)
    report = log.report()
    assert report.is_kept and report.partial_schedules == 0


def test_ticks_that_an_earlier_version_counted_are_named_and_not_judged() -> None:
    log = Log()
    schedule(taken_over=None, dispatched=7)(log)
    report = log.report()
    assert report.is_kept and report.partial_schedules == 1
    assert any("number of ticks of 1 schedules" in line for line in sentences(report, log.extent))


def test_a_tick_after_the_record_was_read_is_not_judged() -> None:
    log = Log()
    later = NOW + timedelta(days=1)
    log.jobs[f"s-abc-{int(later.timestamp())}"] = run("x", 90)
    assert log.report().is_kept


# --- a log whose first events left it -------------------------------------------------------------
def shortened(first: int = 10) -> Log:
    """The log from sequence ``first`` on."""
    log = Log()
    for histories in (log.jobs, log.batches, log.graphs):
        for key, history in list(histories.items()):
            histories[key] = [entry for entry in history if entry[0] >= first]
            if not histories[key]:
                del histories[key]
    log.extent = Extent(whole_from=first, whole_since=NOW, trimmed=True, reached=9)
    return log


@pytest.mark.parametrize("first", range(2, 64))
def test_what_is_left_of_a_good_log_is_not_blamed(first: int) -> None:
    assert shortened(first).report(acknowledged=("a",)).violations == []


def test_a_job_may_be_tagged_after_its_end_and_leave_the_log_before_its_tag() -> None:
    log = Log()
    log.jobs["a"].append((97, JobTagged(job_id="a", added=("seen",), state="completed")))
    assert log.report().violations == []
    log = shortened()
    log.jobs["a"] = [(97, JobTagged(job_id="a", added=("seen",), state="completed"))]
    assert log.report().violations == []
    log.jobs["a"] = [(97, JobTagged(job_id="a", added=("seen",), state="waiting"))]
    assert set(log.report().broken) == {Rule.CARRIED}


def test_commands_of_leaders_that_left_the_log_are_named_and_not_judged() -> None:
    log = shortened()
    log.leaders.pop(0)
    report = log.report()
    assert report.is_kept and report.partial_hosts == 1
    assert any("commands older than that" in line for line in sentences(report, log.extent))
    log.leaders.clear()
    assert log.report().is_kept


def test_commands_of_no_leader_are_found_in_what_is_left() -> None:
    log = shortened()
    log.leaders.pop()
    assert set(log.report().broken) == {Rule.FENCED}


def test_the_report_says_what_is_judged_in_part() -> None:
    report = shortened(29).report(acknowledged=("a",))
    assert report.partial_batches == 1
    assert shortened(50).report().partial_graphs == 1
    assert shortened(8).report().partial_jobs == 1
    assert report.unjudged and "1 acknowledged jobs are not in the log" in report.unjudged[0]


def test_a_living_job_that_was_not_carried_is_lost() -> None:
    log = shortened()
    log.jobs["a"] = at(12, started())
    assert set(log.report().broken) == {Rule.CARRIED}
    log.jobs["a"] = [*at(12, started()), (13, _carried("running")), (14, completed())]
    assert log.report().is_kept


def test_what_was_cut_out_need_not_be_carried() -> None:
    log = shortened()
    log.jobs["a"] = at(12, started())
    log.extent = replace(log.extent, carried=False)
    assert log.report().is_kept


def test_nothing_follows_an_end_in_what_is_left() -> None:
    log = shortened()
    log.jobs["a"] = at(12, started(), completed(), JobCancelled(job_id="a", reason=""))
    assert Rule.ONCE in log.report().broken


def test_an_acknowledged_job_that_a_whole_log_lacks_is_reported() -> None:
    assert Log().report(acknowledged=("never-there",)).broken == {"ends": 1}


def _carried(state: str) -> JobCarried:
    return JobCarried(
        job_id="a", state=state, queue="q", function="f", payload=b"", attempt=1, life_from=1,
        dispatched_at=NOW, available_at=NOW, changed_by=12, token=12,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job_id", "together"),
    [("a", ""), ("g_finally", "g"), ("w_step_1", "w"), ("w_step_1_step_2_step_3", "w")],
)
def test_jobs_are_judged_together_with_what_they_are_steps_of(job_id: str, together: str) -> None:
    assert workflows.graph_of(job_id) == together
