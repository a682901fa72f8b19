"""Acts on hosts: paused, drained, resumed."""

from __future__ import annotations

from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Reason,
    Receipt,
    receipt,
    source_of,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.parts import Console
from penstock.console.web.acting import act
from penstock.console.web.scopes import Scope
from penstock.events.orders import HostDrained, HostOrder, HostPaused, HostResumed
from penstock.operations.orders import OperatorOrders

_ORDERS: dict[str, tuple[type[HostOrder], str]] = {
    "pause": (HostPaused, "A host keeps the workers it has and gets no more until it is resumed."),
    "drain": (HostDrained, "Empties a host: its workers finish and are replaced on other hosts."),
    "resume": (HostResumed, "Lets a paused or drained host take workers again."),
}
"""By verb: the order, and the description of its endpoint."""


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    return tuple(_order(console, verb, kind, about) for verb, (kind, about) in _ORDERS.items())


def _order(console: Console, verb: str, kind: type[HostOrder], about: str) -> HTTPRouteHandler:
    @act(
        "POST",
        f"/hosts/{{name:str}}/{verb}",
        Scope.QUEUES,
        f"host.{verb}",
        status_code=ACCEPTED,
        name=f"host {verb}",
        operation_id=f"host_{verb}",
        description=about,
    )
    async def endpoint(request: ApiRequest, name: FromPath[str], data: JSONBody[Reason]) -> Receipt:
        target(request, "host", name, reason=data.reason)
        if name not in {row.host for row in console.present.host_rows()}:
            raise NotFoundException(f"no host {name!r} has reported lately")
        orders = OperatorOrders(console.bus, console.subjects, source_of(request))
        await orders.set_host(kind, name, data.reason)
        return await receipt(console, "host", name)

    return endpoint
