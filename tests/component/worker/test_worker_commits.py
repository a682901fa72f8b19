"""Committing output: once a job, never by an attempt that was deposed, whatever gets lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.worker.given import QUEUE, WITHIN, Gate, Stage, once, settings
from tests.component.worker.unreliable import Unreliable

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobRecovered, JobStarted
from penstock.jobs import Context, job, registry
from penstock.jobs.errors import Cancelled, CommitRefused
from penstock.jobs.lifecycle import State
from penstock.jobs.sink import transaction, write_parquet

gate = Gate()
told: list[Any] = []


class Frame:
    """Writes as Spark does, as far as the sink is concerned."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.written: list[Path] = []
        self.write = self

    def mode(self, _: str) -> Frame:
        return self

    def options(self, **_: Any) -> Frame:
        return self

    def parquet(self, uri: str) -> None:
        folder = Path(uri.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-0").write_text(self.text)
        self.written.append(folder)


@job(queue=QUEUE)
def commit(context: Context, location: str) -> str:
    try:
        gate.pass_through(location)
        context.progress(1, 2)
        stands = context.commit("out", location)
    except Cancelled:
        told.append("cancelled")
        raise
    told.append((stands, context.committed("out"), context.committed("other")))
    return stands


@job(queue=QUEUE)
def write(context: Context, path: str, text: str, overwrite: bool = False) -> bool:
    gate.pass_through(text)
    try:
        done = write_parquet(context, Frame(text), path, overwrite=overwrite)  # type: ignore[arg-type]
    except BaseException as error:
        told.append(type(error).__name__)
        raise
    told.append(transaction(context, "t"))
    return done


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    gate.__init__()  # type: ignore[misc]
    told.clear()
    for kind in (commit, commit_much, write):
        registry.REGISTRY[kind.name] = kind
    yield
    for kind in (commit, commit_much, write):
        registry.REGISTRY.pop(kind.name, None)


@pytest.fixture
def stage() -> Stage:
    return Stage(made := settings(), Unreliable(made))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def read(path: Path) -> str:
    return (path / "part-0").read_text()


async def depose(stage: Stage, job_id: str) -> None:
    """Another worker takes the job over."""
    for event in (
        JobRecovered(job_id=job_id, reason="lost"),
        JobStarted(job_id=job_id, queue=QUEUE, attempt=1, host="h", worker="heir", message=1),
    ):
        await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))


async def heir_ends(stage: Stage, job_id: str) -> None:
    await stage.client.cancel(job_id)


async def test_a_commit_stands_in_the_jobs_history(stage: Stage) -> None:
    gate.open()
    async with stage.worker():
        job_id = await stage.client.dispatch(commit(location="/a"))
        view = await stage.ended(job_id)
    assert (view.state, view.record.commits) == (State.COMPLETED, {"out": "/a"})
    assert told == [("/a", "/a", None)]
    assert (await stage.story(job_id)).count("JobCommitted") == 1


async def test_a_commit_whose_answer_is_lost_is_made_once(stage: Stage) -> None:
    gate.open()
    bus = stage.bus
    assert isinstance(bus, Unreliable)
    bus.lost_answers = ["JobCommitted"]
    async with stage.worker(bus):
        job_id = await stage.client.dispatch(commit(location="/a"))
        assert (await stage.ended(job_id)).state is State.COMPLETED
    assert told == [("/a", "/a", None)]
    assert (await stage.story(job_id)).count("JobCommitted") == 1


async def test_a_deposed_attempt_commits_nothing(stage: Stage) -> None:
    async with stage.worker():
        job_id = await stage.client.dispatch(commit(location="/late"))
        await once(lambda: gate.came)
        await depose(stage, job_id)
        gate.open()
        await once(lambda: told)
        assert told == ["cancelled"]
        record = (await stage.client.job(job_id)).record
        assert (record.commits, record.worker, record.state) == ({}, "heir", State.RUNNING)
        await heir_ends(stage, job_id)


async def test_output_is_there_in_whole_once_the_job_has_ended(
    stage: Stage, tmp_path: Path
) -> None:
    gate.open()
    target = tmp_path / "day=1"
    async with stage.worker():
        view = await stage.ended(await stage.client.dispatch(write(path=str(target), text="new")))
    assert (view.state, view.result) == (State.COMPLETED, True)
    assert read(target) == "new"
    assert names(tmp_path) == [".day=1.lock", "day=1"]
    assert told[0]["txnVersion"] == "1"
    assert told[0]["txnAppId"].startswith(f"penstock-{view.record.id}-")


async def test_what_another_job_wrote_is_replaced_only_when_told_so(
    stage: Stage, tmp_path: Path
) -> None:
    gate.open()
    path = str(tmp_path / "t")
    async with stage.worker():
        for call, state, text in (
            (write(path=path, text="1"), State.COMPLETED, "1"),
            (write(path=path, text="2"), State.DEAD, "1"),
            (write(path=path, text="3", overwrite=True), State.COMPLETED, "3"),
            (write(path="s3a://bucket/t", text="4"), State.DEAD, "3"),
        ):
            view = await stage.ended(await stage.client.dispatch(call))
            assert (view.state, read(tmp_path / "t")) == (state, text)
    assert told[1] == "FileExistsError"
    assert told[3] == "ValueError"
    assert names(tmp_path) == [".t.lock", "t"]


