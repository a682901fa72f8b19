"""Acts on workers: one is drained."""

from __future__ import annotations

from litestar.exceptions import HTTPException, NotFoundException
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
from penstock.console.web.acting import act, acting
from penstock.console.web.conflict import Conflict
from penstock.console.web.scopes import Scope
from penstock.operations.draining import drain_worker

_UNAVAILABLE = 503


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @act("POST", "/workers/{name:str}/drain", Scope.QUEUES, "worker.drain", status_code=ACCEPTED)
    async def drain(request: ApiRequest, name: FromPath[str], data: JSONBody[Reason]) -> Receipt:
        """Ends a worker: it finishes its jobs, and its executor starts another if one is planned.

        A busy worker may finish for `host.drain_seconds`. One that is ending already is left as it
        is.
        """
        target(request, "worker", name, reason=data.reason)
        row = next((row for row in console.present.worker_rows() if row.worker == name), None)
        if row is None:
            raise NotFoundException(f"no worker {name!r} has reported lately")
        outcome = await drain_worker(
            console.bus,
            console.subjects,
            row.host,
            name,
            by=source_of(request),
            reason=data.reason,
        )
        if outcome is None:
            raise HTTPException(
                f"the executor of host {row.host} did not answer within 5 s",
                status_code=_UNAVAILABLE,
            )
        if outcome == "unknown":
            raise Conflict(
                f"the executor of host {row.host} does not run worker {name}: it has ended, or it "
                "was started by hand",
            )
        acting(request).detail = "it was draining already" if outcome == "already" else ""
        return await receipt(console, "worker", name)

    return (drain,)
