"""Queues."""

from __future__ import annotations

from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from penstock.console.api.endpoint import (
    AsOfText,
    Listing,
    Routes,
    SeriesSeconds,
    read,
    whole,
)
from penstock.console.core.series import Points
from penstock.console.parts import Console
from penstock.console.past.past import Past
from penstock.console.read_models.projection import Standing
from penstock.console.read_models.queues import QueueItem, queue_items
from penstock.jobs.queues.pauses import Pause


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    async def all_queues(past: Past | None = None) -> tuple[list[QueueItem], Standing]:
        return await console.read_standing(
            lambda rows: queue_items(rows, console.present.settings, past)
        )

    @read("/queues", answers_as_of=True)
    async def queues(as_of: AsOfText = "") -> Listing[QueueItem]:
        """All queues that are configured or hold jobs, by name."""
        past = await console.past(as_of)
        items, standing = await all_queues(past)
        return Listing(items=items, standing=past.standing if past else standing)

    @read("/queues/pauses")
    async def pauses() -> Listing[Pause]:
        """Queues that are paused: since when, until when, why, and by whom."""
        stored, now = await console.client.pauses.all(), console.bus.now()
        return whole(console, [stored[name] for name in sorted(stored) if stored[name].lasts(now)])

    async def queue_or_404(name: str, past: Past | None = None) -> QueueItem:
        queues, _ = await all_queues(past)
        queue = next((queue for queue in queues if queue.queue == name), None)
        if queue is None:
            raise NotFoundException(f"queue {name!r} is not configured and holds no jobs")
        return queue

    @read("/queues/{name:str}", answers_as_of=True)
    async def queue(name: FromPath[str], as_of: AsOfText = "") -> QueueItem:
        """One queue."""
        return await queue_or_404(name, await console.past(as_of))

    @read("/queues/{name:str}/series")
    async def queue_series(name: FromPath[str], seconds: SeriesSeconds = 900) -> Points:
        """Attempts that ended, over time, of a pool's 100 busiest queues."""
        await queue_or_404(name)
        return await console.points("queue", name, seconds)

    return queues, pauses, queue, queue_series
