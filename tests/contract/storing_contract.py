"""The bus contract, first part: storing with compare-and-set, reading back, following."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract.setting import Examined, bodies, numbered, take
from tests.waiting import eventually

from penstock.bus import records
from penstock.bus.protocol import (
    Bus,
    BusError,
    BusRefused,
    Expect,
    Outgoing,
    PayloadTooLarge,
    StreamFull,
    WrongSequence,
)


class FollowingContract:
    async def test_follow_all_is_past_then_future(self, bus: Bus, examined: Examined) -> None:
        await bus.append_many(numbered(examined.event("a"), 3))
        async with aclosing(_follow(bus, examined, start="all")) as stream:
            assert bodies(await take(stream, 3)) == [b"0", b"1", b"2"]
            await bus.append_many(numbered(examined.event("b"), 300))
            assert bodies(await take(stream, 300)) == [b"%d" % number for number in range(300)]

    async def test_follow_from_a_sequence(self, bus: Bus, examined: Examined) -> None:
        answers = await bus.append_many(numbered(examined.event("a"), 5))
        async with aclosing(_follow(bus, examined, start=answers[3])) as stream:
            assert bodies(await take(stream, 2)) == [b"3", b"4"]

    async def test_follow_new_leaves_out_the_past(self, bus: Bus, examined: Examined) -> None:
        await bus.append(Outgoing(examined.event("a"), b"past"))
        async with aclosing(_follow(bus, examined, start="new")) as stream:
            heard = asyncio.create_task(take(stream, 3))

            async def heard_enough() -> (
                bool
            ):  # when following has begun cannot be seen from outside
                await bus.append(Outgoing(examined.event("a"), b"new"))
                return heard.done()

            await eventually(heard_enough)
            found = await heard
        assert set(bodies(found)) == {b"new"}
        first = found[0].sequence
        assert [stored.sequence for stored in found] == [first, first + 1, first + 2]

    async def test_follow_hears_its_subjects_only_and_followers_do_not_compete(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream = examined.subjects.events_stream
        wanted = [examined.event("a"), examined.subjects.job("b")]
        await bus.append_many([Outgoing(examined.event(job), job.encode()) for job in "acbab"])
        for _ in range(2):
            follow: Any = bus.follow(stream, wanted, "all")
            async with aclosing(follow) as messages:
                assert bodies(await take(messages, 4)) == [b"a", b"b", b"a", b"b"]


class StoringContract(FollowingContract):
    async def test_nothing_is_removed_from_the_consoles_stream(
        self, bus: Bus, examined: Examined
    ) -> None:
        subjects = examined.subjects
        subject = subjects.console("audit", "0", "AuditRecorded")
        sequence = await bus.append(Outgoing(subject, b"{}"))
        with pytest.raises(BusRefused):
            await bus.remove(subjects.console_stream, subject)
        with suppress(BusRefused):
            await bus.remove_message(subjects.console_stream, sequence)
        last = await bus.last(subjects.console_stream, subject)
        assert last is not None
        assert last.sequence == sequence

    async def test_the_last_messages_of_many_subjects_are_read_together(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, jobs = examined.subjects.events_stream, [f"job-{n}" for n in range(1_200)]
        subjects = [examined.event(job) for job in jobs]
        stored = [Outgoing(subject, b"old") for subject in subjects]
        stored += [Outgoing(subject, subject.encode()) for subject in subjects]
        sequences = await bus.append_many([*stored, Outgoing(examined.event("other"), b"x")])

        found = await bus.last_of(stream, [examined.event("none"), *subjects])

        assert {subject: message.body for subject, message in found.items()} == {
            subject: subject.encode() for subject in subjects
        }
        last = [found[subject].sequence for subject in subjects]
        assert last == sequences[len(jobs) : 2 * len(jobs)]
        assert await bus.last_of(stream, [examined.event("none")]) == {}

    async def test_last_messages_of_some_size_are_read_together(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream = examined.subjects.events_stream
        subjects = [examined.event(job) for job in "abcdefghijkl"]
        for subject in subjects:
            await bus.append(Outgoing(subject, subject[-1:].encode() * 900_000))

        found = await bus.last_of(stream, subjects)

        assert {subject: message.body[:1] for subject, message in found.items()} == {
            subject: subject[-1:].encode() for subject in subjects
        }

    async def test_a_message_is_read_back_as_it_was_stored(
        self, bus: Bus, examined: Examined
    ) -> None:
        before = datetime.now(UTC) - timedelta(seconds=5)
        subject, headers = examined.event("a"), {"traceparent": "00-ab-cd-01", "Penstock-Job": "ü"}
        sequence = await bus.append(Outgoing(subject, b"\x00\r\n\xff", headers))

        stored = await bus.last(examined.subjects.events_stream, subject)

        assert stored is not None
        assert (stored.subject, stored.sequence) == (subject, sequence)
        assert stored.body == b"\x00\r\n\xff"
        assert dict(stored.headers) == headers
        assert before < stored.at < datetime.now(UTC) + timedelta(seconds=5)

    async def test_the_headers_are_those_of_the_sender(self, bus: Bus, examined: Examined) -> None:
        stream, every, own = examined.subjects.events_stream, examined.subjects.job("a"), {"A": "b"}
        for number in range(2):
            expect = Expect(await _last_sequence(bus, stream, every), every)
            await bus.append(Outgoing(examined.event("a"), b"%d" % number, own, expect))
        async with aclosing(_follow(bus, examined, "all")) as messages:
            followed = await take(messages, 2)
        last, following = await bus.last(stream, every), await bus.next(stream, every, 1)
        for found in (*followed, *await bus.history(stream, every), last, following):
            assert found and dict(found.headers) == own

    async def test_what_was_compared_is_read_back_with_the_message(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, every = examined.subjects.events_stream, examined.subjects.job("a")
        first = await bus.append(Outgoing(examined.event("a"), b"0", {}, Expect(0, every)))
        await bus.append(Outgoing(examined.event("a", "JobProgressed"), b"1"))
        third = await bus.append(Outgoing(examined.event("a"), b"2", {}, Expect(first + 1, every)))
        expected = [Expect(0, every), None, Expect(first + 1, every)]
        async with aclosing(_follow(bus, examined, "all")) as messages:
            assert [one.compared for one in await take(messages, 3)] == expected
        assert [one.compared for one in await bus.history(stream, every)] == expected
        last, following = await bus.last(stream, every), await bus.next(stream, every, 1)
        assert last and following
        assert [following.compared, last.compared] == [expected[0], expected[2]]
        by_subject = await bus.last_of(stream, [examined.event("a")])
        assert [one.compared for one in by_subject.values()] == [expected[2]]
        earlier = await bus.last_of(stream, [examined.event("a")], before=third)
        assert [one.sequence for one in earlier.values()] == [first]

    async def test_of_an_atomic_batch_only_what_the_first_compared_is_evidence(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, every = examined.subjects.events_stream, examined.subjects.job("a")
        first = await bus.append(Outgoing(examined.event("a"), b"0", {}, Expect(0, every)))
        await bus.append_atomic(
            [
                Outgoing(examined.event("a", "JobFailed"), b"1", {}, Expect(first, every)),
                Outgoing(examined.event("a", "JobRetrying"), b"2", {}, Expect(first, every)),
            ]
        )
        expected = [Expect(0, every), Expect(first, every), None]
        async with aclosing(_follow(bus, examined, "all")) as messages:
            assert [one.compared for one in await take(messages, 3)] == expected
        assert [one.compared for one in await bus.history(stream, every)] == expected
        retrying = examined.event("a", "JobRetrying")
        [by_subject] = (await bus.last_of(stream, [retrying])).values()
        assert (by_subject.body, by_subject.compared) == (b"2", None)

    async def test_what_a_sender_writes_in_the_brokers_name_is_not_believed(
        self, bus: Bus, examined: Examined
    ) -> None:
        subjects, stream = examined.subjects, examined.subjects.events_stream
        forged = {
            "Nats-Subject": subjects.events("job", "victim", "JobCancelled"),
            "Nats-Sequence": "999999",
            "Nats-Time-Stamp": "1999-01-01T00:00:00Z",
            "Nats-Stream": subjects.jobs_stream,
        }
        subject, since = examined.event("a"), datetime.now(UTC) - timedelta(seconds=60)
        sequence = await bus.append(Outgoing(subject, b"x", forged))
        async with aclosing(_follow(bus, examined, "all")) as messages:
            followed = await take(messages, 1)
        every = subjects.events()
        last, following = await bus.last(stream, every), await bus.next(stream, every, 1)
        for stored in (*followed, *await bus.history(stream, every), last, following):
            assert stored is not None
            assert (stored.subject, stored.sequence) == (subject, sequence)
            assert stored.at > since

    async def test_reading_by_position(self, bus: Bus, examined: Examined) -> None:
        stream = examined.subjects.events_stream
        first = await bus.append(Outgoing(examined.event("a", "JobDispatched"), b"1"))
        other = await bus.append(Outgoing(examined.event("b"), b"2"))
        third = await bus.append(Outgoing(examined.event("a"), b"3"))
        assert first < other < third
        every = examined.subjects.job("a")

        assert bodies(await bus.history(stream, every)) == [b"1", b"3"]
        assert bodies(await bus.history(stream, every, limit=1)) == [b"1"]
        last = await bus.last(stream, every)
        assert last and last.body == b"3"
        after = await bus.next(stream, every, first + 1)
        assert after and after.sequence == third
        at = await bus.next(stream, every, first)
        assert at and at.sequence == first

    async def test_a_history_tells_how_many_lie_behind_each(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, every = examined.subjects.events_stream, examined.subjects.job("a")
        for number in range(4):
            await bus.append(Outgoing(examined.event("a"), b"%d" % number))
            await bus.append(Outgoing(examined.event("b"), b"of another subject"))
        assert [stored.behind for stored in await bus.history(stream, every)] == [3, 2, 1, 0]
        second = (await bus.history(stream, every, limit=2))[1]
        found = await bus.history(stream, every, limit=1, start=second.sequence)
        assert [(stored.body, stored.behind) for stored in found] == [(b"1", 2)]

    async def test_nothing_there_is_none(self, bus: Bus, examined: Examined) -> None:
        stream, nobody = examined.subjects.events_stream, examined.subjects.job("nobody")
        assert await bus.last(stream, nobody) is None
        assert await bus.next(stream, nobody, 1) is None
        assert await bus.history(stream, nobody) == []

    async def test_the_log_tells_how_much_it_holds_and_where_it_begins(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream = examined.subjects.events_stream
        before = await bus.extent(stream)
        first, last = [await bus.append(Outgoing(examined.event("a"), b"x" * 500)) for _ in "ab"]
        held = await bus.extent(stream)
        assert (held.last, held.messages) == (last, before.messages + 2)
        assert 1000 < held.bytes - before.bytes < 1400
        assert held.max_bytes >= 16_000_000

        await bus.remove(stream, ">", first + 1)

        assert (await bus.extent(stream)).first == last
        assert (await bus.extent(stream)).bytes < held.bytes
        await bus.remove(stream, ">", last + 1)
        assert (await bus.extent(stream)).first == last + 1
        assert await bus.append(Outgoing(examined.event("a"), b"")) == last + 1

    async def test_a_full_log_refuses_and_discards_nothing(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, body = examined.subjects.events_stream, b"x" * 900_000
        first = await bus.append(Outgoing(examined.event("first"), b"1"))
        room = (await bus.extent(stream)).max_bytes // len(body) + 1
        answers = await bus.append_many([Outgoing(examined.event("a"), body)] * room)
        assert isinstance(answers[-1], StreamFull)
        stored = await bus.last(stream, examined.event("first"))
        assert stored and stored.sequence == first
        with pytest.raises(StreamFull):
            await bus.append_atomic([Outgoing(examined.event("b"), body)] * 2)

        await bus.adapt_streams(2_000_000)

        widened = await bus.extent(stream)
        assert widened.max_bytes == widened.configured_bytes + 2_000_000
        await bus.append(Outgoing(examined.event("a"), body))
        await bus.remove(stream, ">", (await bus.extent(stream)).last + 1)
        await bus.adapt_streams()
        assert (await bus.extent(stream)).max_bytes == widened.configured_bytes

    async def test_remove_takes_one_subject_only(self, bus: Bus, examined: Examined) -> None:
        stream = examined.subjects.events_stream
        await bus.append_many([Outgoing(examined.event(job), job.encode()) for job in "aab"])

        await bus.remove(stream, examined.event("a"))

        assert bodies(await bus.history(stream, examined.subjects.events())) == [b"b"]

    async def test_remove_leaves_what_came_later(self, bus: Bus, examined: Examined) -> None:
        stream, subject = examined.subjects.events_stream, examined.event("a")
        _, second, _ = await bus.append_many(numbered(subject, 3))

        await bus.remove(stream, subject, before=second)

        assert bodies(await bus.history(stream, subject)) == [b"1", b"2"]

    async def test_of_many_subjects_each_is_removed_up_to_its_own_bound(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream, names = examined.subjects.events_stream, [examined.event(one) for one in "abc"]
        first = [await bus.append(Outgoing(name, b"1")) for name in names]
        second = [await bus.append(Outgoing(name, b"2")) for name in names]
        await bus.remove_each(stream, {names[0]: first[0] + 1, names[1]: second[1] + 1})
        left = await bus.history(stream, examined.subjects.events())
        assert [one.sequence for one in left] == [first[2], second[0], second[2]]
        await bus.remove_each(stream, {})
        with pytest.raises(BusError):
            await bus.remove_each("no-such-stream", {names[2]: 1})

    async def test_one_message_is_removed_by_its_sequence(
        self, bus: Bus, examined: Examined
    ) -> None:
        stream = examined.subjects.jobs_stream
        messages = numbered(examined.subjects.queue("q"), 3)
        _, second, third = await bus.append_many(messages)

        await bus.remove_message(stream, second)
        await bus.remove_message(stream, second)  # gone already: no error

        stored = await bus.history(stream, examined.subjects.queue("q"))
        assert bodies(stored) == [b"0", b"2"]
        delivered = await bus.puller("q").fetch(10, 1)
        assert [delivery.sequence for delivery in delivered][-1] == third
        assert len(delivered) == 2

    async def test_a_removed_record_leaves_a_mark(self, bus: Bus, examined: Examined) -> None:
        stream, subject = examined.subjects.state_stream, examined.subjects.state("schedule", "a")
        await bus.append_many(numbered(subject, 2))
        outdated = await bus.last(stream, subject)
        await bus.append(Outgoing(subject, b"newer"))
        newer = await bus.last(stream, subject)
        assert outdated is not None
        assert newer is not None

        assert not await records.remove(bus, outdated)
        assert bodies(await records.read_all(bus, stream, subject)) == [b"newer"]
        assert await records.remove(bus, newer)
        assert await records.read_all(bus, stream, subject) == []

        mark = await bus.last(stream, subject)
        assert mark is not None
        assert records.is_removed(mark)
        await bus.append(Outgoing(subject, b"again", expect=Expect(mark.sequence)))
        assert bodies(await records.read_all(bus, stream, subject)) == [b"again"]

    async def test_more_records_than_a_page_are_read(self, bus: Bus, examined: Examined) -> None:
        stream, state = examined.subjects.state_stream, examined.subjects.state
        names = [f"n{number}" for number in range(1_001)]
        await bus.append_many([Outgoing(state("schedule", name), b"") for name in names])
        await bus.append(Outgoing(state("schedule", "last"), b"record"))

        stored = await records.read_all(bus, stream, state("schedule", "*"))

        assert bodies(stored) == [b"record"]

    async def test_history_begins_where_it_is_told_to(self, bus: Bus, examined: Examined) -> None:
        stream, subject = examined.subjects.events_stream, examined.event("a")
        _, second, third = await bus.append_many(numbered(subject, 3))

        assert bodies(await bus.history(stream, subject, 1, second)) == [b"1"]
        assert bodies(await bus.history(stream, subject, start=third)) == [b"2"]
        assert await bus.history(stream, subject, start=third + 1) == []

    async def test_state_and_commands_keep_the_last_only(
        self, bus: Bus, examined: Examined
    ) -> None:
        subjects = examined.subjects
        for stream, subject in (
            (subjects.commands_stream, subjects.command("host-a")),
            (subjects.state_stream, subjects.state("lease", "decider")),
        ):
            await bus.append_many(numbered(subject, 3))
            assert bodies(await bus.history(stream, subject)) == [b"2"]

    async def test_a_subject_or_stream_that_does_not_exist_is_refused(
        self, bus: Bus, examined: Examined
    ) -> None:
        with pytest.raises(BusRefused, match="nowhere"):
            await bus.append(Outgoing(f"{examined.subjects.prefix}.nowhere", b""))
        with pytest.raises(BusRefused):
            await bus.last("NO_SUCH_STREAM", "x")

    # --- compare and set ------------------------------------------------------------------------
    async def test_compare_and_set_wins_and_loses(self, bus: Bus, examined: Examined) -> None:
        subject = examined.event("a")
        first = await bus.append(Outgoing(subject, b"1", expect=Expect(0)))
        second = await bus.append(Outgoing(subject, b"2", expect=Expect(first)))

        with pytest.raises(WrongSequence) as lost:
            await bus.append(Outgoing(subject, b"late", expect=Expect(first)))

        assert (lost.value.subject, lost.value.expected) == (subject, first)
        assert lost.value.actual in (second, 0)
        found = await bus.history(examined.subjects.events_stream, subject)
        assert bodies(found) == [b"1", b"2"]

    async def test_expectation_over_all_events_of_a_job(self, bus: Bus, examined: Examined) -> None:
        every = examined.subjects.job("a")
        first = await bus.append(
            Outgoing(examined.event("a", "JobDispatched"), b"", {}, Expect(0, every))
        )
        await bus.append(Outgoing(examined.event("b"), b""))  # another job is not in the way
        await bus.append(Outgoing(examined.event("a", "JobStarted"), b"", {}, Expect(first, every)))

        with pytest.raises(WrongSequence):
            await bus.append(
                Outgoing(examined.event("a", "JobCancelled"), b"", {}, Expect(first, every))
            )
        with pytest.raises(WrongSequence):
            await bus.append(
                Outgoing(examined.event("a", "JobDispatched"), b"", {}, Expect(0, every))
            )

    async def test_of_many_who_expect_nothing_one_creates(
        self, bus: Bus, examined: Examined
    ) -> None:
        others = [bus, await examined.client(), await examined.client()]
        every = examined.subjects.job("a")
        create = Outgoing(examined.event("a"), b"", expect=Expect(0, every))

        answers = await asyncio.gather(
            *(o.append(create) for o in others * 5), return_exceptions=True
        )

        assert sorted(type(answer).__name__ for answer in answers) == [
            *["WrongSequence"] * 14,
            "int",
        ]

    async def test_expectation_holds_again_after_removal(
        self, bus: Bus, examined: Examined
    ) -> None:
        subject = examined.subjects.state("lease", "x")
        await bus.append(Outgoing(subject, b"1", expect=Expect(0)))
        await bus.remove(examined.subjects.state_stream, subject)
        await bus.append(Outgoing(subject, b"2", expect=Expect(0)))

    async def test_many_get_one_answer_each_in_order(self, bus: Bus, examined: Examined) -> None:
        answers = await bus.append_many(
            [
                Outgoing(examined.event("a"), b"1", expect=Expect(0)),
                Outgoing(examined.event("a"), b"2", expect=Expect(0)),
                Outgoing(f"{examined.subjects.prefix}.nowhere", b"3"),
                Outgoing(examined.event("b"), b"x" * 2_000_000),
                Outgoing(examined.event("b"), b"5"),
            ]
        )
        kinds = [type(answer) for answer in answers]
        assert kinds == [int, WrongSequence, BusRefused, PayloadTooLarge, int]
        assert await bus.append_many([]) == []

    async def test_a_batch_is_stored_whole_or_not_at_all(
        self, bus: Bus, examined: Examined
    ) -> None:
        every, stream = examined.subjects.job("a"), examined.subjects.events_stream

        def pair(expected: int) -> list[Outgoing]:
            failed = Outgoing(examined.event("a", "JobFailed"), b"1", {}, Expect(expected, every))
            return [failed, Outgoing(examined.event("a", "JobRetrying"), b"2")]

        last = await bus.append_atomic(pair(0))
        with pytest.raises(WrongSequence):
            await bus.append_atomic(pair(last - 1))

        history = await bus.history(stream, every)
        assert [stored.sequence for stored in history] == [last - 1, last]
        assert await bus.append_atomic(pair(last)[:1]) == last + 1
        for wrong in (0, 1001):
            with pytest.raises(ValueError, match="1000"):
                await bus.append_atomic(numbered(examined.event("a"), wrong))

    async def test_a_message_id_is_stored_once(self, bus: Bus, examined: Examined) -> None:
        message = Outgoing(examined.subjects.queue("q"), b"", {"Nats-Msg-Id": "one"})
        assert await bus.append(message) == await bus.append(message)
        stream = examined.subjects.jobs_stream
        assert len(await bus.history(stream, examined.subjects.queue("q"))) == 1

    async def test_what_would_break_out_of_its_line_is_refused(
        self, bus: Bus, examined: Examined
    ) -> None:
        inside = {"Penstock-Job": "a\r\nNats-Rollup: all"}
        for message in (
            Outgoing(examined.event("a b"), b""),
            Outgoing(examined.event("a\r\nPUB x 0"), b""),
            Outgoing(examined.event("a"), b"", inside),
            Outgoing(examined.event("a"), b"", {"A: b\r\nC": "d"}),
        ):
            with pytest.raises(ValueError, match="holds"):
                await bus.append(message)
        assert await bus.last(examined.subjects.events_stream, examined.subjects.events()) is None

    async def test_too_large_is_refused_and_the_bus_goes_on(
        self, bus: Bus, examined: Examined
    ) -> None:
        for message in (
            Outgoing(examined.event("a"), b"x" * 1_100_000),
            Outgoing(examined.event("a"), b"", {"Big": "x" * 1_100_000}),
        ):
            with pytest.raises(PayloadTooLarge, match="bytes"):
                await bus.append(message)
        await bus.append(Outgoing(examined.event("a"), b"x" * 1_000_000))

    async def test_follow_last_begins_with_the_last_of_each_subject(
        self, bus: Bus, examined: Examined
    ) -> None:
        for number in range(2):
            for job in ("a", "b"):
                await bus.append(Outgoing(examined.event(job), f"{job}{number}".encode()))
        async with aclosing(_follow(bus, examined, start="last")) as stream:
            assert bodies(await take(stream, 2)) == [b"a1", b"b1"]
            await bus.append_many(numbered(examined.event("a"), 2))
            assert bodies(await take(stream, 2)) == [b"0", b"1"]


async def _last_sequence(bus: Bus, stream: str, subject: str) -> int:
    last = await bus.last(stream, subject)
    return last.sequence if last else 0


def _follow(bus: Bus, examined: Examined, start: Any) -> Any:
    return bus.follow(examined.subjects.events_stream, [examined.subjects.events()], start)
