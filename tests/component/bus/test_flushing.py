"""What a connection survives that nats-py would not."""

from __future__ import annotations

import asyncio

from nats.errors import FlushTimeoutError

from penstock.bus.wire import WireClient


async def test_the_answer_to_a_flush_that_was_given_up_ends_no_reading(nats_url: str) -> None:
    """nats-py stops reading at a PONG for which nothing waits, and the connection is deaf."""
    client = WireClient()
    await client.connect(nats_url)
    try:
        mine = await client.subscribe(client.new_inbox())
        async with asyncio.timeout(20):
            while not await _gives_up_a_flush(client):
                pass  # its answer was quicker
        await client.publish(mine.subject, b"one")
        assert (await mine.next_msg(timeout=20)).data == b"one"
        await client.publish(mine.subject, b"two")
        assert (await mine.next_msg(timeout=20)).data == b"two"
    finally:
        await client.close()


async def _gives_up_a_flush(client: WireClient) -> bool:
    try:
        await client.flush(timeout=1e-6)
    except FlushTimeoutError:
        return True
    return False
