"""The audit log: two writers cannot fork it, and what is changed or left out is found."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.bus.protocol import Outgoing, Stored
from penstock.events.console import AuditRecorded
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.operations.audit_chain import MOST_AHEAD
from penstock.operations.audit_log import (
    BLOCK_SIZE,
    MOST_FAULTS,
    AuditLog,
    Verification,
    entry_hash,
)
from penstock.testing.memory.bus import MemoryBus

SUBJECTS = Subjects()


def log(bus: MemoryBus) -> AuditLog:
    return AuditLog(bus, SUBJECTS, "test")


async def entries(bus: MemoryBus) -> list[Stored]:
    return bus.stored(SUBJECTS.console_stream, SUBJECTS.console("audit"))


async def rewritten(bus: MemoryBus, change: dict[int, AuditRecorded | None]) -> Verification:
    """What is found in a log of which a stranger with the broker's files has changed entries."""
    other = MemoryBus()
    for number, message in enumerate(await entries(bus), 1):
        entry = change.get(number, msgspec.json.decode(message.body, type=AuditRecorded))
        if entry is not None:
            await other.append(Outgoing(message.subject, encode(entry)))
    return await log(other).verify()


async def test_two_writers_at_once_make_one_chain() -> None:
    bus = MemoryBus()
    one, two = log(bus), log(bus)
    await asyncio.gather(
        *(writer.record("ada", f"act.{n}", "done") for n in range(40) for writer in (one, two))
    )
    checked = await one.verify()
    assert (checked.is_whole, checked.entries, checked.first, checked.last) == (True, 80, 1, 80)


async def test_a_changed_a_missing_and_an_invented_entry_are_found() -> None:
    bus = MemoryBus()
    for number in range(5):
        await log(bus).record("ada", "job.cancel", "done", target=f"job:{number}")
    third = await log(bus).entry(3)
    assert third is not None
    changed = msgspec.structs.replace(third, actor="bob")
    assert (await rewritten(bus, {3: changed})).broken_at == 3
    missing = await rewritten(bus, {3: None})
    assert (missing.broken_at, missing.problem) == (3, "entries are missing: 3 to 3")
    forged = msgspec.structs.replace(third, previous="0" * 64)
    assert "hash of entry 2" in (await rewritten(bus, {3: forged})).problem
    assert (await rewritten(bus, {})).is_whole


async def test_the_head_that_was_noted_shows_that_the_end_was_removed() -> None:
    bus = MemoryBus()
    for _ in range(3):
        await log(bus).record("ada", "job.cancel", "done")
    head = (await log(bus).verify()).head
    assert (await rewritten(bus, {3: None})).head != head
    assert (await log(bus).verify(head)).is_whole
    await log(bus).record("ada", "job.cancel", "done")
    assert (await log(bus).verify(head)).is_whole
    checked = await log(bus).verify("0" * 64)
    assert (checked.broken_at, "missing at the end" in checked.problem) == (5, True)


async def test_entries_in_another_order_are_found() -> None:
    bus = MemoryBus()
    for number in range(4):
        await log(bus).record("ada", "job.cancel", "done", target=f"job:{number}")
    second, third = await log(bus).entry(2), await log(bus).entry(3)
    assert (await rewritten(bus, {2: third, 3: second})).broken_at == 3
    renumbered = {
        place: msgspec.structs.replace(entry, number=place)
        for place, entry in ((2, third), (3, second))
        if entry is not None
    }
    assert (await rewritten(bus, renumbered)).broken_at == 2


def _forged(number: int, previous: str, bus_entry: AuditRecorded) -> AuditRecorded:
    """An entry that a holder of a key makes, with the right hash of its content."""
    forged = msgspec.structs.replace(
        bus_entry, number=number, block=number // BLOCK_SIZE, previous=previous, actor="mal"
    )
    return msgspec.structs.replace(forged, hash=entry_hash(encode(forged)))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("has_restarted", [False, True])
async def test_a_slipped_in_entry_is_named_and_no_number_is_given_twice(
    number: int, has_restarted: bool
) -> None:
    bus = MemoryBus()
    audit = log(bus)
    third = [await audit.record("ada", "job.cancel", "done") for _ in range(3)][-1]
    slipped = _forged(number, "0" * 64, third)
    sequence = await bus.append(Outgoing(SUBJECTS.console_event(slipped), encode(slipped)))
    audit = log(bus) if has_restarted else audit
    later = [(await audit.record("ada", "job.retry", "done")).number for _ in range(3)]
    assert later == [4, 5, 6]
    checked = await log(bus).verify()
    assert (checked.broken_at, checked.broken_sequence) == (number, sequence)
    assert checked.problem == (
        f"the message claims to be entry {number} but is not part of the chain; "
        "it was added after entry 3"
    )
    assert (checked.fault_count, checked.entries, checked.last) == (1, 6, 6)


