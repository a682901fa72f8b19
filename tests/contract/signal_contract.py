"""The bus contract, third part: signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.contract.setting import Examined
from tests.waiting import eventually

from penstock.bus.protocol import Bus, Outgoing


class SignalContract:
    async def test_a_signal_is_heard_by_all_who_listen(self, bus: Bus, examined: Examined) -> None:
        heard, other = Heard(), await examined.client()
        beats = f"{examined.subjects.prefix}.beats.worker.*.*"
        await bus.listen(beats, heard.plain)
        await other.listen(beats, heard.waiting)

        subject = examined.subjects.worker_report("h", "w")
        await _until(bus, subject, b"x", lambda: len(heard.all) >= 2)

        assert set(heard.all) == {(subject, b"x")}

    async def test_signals_come_in_order(self, bus: Bus, examined: Examined) -> None:
        heard, subject = Heard(), examined.subjects.cancel_notice("a")
        await bus.listen(subject, heard.plain)
        for number in range(50):
            await bus.signal(subject, b"%d" % number)
        await eventually(lambda: len(heard.all) == 50)
        assert [body for _, body in heard.all] == [b"%d" % number for number in range(50)]

    async def test_listening_ends_after_so_many(self, bus: Bus, examined: Examined) -> None:
        few, every, subject = Heard(), Heard(), examined.subjects.cancel_notice("a")
        await bus.listen(subject, few.plain, at_most=2)
        await bus.listen(subject, every.plain)
        for _ in range(5):
            await bus.signal(subject)
        await eventually(lambda: len(every.all) == 5)
        assert len(few.all) == 2

    async def test_unsubscribed_hears_no_more(self, bus: Bus, examined: Examined) -> None:
        gone, there, subject = Heard(), Heard(), examined.subjects.cancel_notice("a")
        subscription = await bus.listen(subject, gone.plain)
        await bus.listen(subject, there.plain)
        await subscription.unsubscribe()
        await bus.signal(subject, b"x")
        await eventually(lambda: there.all)
        assert gone.all == []
        await subscription.unsubscribe()

    async def test_stored_messages_are_heard_as_they_pass(
        self, bus: Bus, examined: Examined
    ) -> None:
        heard, other = Heard(), await examined.client()
        await other.listen(f"{examined.subjects.prefix}.jobs.*", heard.plain)

        async def passed() -> bool:
            await bus.append(Outgoing(examined.subjects.queue("q"), b"x"))
            return bool(heard.all)

        await eventually(passed)
        assert heard.all[0] == (examined.subjects.queue("q"), b"x")

    async def test_a_failing_handler_does_not_stop_the_bus(
        self, bus: Bus, examined: Examined
    ) -> None:
        heard, subject = Heard(), examined.subjects.cancel_notice("a")

        def fails(_: str, __: bytes) -> None:
            raise RuntimeError("broken on purpose")

        async def fails_later(_: str, __: bytes) -> None:
            raise RuntimeError("broken on purpose, later")

        for handler in (fails, fails_later, heard.plain):
            await bus.listen(subject, handler)
        for _ in range(3):
            await bus.signal(subject)
        await eventually(lambda: len(heard.all) == 3)
        await bus.append(Outgoing(examined.event("a"), b""))

    async def test_a_signal_that_nobody_hears_is_no_error(
        self, bus: Bus, examined: Examined
    ) -> None:
        await bus.signal(examined.subjects.cancel_notice("nobody"), b"x")


class Heard:
    """A handler that remembers, as a function and as a coroutine."""

    def __init__(self) -> None:
        self.all: list[tuple[str, bytes]] = []

    def plain(self, subject: str, body: bytes) -> None:
        self.all.append((subject, body))

    async def waiting(self, subject: str, body: bytes) -> None:
        await asyncio.sleep(0)
        self.all.append((subject, body))


async def _until(bus: Bus, subject: str, body: bytes, enough: Callable[[], bool]) -> None:
    """Repeats a signal, lossy as it is, until it did what it should."""

    async def sent() -> bool:
        await bus.signal(subject, body)
        return enough()

    await eventually(sent)
