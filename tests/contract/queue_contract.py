"""The bus contract, second part: queues, claims, schedules, depths."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from tests.contract.setting import (
    LONG_CLAIM_SECONDS,
    SHORT_CLAIM_SECONDS,
    Examined,
    bodies,
    drain,
    numbered,
)
from tests.waiting import eventually

from penstock.bus.protocol import Bus, Delivery, Outgoing, QueueDepth

AT_ONCE = LONG_CLAIM_SECONDS / 6
"""Seconds; far less than the claim, so that what comes within it did not wait for its lapse."""


class QueueContract:
    async def test_first_in_first_out(self, bus: Bus, examined: Examined) -> None:
        await bus.append_many(numbered(examined.subjects.queue("q"), 5))
        await bus.ensure_queue("q")
        await bus.ensure_queue("q")
        puller = bus.puller("q")

        two = await puller.fetch(2, 1.0)
        rest = await puller.fetch(10, 1.0)

        assert bodies(two) == [b"0", b"1"]
        assert bodies(rest) == [b"2", b"3", b"4"]
        assert [d.pending for d in two] == [4, 3]
        assert {d.deliveries for d in two + rest} == {1}
        assert abs(two[0].stored_at - time.time()) < 5

    async def test_a_paused_queue_is_paused_for_everyone(
        self, bus: Bus, examined: Examined
    ) -> None:
        waiting = asyncio.create_task(bus.puller("q").fetch(1, 30))
        await asyncio.sleep(0)
        await bus.pause_queue("q", True)
        await bus.pause_queue("q", True)
        await bus.append_many(numbered(examined.subjects.queue("q"), 2))
        await bus.ensure_queue("q")  # as any other worker does that comes
        assert await bus.puller("q").fetch(5, 0.2) == []
        depth = (await bus.depths())["q"]
        assert (depth.paused, depth.waiting, depth.claimed) == (True, 2, 0)
        assert not waiting.done()

        await bus.pause_queue("q", False)
        async with asyncio.timeout(AT_ONCE):
            assert bodies(await waiting) == [b"0"]
        assert not (await bus.depths())["q"].paused

    async def test_a_pause_ends_by_itself(self, bus: Bus, examined: Examined) -> None:
        waiting = asyncio.create_task(bus.puller("q").fetch(1, 30))
        first_end = datetime.fromtimestamp(bus.now() + 3600, UTC)
        await bus.pause_queue("q", True, first_end)
        await bus.append_many(numbered(examined.subjects.queue("q"), 1))
        depth = (await bus.depths())["q"]
        assert (depth.paused, depth.paused_until) == (True, first_end)

        await bus.pause_queue("q", True, datetime.fromtimestamp(bus.now() + 0.5, UTC))
        assert not waiting.done()
        async with asyncio.timeout(AT_ONCE):
            assert bodies(await waiting) == [b"0"]
        depth = (await bus.depths())["q"]
        assert (depth.paused, depth.paused_until) == (False, None)

        await bus.pause_queue("q", True)
        depth = (await bus.depths())["q"]
        assert (depth.paused, depth.paused_until) == (True, None)

    async def test_headers_come_along(self, bus: Bus, examined: Examined) -> None:
        headers = {"Penstock-Job": "a", "Penstock-Seq": "7"}
        sequence = await bus.append(Outgoing(examined.subjects.queue("q"), b"x", headers))
        [delivery] = await bus.puller("q").fetch(1, 1.0)
        assert dict(delivery.headers) == headers
        assert (delivery.subject, delivery.sequence) == (examined.subjects.queue("q"), sequence)

    async def test_an_empty_queue_answers_nothing_in_time(self, bus: Bus) -> None:
        puller = bus.puller("q")
        for batch in (1, 10):  # a batch that times out is no error (nats-py #client.py:1295)
            begun = time.monotonic()
            assert await puller.fetch(batch, 0.1) == []
            assert time.monotonic() - begun < 2

    async def test_a_waiting_fetch_gets_the_first_to_come(
        self, bus: Bus, examined: Examined
    ) -> None:
        fetching = asyncio.create_task(bus.puller("q").fetch(10, AT_ONCE))
        await bus.append(Outgoing(examined.subjects.queue("q"), b"x"))
        begun = time.monotonic()
        assert bodies(await fetching) == [b"x"]
        assert time.monotonic() - begun < AT_ONCE / 2

    async def test_queues_do_not_overlap(self, bus: Bus, examined: Examined) -> None:
        other = await examined.client()
        for client in (bus, other):
            for queue in ("a", "b"):
                await client.ensure_queue(queue)  # one consumer each, whoever asks
        await bus.append_many([Outgoing(examined.subjects.queue(q), q.encode()) for q in "abab"])

        assert bodies(await drain(bus.puller("a"), 2)) == [b"a", b"a"]
        assert bodies(await drain(other.puller("b"), 2)) == [b"b", b"b"]
        assert await other.puller("a").fetch(1, 0) == []

    async def test_acknowledged_is_gone(self, bus: Bus, examined: Examined) -> None:
        subject, stream = examined.subjects.queue("q"), examined.subjects.jobs_stream
        await bus.append_many(numbered(subject, 2))
        [first, second] = await drain(bus.puller("q"), 2)

        await bus.ack([first])

        assert await eventually(lambda: _gone(bus, stream, subject, first.sequence))
        await bus.ack([second, second])
        assert await eventually(lambda: _gone(bus, stream, subject, second.sequence))

    async def test_a_silent_holder_loses_its_claim(self, examined: Examined) -> None:
        bus = await examined.client(SHORT_CLAIM_SECONDS)
        await bus.append(Outgoing(examined.subjects.queue("q"), b"x", {"Penstock-Job": "a"}))
        [first] = await bus.puller("q").fetch(1, 1.0)
        begun = time.monotonic()

        [again] = await drain(bus.puller("q"), 1)

        assert SHORT_CLAIM_SECONDS * 0.5 < time.monotonic() - begun < 5
        assert (again.sequence, again.body, again.deliveries) == (first.sequence, b"x", 2)
        assert dict(again.headers) == dict(first.headers)

    async def test_an_extended_claim_holds(self, examined: Examined) -> None:
        bus = await examined.client(SHORT_CLAIM_SECONDS)
        await bus.append(Outgoing(examined.subjects.queue("q"), b"x"))
        [held] = await bus.puller("q").fetch(1, 1.0)
        other = asyncio.create_task(bus.puller("q").fetch(1, AT_ONCE))
        until = time.monotonic() + SHORT_CLAIM_SECONDS * 3

        async def time_is_over() -> bool:
            await bus.extend([held])
            return time.monotonic() > until

        await eventually(time_is_over)
        assert not other.done()
        assert [delivery.deliveries for delivery in await other] == [2]  # and lapses without

    async def test_given_back_comes_again_at_once(self, bus: Bus, examined: Examined) -> None:
        other = await examined.client()
        await bus.append(Outgoing(examined.subjects.queue("q"), b"x"))
        [held] = await bus.puller("q").fetch(1, 1.0)
        waiting = asyncio.create_task(other.puller("q").fetch(1, AT_ONCE))

        await other.give_back([held.ack_subject])  # by somebody else than the holder, too

        assert [(d.sequence, d.deliveries) for d in await waiting] == [(held.sequence, 2)]

    async def test_given_back_with_a_delay_comes_after_what_is_there(
        self, bus: Bus, examined: Examined
    ) -> None:
        subject = examined.subjects.queue("q")
        await bus.append(Outgoing(subject, b"x"))
        [held] = await bus.puller("q").fetch(1, 1.0)
        await bus.append(Outgoing(subject, b"y"))

        await bus.give_back([held.ack_subject], 0.5)

        delivered = [*await drain(bus.puller("q"), 1), *await drain(bus.puller("q"), 1)]
        assert [(d.body, d.deliveries) for d in delivered] == [(b"y", 1), (b"x", 2)]

    async def test_a_late_acknowledgement_is_not_fenced_and_does_no_harm(
        self, examined: Examined
    ) -> None:
        bus = await examined.client(SHORT_CLAIM_SECONDS)
        subject, stream = examined.subjects.queue("q"), examined.subjects.jobs_stream
        await bus.append(Outgoing(subject, b"x"))
        [late] = await bus.puller("q").fetch(1, 1.0)
        [again] = await drain(bus.puller("q"), 1)

        await bus.ack([late])  # it ends the message for the second holder, too: fence by events

        assert await eventually(lambda: _gone(bus, stream, subject, again.sequence))
        await bus.extend([again])
        await bus.ack([again])
        await bus.append(Outgoing(subject, b"next"))
        assert bodies(await drain(bus.puller("q"), 1)) == [b"next"]

    async def test_two_pullers_never_get_the_same(self, bus: Bus, examined: Examined) -> None:
        other = await examined.client()
        await bus.append_many(numbered(examined.subjects.queue("q"), 200))

        async def all_of(client: Bus) -> list[bytes]:
            puller, found = client.puller("q"), list[bytes]()
            while got := await puller.fetch(7, 0.3):
                found += bodies(got)
                await client.ack(got)
            return found

        mine, theirs = await asyncio.gather(all_of(bus), all_of(other))
        assert sorted(mine + theirs, key=int) == [b"%d" % number for number in range(200)]

    async def test_a_cancelled_fetch_loses_nothing(self, bus: Bus, examined: Examined) -> None:
        other = await examined.client()
        puller = bus.puller("q")
        for number in range(3):
            fetching = asyncio.create_task(puller.fetch(1, 60))
            await _asked(bus, fetching)
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            await bus.append(Outgoing(examined.subjects.queue("q"), b"%d" % number))
            begun = time.monotonic()
            [delivery] = await drain(other.puller("q"), 1)
            assert delivery.body == b"%d" % number
            assert time.monotonic() - begun < AT_ONCE
            await bus.ack([delivery])

    async def test_a_fetch_after_a_cancelled_one_gets_what_came(
        self, bus: Bus, examined: Examined
    ) -> None:
        puller = bus.puller("q")
        fetching = asyncio.create_task(puller.fetch(1, 60))
        await _asked(bus, fetching)
        fetching.cancel()
        await bus.append_many(numbered(examined.subjects.queue("q"), 3))
        begun = time.monotonic()
        assert sorted(bodies(await drain(puller, 3))) == [b"0", b"1", b"2"]
        assert time.monotonic() - begun < AT_ONCE

    async def test_a_closed_puller_keeps_nothing(self, bus: Bus, examined: Examined) -> None:
        puller = bus.puller("q")
        fetching = asyncio.create_task(puller.fetch(1, 60))
        await _asked(bus, fetching)
        fetching.cancel()
        await bus.append(Outgoing(examined.subjects.queue("q"), b"x"))
        await puller.close()
        begun = time.monotonic()
        assert bodies(await drain(bus.puller("q"), 1)) == [b"x"]
        assert time.monotonic() - begun < AT_ONCE

    async def test_many_claims_do_not_block_what_is_ready(
        self, bus: Bus, examined: Examined
    ) -> None:
        await bus.append_many(
            numbered(examined.subjects.queue("q"), 1200)
        )  # the default stops at 1,000
        assert len(await drain(bus.puller("q"), 1200)) == 1200

    async def test_many_idle_pullers_are_served(self, bus: Bus, examined: Examined) -> None:
        await bus.ensure_queue("q")
        fetching = [asyncio.create_task(bus.puller("q").fetch(1, 20)) for _ in range(600)]
        await _asked(bus, fetching[-1])  # the default refuses all beyond 512
        await bus.append_many(numbered(examined.subjects.queue("q"), 600))
        found = [delivery for got in await asyncio.gather(*fetching) for delivery in got]
        assert len({delivery.sequence for delivery in found}) == 600

    # --- schedules ------------------------------------------------------------------------------
    async def test_a_schedule_fires_at_its_time(self, bus: Bus, examined: Examined) -> None:
        puller, due = bus.puller("q"), time.time() + 0.4
        await bus.append(examined.schedule("a", 0.4))
        [delivery] = await drain(puller, 1)
        assert -0.05 < delivery.stored_at - due < 1.0
        assert (delivery.body, delivery.headers["Penstock-Job"]) == (b"a", "a")
        assert "Nats-Schedule" not in delivery.headers
        stream, subject = examined.subjects.jobs_stream, examined.subjects.schedule("q", "a")
        await eventually(lambda: _absent(bus, stream, subject))

    async def test_a_schedule_in_the_past_fires_soon(self, bus: Bus, examined: Examined) -> None:
        await bus.append(examined.schedule("a", -60))
        assert bodies(await drain(bus.puller("q"), 1)) == [b"a"]

    async def test_a_schedule_replaces_that_of_its_subject(
        self, bus: Bus, examined: Examined
    ) -> None:
        await bus.append(examined.schedule("a", 0.3))
        await bus.append(examined.schedule("a", 0.6))
        await bus.append(examined.schedule("mark", 0.9))
        found = await drain(bus.puller("q"), 2)
        assert bodies(found) == [b"a", b"mark"]

    async def test_a_removed_schedule_does_not_fire(self, bus: Bus, examined: Examined) -> None:
        await bus.append(examined.schedule("a", 0.3))
        await bus.append(examined.schedule("mark", 0.6))
        await bus.remove(examined.subjects.jobs_stream, examined.subjects.schedule("q", "a"))
        assert bodies(await drain(bus.puller("q"), 1)) == [b"mark"]

    async def test_schedules_wait_beside_the_queue(self, bus: Bus, examined: Examined) -> None:
        for number in range(20):
            await bus.append(examined.schedule(f"later{number}", 3600))
        await bus.append(Outgoing(examined.subjects.queue("q"), b"now"))
        assert bodies(await bus.puller("q").fetch(5, 1.0)) == [b"now"]
        assert (await bus.depths())["q"].waiting == 0

    # --- depths ---------------------------------------------------------------------------------
    async def test_depths_tell_waiting_from_claimed(self, bus: Bus, examined: Examined) -> None:
        await bus.ensure_queue("empty")
        await bus.ensure_queue("q")
        answers = await bus.append_many(numbered(examined.subjects.queue("q"), 5))

        async def settles_at(expected: QueueDepth) -> None:
            async def same() -> bool:
                return (await bus.depths())["q"] == expected

            await eventually(same, what=f"{expected} != {await bus.depths()}")

        held = await drain(bus.puller("q"), 2)
        seen = {"queue": "q", "delivered": 2, "delivered_sequence": answers[1]}
        await settles_at(QueueDepth(waiting=3, claimed=2, **seen))
        await bus.ack(held)
        await settles_at(QueueDepth(waiting=3, claimed=0, **seen))
        depths = await bus.depths()
        assert depths["empty"] == QueueDepth(
            queue="empty", waiting=0, claimed=0, delivered=0, delivered_sequence=0
        )


async def _asked(bus: Bus, fetching: asyncio.Task[list[Delivery]]) -> None:
    """Lets a fetch get so far that the broker knows of it: some round trips of its connection."""
    for _ in range(5):
        await bus.depths()
    assert not fetching.done()


async def _gone(bus: Bus, stream: str, subject: str, sequence: int) -> bool:
    found = await bus.next(stream, subject, sequence)
    return found is None or found.sequence != sequence


async def _absent(bus: Bus, stream: str, subject: str) -> bool:
    return await bus.last(stream, subject) is None
