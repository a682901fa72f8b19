"""What the demo's verdict, figures and picture are made of."""

import io
from pathlib import Path

import msgspec
import pytest
from examples import jobs
from examples.demonstration import answers, load, offer, picture, report
from examples.demonstration.audit import Audit, judge
from examples.demonstration.figures import Figures, figures, quantile
from examples.demonstration.kills import Kill
from examples.demonstration.plotted import Plotted
from examples.demonstration.recording import Recording, height
from rich.console import Console

from penstock.config import load as load_settings
from penstock.config.topology import pools
from penstock.decider.replay.verdict import Verdict
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError, JobStarted
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.worker import WorkerReady, WorkerStarted, WorkerStopped
from penstock.jobs import Call
from penstock.jobs.job_type import encode_result
from penstock.jobs.payloads import payload

POOLS = pools(load_settings("examples/penstock.toml", environment={}))


def dispatched(job_id: str, call: Call) -> JobDispatched:
    body = payload.Payload(
        id=job_id,
        function=call.job.name,
        queue=call.job.queue,
        arguments=msgspec.Raw(call.arguments),
        dispatched_at=0.0,
    )
    return JobDispatched(
        job_id=job_id,
        queue=call.job.queue,
        function=call.job.name,
        payload=payload.encode(body),
    )


def started(job_id: str, worker: str = "w1") -> JobStarted:
    return JobStarted(job_id=job_id, queue="thumbnails", attempt=1, host="h", worker=worker)


def completed(job_id: str, result: object = None) -> JobCompleted:
    return JobCompleted(
        job_id=job_id,
        queue="thumbnails",
        attempt=1,
        run_seconds=0.1,
        result=encode_result(result),
    )


def story(*events):
    return list(enumerate(events, start=1))


CALL = jobs.send_invoice(1, 0.1)


def test_the_same_seed_gives_the_same_load_and_another_another():
    def drawn(seed: int) -> list[tuple[float, bytes]]:
        found = load.arrivals(load.streams("lake"), seed)
        return [(arrival.at, arrival.call.arguments) for arrival in found]

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1) == sorted(drawn(1), key=lambda arrival: arrival[0])
    assert drawn(1)[0][0] >= 0 and drawn(1)[-1][0] <= load.SECONDS


def test_load_is_offered_for_as_long_as_was_asked_and_differs_each_time():
    instants = [arrival.at for arrival in offer.arrivals(2.5 * load.SECONDS, "lake", seed=1)]
    assert instants == sorted(instants)
    first, second, third = (
        [at - begins for at in instants if begins <= at < begins + load.SECONDS]
        for begins in (0.0, load.SECONDS, 2 * load.SECONDS)
    )
    assert first != second
    assert load.SECONDS / 2 - 1 < third[-1] < load.SECONDS / 2


def test_a_job_with_exactly_one_end_is_as_it_should_be():
    found = judge({"a": story(dispatched("a", CALL), started("a"), completed("a"))}, logged=1)
    assert found.clean
    assert found.ends == {"JobCompleted": 1}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([started("a")], "has 0 ends"),
        ([started("a"), completed("a"), completed("a")], "has 2 ends"),
        ([completed("a")], "ended waiting"),
        (
            [JobDead(job_id="a", queue="q", error=JobError(kind="poison", message="lost"))],
            "ended dead: poison: lost",
        ),
    ],
)
def test_any_other_story_is_a_problem(events, said):
    found = judge({"a": story(dispatched("a", CALL), *events)}, logged=1)
    assert not found.clean
    assert said in found.problems[0]


def test_a_dispatch_that_only_the_log_knows_is_a_problem():
    found = judge({"a": story(dispatched("a", CALL), started("a"), completed("a"))}, logged=2)
    assert found.problems == ("1 jobs were dispatched, the log holds 2",)


def test_answers_of_spark_are_compared_with_plain_pythons():
    call = jobs.rate_movies("lake", 3)
    right = answers.movies_rated(3)
    good = story(dispatched("a", call), started("a"), completed("a", right))
    bad = story(dispatched("b", call), started("b"), completed("b", right + 1))
    found = judge({"a": good, "b": bad}, logged=2)
    assert (found.answers, found.wrong, found.clean) == (2, 1, False)