async def test_a_deposed_attempt_changes_nothing_and_cleans_up(
    stage: Stage, tmp_path: Path
) -> None:
    target = tmp_path / "t"
    async with stage.worker():
        job_id = await stage.client.dispatch(write(path=str(target), text="late", overwrite=True))
        await once(lambda: gate.came)
        target.mkdir()
        (target / "part-0").write_text("the heir's")
        await depose(stage, job_id)
        gate.open()
        await once(lambda: told)
        assert told == ["Cancelled"]
        assert read(target) == "the heir's"
        assert names(tmp_path) == ["t"]
        await heir_ends(stage, job_id)


class Attempt:
    """An attempt of job ``j`` as the sink sees it; commits go to a history that all share."""

    job_id, work_id = "j", "j-0"

    def __init__(self, token: int, history: dict[str, str]) -> None:
        self.fencing_token, self._history = token, history

    def committed(self, name: str) -> str | None:
        return self._history.get(name)

    def commit(self, name: str, location: str) -> str:
        return self._history.setdefault(name, location)


class Dies(Attempt):
    """Its commit stands, and then its process is gone."""

    def commit(self, name: str, location: str) -> str:
        super().commit(name, location)
        raise KeyboardInterrupt


def test_what_was_committed_before_its_worker_died_is_put_in_place_by_the_heir(
    tmp_path: Path,
) -> None:
    history: dict[str, str] = {}
    target = tmp_path / "t"
    with pytest.raises(KeyboardInterrupt):
        write_parquet(Dies(1, history), Frame("first"), target)  # type: ignore[arg-type]
    assert not target.exists()
    heir = Frame("second")
    for _ in range(2):  # and once more: nothing is left to do
        assert write_parquet(Attempt(2, history), heir, target) is False  # type: ignore[arg-type]
        assert read(target) == "first"
    assert heir.written == []


def test_of_two_who_put_the_same_in_place_one_does(tmp_path: Path) -> None:
    history: dict[str, str] = {}
    target = tmp_path / "t"
    target.mkdir()
    (target / "part-0").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_parquet(Dies(1, history), Frame("new"), target, overwrite=True)  # type: ignore[arg-type]
    done: list[bool] = []

    def finish(token: int) -> None:
        attempt = Attempt(token, history)
        done.append(write_parquet(attempt, Frame("no"), target, overwrite=True))  # type: ignore[arg-type]

    threads = [threading.Thread(target=finish, args=(token,)) for token in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert done == [False] * 6
    assert read(target) == "new"


def test_an_attempt_that_wakes_late_does_not_bring_back_what_was_replaced(tmp_path: Path) -> None:
    """Its folder was put in place by the heir; since then another job has replaced it."""
    history: dict[str, str] = {}
    target = tmp_path / "t"
    assert write_parquet(Attempt(1, history), Frame("mine"), target)  # type: ignore[arg-type]
    another = Attempt(9, {})
    another.job_id = "k"
    assert write_parquet(another, Frame("newer"), target, overwrite=True)  # type: ignore[arg-type]
    assert not write_parquet(Attempt(1, history), Frame("mine"), target, overwrite=True)  # type: ignore[arg-type]
    assert read(target) == "newer"


def test_names_keep_outputs_apart(tmp_path: Path) -> None:
    history: dict[str, str] = {}
    attempt = Attempt(1, history)
    assert write_parquet(attempt, Frame("a"), tmp_path / "t", name="a")  # type: ignore[arg-type]
    assert write_parquet(
        attempt,  # type: ignore[arg-type]
        Frame("b"),  # type: ignore[arg-type]
        tmp_path / "t",
        name="b",
        overwrite=True,
    )
    assert read(tmp_path / "t") == "b"
    assert len(history) == 2
    assert transaction(attempt, version=3) == {"txnAppId": "penstock-j-0", "txnVersion": "3"}  # type: ignore[arg-type]


@job(queue=QUEUE)
def commit_much(context: Context, name: str, location: str, times: int) -> int:
    for number in range(times):
        try:
            context.commit(f"{name}{number}", location)
        except CommitRefused as error:
            told.append((number, str(error)))
            return number
    return times


@pytest.mark.parametrize(
    ("name", "location", "times", "taken", "why"),
    [
        ("n" * 600, "here", 2, 0, "the name of a commit has 601 bytes, at most 512"),
        ("part ", "x" * 5_000, 2, 0, "the location of a commit has 5000 bytes, at most 4096"),
        ("part ", "x" * 4_000, 60, 49, "the job has 49 commits; with 'part 49' they take"),
    ],
)
async def test_commits_beyond_what_a_job_may_keep_are_refused(
    stage: Stage, name: str, location: str, times: int, taken: int, why: str
) -> None:
    """Else no event could hold the job when its history leaves the log."""
    async with stage.worker():
        call = commit_much(name=name, location=location, times=times)
        view = await stage.client.wait(await stage.client.dispatch(call), WITHIN)
    [(number, text)] = told
    assert (number, len(view.record.commits)) == (taken, taken)
    assert why in text