async def test_an_entry_that_takes_the_place_of_another_is_the_one_that_is_named() -> None:
    """Slipped in before the genuine third one by a stranger who has the broker's files."""
    bus = MemoryBus()
    second, third = [await log(bus).record("ada", "job.cancel", "done") for _ in range(4)][1:3]
    slipped = _forged(3, second.hash, third)
    messages = [message.body for message in await entries(bus)]
    other = MemoryBus()
    for body in (*messages[:2], encode(slipped), *messages[2:]):
        entry = msgspec.json.decode(body, type=AuditRecorded)
        await other.append(Outgoing(SUBJECTS.console_event(entry), body))
    checked = await log(other).verify()
    assert (checked.broken_at, checked.broken_sequence) == (3, 3)
    assert "not part of the chain; it was added after entry 2" in checked.problem


async def test_a_forgery_hides_none_of_the_faults_after_it() -> None:
    """A check goes on along the genuine chain, past a forgery and past a gap."""
    bus = MemoryBus()
    audit = log(bus)
    first = await audit.record("ada", "job.cancel", "done")
    for number in (2, 1_000_000, 2):
        forged = _forged(number, "0" * 64, first)
        await bus.append(Outgoing(SUBJECTS.console_event(forged), encode(forged)))
        await audit.record("ada", "job.retry", "done")
        await audit.record("ada", "job.retry", "done")
    await audit.record("ada", "job.retry", "done")
    messages = [message.body for message in await entries(bus)]
    del messages[-3]
    other = MemoryBus()
    for body in messages:
        entry = msgspec.json.decode(body, type=AuditRecorded)
        await other.append(Outgoing(SUBJECTS.console_event(entry), body))
    checked = await log(other).verify()
    assert [fault.number for fault in checked.faults] == [2, 1_000_000, 2, 6]
    assert checked.faults[-1].problem == "entries are missing: 6 to 6"
    assert (checked.entries, checked.last, checked.fault_count) == (7, 8, 4)
    faults = [fault async for _, fault in log(other).judged()]
    assert tuple(fault for fault in faults if fault) == checked.faults
    assert len(faults) == len(messages)


async def test_faults_are_listed_to_a_bound_and_counted_all() -> None:
    bus = MemoryBus()
    audit = log(bus)
    first = await audit.record("ada", "job.cancel", "done")
    forged = _forged(7, "0" * 64, first)
    for _ in range(MOST_AHEAD - 1):
        await bus.append(Outgoing(SUBJECTS.console_event(forged), encode(forged)))
    newest = await audit.record("ada", "job.retry", "done")
    checked = await log(bus).verify()
    assert (len(checked.faults), checked.fault_count) == (MOST_FAULTS, MOST_AHEAD - 1)
    assert (checked.entries, checked.head) == (2, newest.hash)


async def test_the_oldest_entries_may_have_aged_out() -> None:
    bus = MemoryBus()
    for _ in range(4):
        await log(bus).record("ada", "job.cancel", "done")
    checked = await rewritten(bus, {1: None, 2: None})
    assert (checked.is_whole, checked.first, checked.last) == (True, 3, 4)


async def test_what_is_no_entry_is_stated_and_does_not_stop_the_log() -> None:
    bus = MemoryBus()
    await log(bus).record("ada", "job.cancel", "done")
    await bus.append(Outgoing(SUBJECTS.console("audit", "0", "AuditRecorded"), b"nonsense"))
    entry = await log(bus).record("ada", "job.retry", "done")
    assert entry.number == 2
    assert "is no entry" in (await log(bus).verify()).problem


async def test_entries_are_found_newest_first_across_blocks() -> None:
    bus = MemoryBus()
    audit = log(bus)
    for number in range(1, BLOCK_SIZE + 4):
        await audit.record("ada" if number % 100 else "bob", "job.cancel", "done")
    page, further = await audit.newest(5)
    assert [entry.number for entry in page] == [503, 502, 501, 500, 499]
    page, further = await audit.newest(2, further)
    assert [entry.number for entry in page] == [498, 497]
    page, further = await audit.newest(9, 0, lambda entry: entry.actor == "bob")
    assert ([entry.number for entry in page], further) == ([500, 400, 300, 200, 100], 0)
    assert (await audit.newest(5, 1)) == ([], 0)


async def test_an_entry_is_of_bounded_size() -> None:
    entry = await log(MemoryBus()).record(
        "a" * 5_000, "x", "done", after={f"k{n}": "v" * 9_000 for n in range(500)}
    )
    assert len(encode(entry)) < 60_000


async def test_an_empty_log_is_whole() -> None:
    checked = await log(MemoryBus()).verify()
    assert (checked.is_whole, checked.entries) == (True, 0)
    assert await log(MemoryBus()).newest(10) == ([], 0)