def recorded() -> Recording:
    """Two jobs, one of them late, and two workers, of which one is there for 10 of 20 seconds."""
    recording = Recording({"thumbnails": "thumbnails"})
    thumbnail = jobs.make_thumbnail(1, 0.1)
    for event, at in (
        (WorkerStarted(worker="w1", host="h", pool="thumbnails", pid=1, cause="planned"), 95),
        (WorkerReady(worker="w1", host="h", pool="thumbnails", pid=1), 96),
        (dispatched("a", thumbnail), 101),
        (started("a"), 101.5),
        (dispatched("b", thumbnail), 102),
        (decided(1, 2), 103),
        (WorkerStarted(worker="w2", host="h", pool="thumbnails", pid=2, cause="planned"), 105),
        (WorkerReady(worker="w2", host="h", pool="thumbnails", pid=2), 106),
        (completed("a"), 107),
        (started("b", "w2"), 109),
        (completed("b"), 110),
        (WorkerStopped(worker="w2", host="h", pool="thumbnails", pid=2, cause="killed"), 115),
    ):
        recording.take(event, at)
    return recording


def decided(current: int, target: int) -> ScalingDecisionMade:
    return ScalingDecisionMade(
        pool="thumbnails",
        current=current,
        target=target,
        reasons=(),
        strategy="hybrid",
        sla_seconds=5,
    )


def test_figures_tell_late_jobs_and_worker_seconds():
    found = figures(recorded(), POOLS["thumbnails"], begins=100, ends=120)
    assert (found.jobs, found.late, found.pickups) == (2, 1, (0.5, 7))
    assert not found.kept
    assert found.peak_workers == 2
    assert found.worker_seconds == 20 + 10
    assert found.fixed_worker_seconds == 2 * 20
    assert found.saved_share == pytest.approx(0.25)


def test_a_job_that_never_started_is_late():
    recording = recorded()
    recording.take(dispatched("c", jobs.make_thumbnail(2, 0.1)), 103)
    assert figures(recording, POOLS["thumbnails"], 100, 120).late == 2


def test_the_job_that_a_worker_runs_is_known():
    recording = recorded()
    assert recording.running_on("w2") is None
    recording.take(dispatched("c", jobs.make_thumbnail(2, 0.1)), 103)
    recording.take(started("c", "w1"), 104)
    assert recording.running_on("w1").id == "c"


def test_workers_over_time_are_steps():
    ready = recorded().ready("thumbnails")
    assert [height(ready, at) for at in (90, 100, 110, 119)] == [0, 1, 2, 1]


def test_the_quantile_is_a_value_that_was_measured():
    assert [quantile((1, 2, 3, 4), share) for share in (0.5, 0.95, 1.0)] == [2, 4, 4]
    assert quantile((), 0.5) is None


def made(kept: bool) -> tuple[Figures, ...]:
    begins = 100 if kept else 130  # nothing but its jobs count outside
    found = figures(recorded(), POOLS["thumbnails"], begins, begins + 20)
    return (found,)


EQUAL = Verdict(
    rounds=9, equal_rounds=9, decisions=27, equal_decisions=27, published=3, equal_published=3
)
AUDITED = Audit(dispatched=2, ended=2, ends={"JobCompleted": 2}, problems=())


@pytest.mark.parametrize(
    ("verdict", "passed"),
    [
        (EQUAL, True),
        (msgspec.structs.replace(EQUAL, equal_published=2), False),
        (msgspec.structs.replace(EQUAL, gaps=1), False),
        (Verdict(), False),
    ],
)
def test_the_report_fails_unless_every_decision_was_recomputed_equal(verdict, passed):
    made_report = report.Report(pools=(), audit=AUDITED, incidents=(), notes=(), replay=verdict)
    out = io.StringIO()
    report.show(made_report, Console(file=out, width=300))
    assert made_report.passed == passed
    assert f"{verdict.equal_published} of {verdict.published} on the event log" in out.getvalue()
    assert ("not every decision was recomputed equal" in out.getvalue()) == (not passed)


def test_the_report_fails_when_a_promise_was_broken():
    made_report = report.Report(
        pools=made(kept=False), audit=AUDITED, incidents=(), notes=(), replay=EQUAL
    )
    out = io.StringIO()
    report.show(made_report, Console(file=out, width=100))
    assert not made_report.passed
    assert "the promise of thumbnails was broken" in out.getvalue()
    assert "2 dispatched, 2 ended exactly once (2 completed)" in out.getvalue()


def test_the_picture_is_drawn(tmp_path: Path):
    recording = recorded()
    scene = Plotted(
        recording=recording,
        pools=(figures(recording, POOLS["thumbnails"], 100, 120),),
        kills=(Kill(115, 2, "thumbnails", "w2"),),
        begins=100,
        ends=120,
        title="A title",
        subtitle="a subtitle",
    )
    picture.save(scene, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text("utf-8").rstrip().endswith("</svg>")
