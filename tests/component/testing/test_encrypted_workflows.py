"""Encrypted and masked workflows through the real worker: nothing stored shows what they hide."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.testing.key_files import write

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobCarried, JobCompleted
from penstock.events.workflow import (
    SignalReceived,
    StepRecorded,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    InlineResult,
    MemoEntry,
    Resolution,
    StepOutcome,
    WorkflowMemo,
)
from penstock.jobs import (
    Client,
    JobType,
    WorkflowContext,
    derived_ids,
    job,
    lifecycle,
    registry,
    workflow,
)
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.workflows.coded import results
from penstock.jobs.workflows.coded.commands import RunJob, WaitSignal
from penstock.jobs.workflows.coded.running.nodes import Diverged, Leaf, Node
from penstock.jobs.workflows.coded.running.replaying import Replayed, replayed
from penstock.jobs.workflows.coded.secrets import Secrets
from penstock.jobs.workflows.workflow_view import workflow_secrets, workflow_view
from penstock.testing import Bench
from penstock.views.workflow_board import workflow_detail

CARD = "4111-1111-1111-1111"
SEEN: list[Any] = []
WHILE_A_STEP_RUNS: list[Callable[[], None]] = []


@job
def charge(card: str) -> str:
    SEEN.append(card)
    for forge_now in WHILE_A_STEP_RUNS:
        forge_now()
    return f"charged {card}"


@job(encrypted=True)
def archive(receipt: str) -> str:
    SEEN.append(receipt)
    for forge_now in WHILE_A_STEP_RUNS:
        forge_now()
    return f"archived {receipt}"


def check_card(card: str) -> dict[str, str]:
    return {"checked": card}


@workflow(encrypted=True, tries=1)
async def pay(ctx: WorkflowContext, card: str) -> dict[str, Any]:
    receipt = await ctx.run(charge(card=card))
    checked = await ctx.step("check", check_card, card)
    ctx.set_status(paying=card)
    mapped = await ctx.map(charge(card=f"{card} {number}") for number in range(2))
    both = await ctx.gather(archive(receipt=receipt), ctx.wait_signal("approved", str))
    await ctx.sleep(timedelta(hours=1))
    return {"receipt": receipt, "checked": checked, "both": both, "mapped": mapped.completed}


@workflow(masked=["card"])
async def show(ctx: WorkflowContext, card: str) -> str:
    ctx.set_status(card=card, stage="waits")
    return await ctx.run(archive(receipt=card))


@workflow()
async def rounds(ctx: WorkflowContext, card: str, left: int) -> str:
    """Not marked: encrypted as a step of one that is."""
    receipt = await ctx.run(charge(card=card))
    if left:
        await ctx.continue_as_new(rounds(card=f"{card} again", left=left - 1))
    return receipt


@workflow(encrypted=True, tries=1)
async def outer(ctx: WorkflowContext, card: str) -> list[str]:
    first = await ctx.run(charge(card=card), compensate=charge(card=f"undo {card}"))
    inner = await ctx.run(rounds(card=card, left=2))
    await ctx.compensate()
    return [first, inner]


@job(store_result=False)
def notify(card: str) -> None:
    SEEN.append(card)


@workflow(encrypted=True, tries=1)
async def careful(ctx: WorkflowContext, card: str) -> dict[str, str]:
    """Says of each step how it ended."""
    await ctx.run(notify(card=card))
    ends: dict[str, str] = {}
    try:
        ends["job"] = await ctx.run(charge(card=card))
    except Undecryptable as error:
        ends["job"] = str(error)
    try:
        ends["inline"] = (await ctx.step("check", check_card, card))["checked"]
    except Undecryptable as error:
        ends["inline"] = str(error)
    ends["signal"] = await ctx.wait_signal("approved", str)
    return ends


@workflow(tries=1)
async def plain_with_a_secret_step(ctx: WorkflowContext, card: str) -> str:
    try:
        return await ctx.run(archive(receipt=card))
    except Undecryptable as error:
        return str(error)


@workflow(encrypted=True, tries=1)
async def polls(ctx: WorkflowContext, card: str, left: int) -> str:
    try:
        checked = (await ctx.step("check", check_card, card))["checked"]
    except Undecryptable as error:
        return str(error)
    if left:
        await ctx.continue_as_new(polls(card=f"{card} again", left=left - 1))
    await ctx.wait_signal("approved", str)
    return str(checked)


KINDS: list[JobType[Any, Any]] = [
    charge, archive, pay, show, rounds, outer, notify, careful, plain_with_a_secret_step, polls,
]  # fmt: skip


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    SEEN.clear()
    WHILE_A_STEP_RUNS.clear()
    registry.REGISTRY.update({each.name: each for each in KINDS})
    yield
    for each in KINDS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, "first")
    return path


@pytest.fixture
def penstock_settings(keys: Path) -> Settings:
    return check({"encryption": {"key_file": str(keys)}})


def shows(bench: Bench, secret: str) -> list[str]:
    """Subjects of all stored messages in which a text stands, as it is or in base64."""
    spellings = [secret.encode()]
    for offset in range(3):  # of the text in the triples of base64
        encoded = base64.b64encode(b" " * offset + secret.encode())
        spellings.append(encoded[4 if offset else 0 : -4])
    subjects = bench.bus.subjects
    streams = (
        subjects.jobs_stream, subjects.events_stream, subjects.dead_stream, subjects.logs_stream,
        subjects.state_stream, subjects.checkpoints_stream, subjects.keys_stream,
        subjects.snapshots_stream, subjects.commands_stream,
    )  # fmt: skip
    stored = [one for name in streams for one in bench.bus.stored(name, ">")]
    assert stored
    return [one.subject for one in stored if any(each in one.body for each in spellings)]


async def test_nothing_that_is_stored_shows_what_an_encrypted_workflow_holds(
    penstock: Bench,
) -> None:
    client = penstock.client
    workflow_id = await client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    view = await client.workflows.get(workflow_id)
    assert (view.state, view.status) == (State.SUSPENDED, {"paying": CARD})
    assert not shows(penstock, CARD)
    await client.workflows.signal(workflow_id, "approved", f"by {CARD}")
    await penstock.run_pending()
    assert not shows(penstock, CARD)
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    assert not shows(penstock, CARD)
    assert (await client.job(workflow_id)).result == {
        "receipt": f"charged {CARD}",
        "checked": {"checked": CARD},
        "both": [f"archived charged {CARD}", f"by {CARD}"],
        "mapped": 2,
    }
    assert sorted(SEEN) == [CARD, f"{CARD} 0", f"{CARD} 1", f"charged {CARD}"]


async def test_its_status_is_shown_to_nobody_who_does_not_ask_for_it(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    shown = workflow_detail(view, view.job.dispatched_at)
    assert shown.workflow.status == {"status": "(encrypted with key first)"}
    assert CARD not in str(shown)


async def test_nor_do_workflows_in_it_that_begin_anew_nor_its_compensation(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(outer(card=CARD))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.result == [f"charged {CARD}", f"charged {CARD} again again"]
    assert not shows(penstock, CARD)
    assert [CARD, CARD, f"{CARD} again", f"{CARD} again again", f"undo {CARD}"] == SEEN


async def test_the_test_sees_a_workflow_that_is_not_encrypted(penstock: Bench) -> None:
    await penstock.client.workflows.get(await penstock.client.dispatch(show(card=CARD)))
    assert shows(penstock, CARD)


async def test_what_is_carried_of_it_is_encrypted_too(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    [carried] = lifecycle.carried(record, "test")
    assert isinstance(carried, JobCarried)
    assert CARD.encode() not in encode(carried)


async def test_a_client_without_the_key_sees_no_status_and_sends_no_signal(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    blind = Client.over(penstock.bus.client(), check({}))
    view = await blind.workflows.get(workflow_id)
    assert "need key 'first', known keys: none" in str(view.status)
    with pytest.raises(MissingKey, match="nothing can be encrypted"):
        await blind.workflows.signal(workflow_id, "approved", "yes")


async def test_a_signal_that_was_not_encrypted_is_passed_over(penstock: Bench) -> None:
    """Somebody who can write to the broker, and holds no key, approves an encrypted workflow."""
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    forged = SignalReceived(
        workflow_id=workflow_id, signal="approved", value=msgspec.msgpack.encode("forged")
    )
    await penstock.bus.append(Outgoing(penstock.bus.subjects.event(forged), encode(forged)))
    await penstock.client.workflows.signal(workflow_id, "approved", 5)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    [not_sealed, not_text] = [refusal.reason for refusal in view.refused_signals]
    assert "its sender may hold no key" in not_sealed
    assert not_text == "its value is of another type"
    await penstock.client.workflows.signal(workflow_id, "approved", "yes")
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result["both"][1] == "yes"


async def test_a_missing_key_blocks_it_and_uses_no_try(penstock: Bench, keys: Path) -> None:
    """Given a step whose worker sealed its result with a newer key than the workflow's worker has;
    then the workflow is blocked with the reason, and goes on when the key is there."""
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    write(keys, "second", "first")
    newer = Client.over(penstock.bus.client(), penstock.settings)
    await newer.workflows.signal(workflow_id, "approved", "yes")
    write(keys, "first")
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    assert "need key 'second', known keys: first" in view.blocked
    write(keys, "second", "first")
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    assert (await newer.job(workflow_id)).result["both"][1] == "yes"


async def test_a_result_of_another_job_does_not_open(penstock: Bench) -> None:
    """Somebody who can write to the broker gives a step the sealed result of another workflow's."""
    first = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    log = JobLog(penstock.bus, penstock.bus.subjects)
    stolen = await log.read(derived_ids.step_id(first, 0))
    second = await log.read(await penstock.client.dispatch(pay(card=CARD)))
    assert stolen is not None and second is not None
    secrets = Secrets(penstock.client.dispatcher.factory.ring, payload.decode(second.payload))
    leaf = Leaf(Node(None), "charge", RunJob("charge", charge(card="x")), "", None)
    leaf.n = 0
    end = Resolution(key="charge", outcome="completed", value=stolen.result)
    with pytest.raises(Undecryptable, match=f"expected the encrypted result of job {second.id}"):
        secrets.opened(leaf, end)


