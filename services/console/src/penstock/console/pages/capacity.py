"""Hosts and workers: what each does now, and what a host has room for."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.capacity import capacity_of, last_advice
from penstock.console.api.endpoint import AsOfText
from penstock.console.pages.acting.buttons import Acts, AnyRequest, acts, done
from penstock.console.pages.lines import HOUR_SECONDS, line
from penstock.console.pages.rendering import Pages, Topic, Values, page_at
from penstock.console.pages.time_travel import visit
from penstock.console.parts import Console
from penstock.console.past.past import Past
from penstock.events.orders import HostDrained, HostPaused


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages, and what they are sent while they are open."""

    async def values(past: Past | None = None) -> Values:
        view = past or console.present
        hosts, workers = view.host_rows(), view.worker_rows()
        return {"hosts": hosts, "workers": workers, "is_past": past is not None}

    parts = {"hosts": "capacity/hosts.html", "workers": "capacity/workers.html"}
    pages.add_topic(Topic("capacity", ("hosts", "workers"), values, parts))

    @page_at("/capacity", answers_as_of=True)
    async def capacity(request: AnyRequest, as_of: AsOfText = "") -> Response[str]:
        past = await console.past(as_of)
        return pages.page(
            "capacity.html",
            "Capacity",
            "Capacity",
            ("capacity",),
            await visit(console, request, past.standing.past if past else None),
            now=capacity_of(past or console.present),
            advice=None if past else await last_advice(console),
            **await values(past),
        )

    @page_at("/capacity/{name:str}", answers_as_of=True)
    async def host(request: AnyRequest, name: FromPath[str], as_of: AsOfText = "") -> Response[str]:
        past = await console.past(as_of)
        view, moment = past or console.present, past.moment if past else None
        row = next((row for row in view.host_rows() if row.host == name), None)
        if row is None:
            raise NotFoundException(f"no host {name!r} has reported lately")
        order = view.board.orders.get(("host", name))
        is_held = isinstance(order, HostPaused | HostDrained)
        possible = ["host.resume"] if is_held else ["host.pause", "host.drain"]
        workers = [worker for worker in view.worker_rows() if worker.host == name]
        points = await console.points("host", name, HOUR_SECONDS, moment)
        return pages.page(
            "host.html",
            "Capacity",
            f"Host {name}",
            visit=await visit(console, request, past.standing.past if past else None),
            host=row,
            acts=Acts() if past else acts(console, request, possible, name),
            acted=done(request),
            workers=workers,
            cores=line(points, "busy_cores", moment),
            memory=line(points, "memory_used_bytes", moment),
        )

    @page_at("/capacity/workers/{name:str}")
    async def worker(request: AnyRequest, name: FromPath[str]) -> Response[str]:
        row = next((row for row in console.present.worker_rows() if row.worker == name), None)
        if row is None:
            raise NotFoundException(f"worker {name[:80]!r} has not reported for ten seconds")
        possible = [] if row.state == "draining" else ["worker.drain"]
        return pages.page(
            "worker.html",
            "Capacity",
            f"Worker {name}",
            worker=row,
            acts=acts(console, request, possible, name),
            acted=done(request),
        )

    return capacity, host, worker
