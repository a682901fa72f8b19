"""Acts on queues and pools: pauses, holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated

import msgspec
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Receipt,
    ShortText,
    Text,
    client_of,
    receipt,
    source_of,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.parts import Console
from penstock.console.read_models.queues import queue_items
from penstock.console.web.acting import act, check_limits
from penstock.console.web.scopes import Scope
from penstock.events.envelope import utc_now
from penstock.events.subjects import check_name
from penstock.operations.orders import OperatorOrders

LONGEST_HOLD = timedelta(days=30)
Workers = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class PauseOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a queue is paused, and until when.

    Attributes:
        until: when the pause ends by itself, within 30 days; None: when the queue is resumed.
    """

    reason: Text
    until: datetime | None = None


class HoldOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds for the workers of a pool, until a time.

    Attributes:
        until: within 30 days.
        at_least: no fewer workers, as far as hosts can carry them.
        at_most: no more workers; None for no such bound.
    """

    until: datetime
    at_least: Workers = 0
    at_most: Workers | None = None
    reason: ShortText = ""


def check_hold(order: HoldOrder, now: datetime) -> datetime:
    """The end of a hold, in UTC. Raises ValidationException."""
    if order.until.tzinfo is None:
        raise ValidationException("until lacks its offset: 2027-01-01T06:00:00Z, or +01:00")
    try:
        until = order.until.astimezone(UTC)
    except OverflowError:
        raise ValidationException("until is out of range") from None
    if not now < until <= now + LONGEST_HOLD:
        latest = (now + LONGEST_HOLD).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise ValidationException(
            f"until is in the future, and within 30 days: found {until:%Y-%m-%dT%H:%M:%SZ}, "
            f"expected {latest} at the latest"
        )
    if order.at_most is not None and order.at_most < order.at_least:
        raise ValidationException("at_least exceeds at_most")
    if order.at_most is None and not order.at_least:
        raise ValidationException("expected at_least or at_most")
    return until


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    def check_queue(request: ApiRequest, queue: str) -> None:
        check_limits(request.scope["state"]["principal"], queue=queue)

    async def check_known(queue: str) -> None:
        """Refuses a misspelt name, which would be paused or resumed without effect."""
        check_name("queue", queue)
        rows = await console.read(lambda rows: queue_items(rows, console.present.settings))
        names = [row.queue for row in rows]
        if queue not in names:
            near = get_close_matches(queue, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see /api/v1/queues"
            raise NotFoundException(f"no pool serves queue {queue!r} and it holds no jobs; {hint}")

    def check_pool(request: ApiRequest, pool: str) -> None:
        check_limits(request.scope["state"]["principal"], pool=pool)
        if pool not in console.present.pools:
            raise NotFoundException(f"there is no pool {pool!r}")

    @act(
        "POST",
        "/queues/{name:str}/pause",
        Scope.QUEUES,
        "queue.pause",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def pause(
        request: ApiRequest, name: FromPath[str], data: JSONBody[PauseOrder]
    ) -> Receipt:
        """No worker is given jobs of a queue until it is resumed; running ones go on.

        With `until` the pause ends by itself. A second pause replaces the first.
        """
        end = {"until": data.until.isoformat()} if data.until else {}
        check_queue(request, target(request, "queue", name, reason=data.reason, **end))
        await check_known(name)
        await client_of(console, request).pause_queue(name, data.reason, data.until)
        return await receipt(console, "queue", name)

    @act(
        "POST",
        "/queues/{name:str}/resume",
        Scope.QUEUES,
        "queue.resume",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def resume(request: ApiRequest, name: FromPath[str]) -> Receipt:
        """Workers are given the jobs of a queue again."""
        check_queue(request, target(request, "queue", name))
        await check_known(name)
        await client_of(console, request).resume_queue(name)
        return await receipt(console, "queue", name)

    @act(
        "PUT",
        "/pools/{name:str}/hold",
        Scope.QUEUES,
        "pool.hold",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def hold(request: ApiRequest, name: FromPath[str], data: JSONBody[HoldOrder]) -> Receipt:
        """Holds the workers of a pool within bounds until a time; its decisions say so."""
        bounds = {"at_least": str(data.at_least), "at_most": str(data.at_most)}
        target(request, "pool", name, until=data.until.isoformat(), reason=data.reason, **bounds)
        check_pool(request, name)
        orders = OperatorOrders(console.bus, console.subjects, source_of(request))
        until = check_hold(data, utc_now())
        await orders.hold(name, until, data.at_least, data.at_most, data.reason)
        return await receipt(console, "pool", name)

    @act(
        "DELETE",
        "/pools/{name:str}/hold",
        Scope.QUEUES,
        "pool.release",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def release(request: ApiRequest, name: FromPath[str]) -> Receipt:
        """Ends the hold of a pool: it is scaled by its settings again."""
        target(request, "pool", name)
        check_pool(request, name)
        await OperatorOrders(console.bus, console.subjects, source_of(request)).release(name)
        return await receipt(console, "pool", name)

    return pause, resume, hold, release