def plain(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def end_step_while_it_runs(bench: Bench, step_id: str, result: bytes) -> None:
    """Somebody who holds no key, and may write events, ends a step before its worker does."""
    loop = asyncio.get_running_loop()
    forged = JobCompleted(
        job_id=step_id, queue="default", attempt=1, result=result, run_seconds=0.0
    )
    message = Outgoing(bench.bus.subjects.event(forged), encode(forged))

    def forge_now() -> None:
        asyncio.run_coroutine_threadsafe(bench.bus.append(message), loop).result()

    WHILE_A_STEP_RUNS.append(forge_now)


@pytest.mark.parametrize("result", [plain("forged"), plain(None), b""])
async def test_a_step_whose_result_is_in_clear_fails(penstock: Bench, result: bytes) -> None:
    workflow_id = await penstock.client.dispatch(careful(card=CARD))
    end_step_while_it_runs(penstock, derived_ids.step_id(workflow_id, 1), result)
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "approved", "yes")
    await penstock.run_pending()
    ends = (await penstock.client.job(workflow_id)).result
    assert "is not encrypted, and its arguments are" in ends["job"]
    assert (ends["inline"], ends["signal"]) == (CARD, "yes")


async def test_an_encrypted_step_of_a_plain_workflow_fails_so_too(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(plain_with_a_secret_step(card=CARD))
    end_step_while_it_runs(penstock, derived_ids.step_id(workflow_id, 0), plain("forged"))
    await penstock.run_pending()
    result = (await penstock.client.job(workflow_id)).result
    assert "is not encrypted, and its arguments are" in result


def recorded_with(record: JobRecord, change: Callable[[MemoEntry], MemoEntry]) -> WorkflowMemo:
    assert record.workflow is not None
    entries = tuple(map(change, record.workflow.entries))
    return msgspec.structs.replace(record.workflow, entries=entries)


def run_again(bench: Bench, record: JobRecord, forged: WorkflowMemo) -> Replayed:
    return replayed(
        msgspec.structs.replace(record, workflow=forged),
        bench.client.dispatcher.factory.ring,
        datetime.now(UTC),
    )


async def test_an_inline_result_in_clear_fails_its_step_and_not_the_advance(
    penstock: Bench,
) -> None:
    """Given what was recorded with an inline result that is not encrypted, not readable, or of
    another place; then its await raises, as the code of the workflow shows by going on."""
    workflow_id = await penstock.client.dispatch(careful(card=CARD))
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    call = payload.decode(record.payload)
    ring = penstock.client.dispatcher.factory.ring
    elsewhere = Secrets(ring, call).sealed_result(InlineResult("elsewhere", "x", plain("forged")))
    for value in (plain({"checked": "forged"}), b"", b"\xc1", elsewhere.value):

        def change(entry: MemoEntry, value: bytes = value) -> MemoEntry:
            inline = entry.inline and InlineResult(entry.inline.key, entry.inline.digest, value)
            return msgspec.structs.replace(entry, inline=inline)

        secrets = Secrets(ring, call)
        forged = recorded_with(record, change)
        [inline] = [entry.inline for entry in forged.entries if entry.inline]
        with pytest.raises(Undecryptable):
            secrets.result(inline)
        assert run_again(penstock, record, forged).outcome == "fits"


async def test_a_value_in_clear_among_recorded_ends_is_refused(penstock: Bench) -> None:
    """Ends of jobs and signals that an advance has recorded already, or that were carried on."""
    workflow_id = await penstock.client.dispatch(careful(card=CARD))
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    ring, call = penstock.client.dispatcher.factory.ring, payload.decode(record.payload)
    secrets = Secrets(ring, call)
    leaf = Leaf(Node(None), "charge", RunJob("charge", charge(card="x")), "", None)
    leaf.n = 1
    wait = Leaf(Node(None), "approved", WaitSignal("approved", str, "approved"), "approved", None)
    forgeries: list[tuple[Leaf, StepOutcome]] = [(leaf, "completed"), (wait, "received")]
    for one, outcome in forgeries:
        end = Resolution(key=one.key, outcome=outcome, value=plain("forged"))
        with pytest.raises(Undecryptable, match="not encrypted"):
            secrets.opened(one, end)
    fired = Resolution(key="charge", outcome="fired")
    with pytest.raises(Diverged, match="ended as 'fired', as no such step does"):
        results.value(leaf.command, secrets.opened(leaf, fired))


async def test_what_a_step_of_another_function_returned_does_not_open(penstock: Bench) -> None:
    first = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    record = (await penstock.client.job(first)).record
    ring = penstock.client.dispatcher.factory.ring
    step = await penstock.client.job(derived_ids.step_id(first, 0))
    leaf = Leaf(Node(None), "archive", RunJob("archive", archive(receipt="x")), "", None)
    leaf.n = 0
    end = Resolution(key="archive", outcome="completed", value=step.record.result)
    with pytest.raises(Undecryptable, match=archive.name):
        Secrets(ring, payload.decode(record.payload)).opened(leaf, end)


async def test_an_inline_result_of_an_earlier_generation_does_not_open(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(polls(card=CARD, left=1))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    of_first, of_second = [
        event.inline for _, event in view.events if isinstance(event, StepRecorded)
    ]
    assert of_first.key == of_second.key
    secrets = workflow_secrets(view)
    assert secrets.of_generation(1).result(of_second)
    with pytest.raises(Undecryptable):
        secrets.of_generation(1).result(of_first)
    await penstock.client.workflows.signal(workflow_id, "approved", "yes")
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == f"{CARD} again"


async def test_a_status_in_clear_is_not_shown(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    forged = msgspec.structs.replace(
        view.record.workflow or WorkflowMemo(), status={"stage": "forged"}, sealed_status=b""
    )
    record = msgspec.structs.replace(view.record, workflow=forged)
    shown = workflow_view(msgspec.structs.replace(view, record=record))
    assert shown.status == {"status": "(not encrypted, and its workflow is)"}


async def test_an_encrypted_workflow_is_replayed_by_who_has_the_key(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(card=CARD))
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    ring, now = penstock.client.dispatcher.factory.ring, datetime.now(UTC)
    assert replayed(record, ring, now).outcome == "fits"
    assert replayed(record, KeyRing(), now).outcome == "sealed"


async def test_masked_fields_of_a_status_are_never_stored(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(show(card=CARD))
    await penstock.run_pending()
    events = (await penstock.client.job(workflow_id)).events
    statuses = [event.status for _, event in events if isinstance(event, WorkflowAdvanced)]
    assert statuses == [{"card": "***", "stage": "waits"}]


async def test_only_the_function_of_an_encrypted_step_is_compared(penstock: Bench) -> None:
    """A digest of its arguments, which other keys may read, would let them be guessed."""
    workflow_id = await penstock.client.dispatch(show(card=CARD))
    await penstock.run_pending()
    recorded = (await penstock.client.job(workflow_id)).record.workflow
    assert recorded is not None
    [step] = recorded.entries[0].scheduled
    assert step.digest == f"{archive.name}(encrypted)"


class TestEverything:
    @pytest.fixture
    def penstock_settings(self, keys: Path) -> Settings:
        return check({"encryption": {"key_file": str(keys), "every_job": True}})

    async def test_workflows_that_are_not_marked_are_encrypted_too(self, penstock: Bench) -> None:
        workflow_id = await penstock.client.dispatch(show(card=CARD))
        await penstock.run_pending()
        assert (await penstock.client.job(workflow_id)).result == f"archived {CARD}"
        assert not shows(penstock, CARD)
