"""The feed of scaling decisions, and one decision with all its reasons, also recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from litestar import Response, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.api.decision_parts import outcome
from penstock.console.api.decisions import decision_answer, decision_page
from penstock.console.api.endpoint import DEFAULT_LIMIT, AsOfText
from penstock.console.computing.parts import Question
from penstock.console.core.side_by_side import side_by_side
from penstock.console.core.why_not import why_not
from penstock.console.pages import trying
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest
from penstock.console.pages.acting.page_act import BadField
from penstock.console.pages.forms import COMPUTING_FORM, go, read_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.time_travel import visit
from penstock.console.parts import Console

_MOST_WORKERS = 1_000_000
_BAD_REQUEST = 400


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/decisions", answers_as_of=True)
    async def decisions(
        request: AnyRequest,
        pool: FromQuery[str] = "",
        every: FromQuery[bool] = False,
        cursor: FromQuery[str] = "",
        as_of: AsOfText = "",
    ) -> Response[str]:
        moment = console.history.moment(as_of)
        listing = await decision_page(console, pool, every, DEFAULT_LIMIT, cursor, moment)
        return pages.page(
            "decisions.html",
            "Decisions",
            "Decisions",
            visit=await visit(console, request, listing.standing.past),
            listing=listing,
            pools=sorted(console.present.pools),
            pool=pool,
            every=every,
            cursor=cursor,
        )

    async def shown(
        request: AnyRequest,
        decision_id: str,
        fields: Mapping[str, str],
        problem: str = "",
        status: int = 200,
        workers: int | None = None,
        as_of: str = "",
    ) -> Response[str]:
        """The page of a decision, with what was computed about it before."""
        moment = console.history.moment(as_of)
        answer = await decision_answer(console, decision_id, moment)
        if answer is None:
            raise NotFoundException(f"there is no decision {decision_id!r}, or not any more")
        made, event = answer.decision, answer.event
        question = Question(decision_id=made.id, sequence=made.sequence, pool=made.pool)
        entered = trying.entered_of(fields)
        settings = trying.settings_of(entered)
        tried = settings and console.computing.kept(question.under(settings))
        other = workers if workers is not None and 0 <= workers <= _MOST_WORKERS else None
        path = f"/decisions/{decision_id}"
        page = pages.page(
            "decision.html",
            "Decisions",
            f"{made.pool} {made.current} → {made.target}",
            visit=await visit(console, request, answer.standing.past, path),
            answer=answer,
            outcome=None if moment else await outcome(console, made, answer.later),
            other=other,
            why_not=why_not(event, other) if event and other is not None else None,
            recomputed=console.computing.kept(question),
            fields=trying.FIELDS,
            entered=entered,
            present=trying.present(console, made.pool),
            problem=problem,
            settings=settings and trying.in_words(settings),
            tried=tried,
            pairs=(
                side_by_side(event.reasons, tried.instead.reasons)
                if event and tried and tried.instead
                else ()
            ),
        )
        page.status_code = status
        return page

    @page_at("/decisions/{decision_id:str}", answers_as_of=True)
    async def decision(
        request: AnyRequest,
        decision_id: FromPath[str],
        workers: FromQuery[int | None] = None,
        as_of: AsOfText = "",
    ) -> Response[str]:
        fields = dict(request.query_params.items())
        return await shown(request, decision_id, fields, workers=workers, as_of=as_of)

    @post("/decisions/{decision_id:str}/recompute", **COMPUTING_FORM)
    async def recompute(request: AnyRequest, decision_id: FromPath[str]) -> Response[str]:
        answer = await through_api.send(request, "POST", f"/decisions/{decision_id}/recompute")
        if not answer.is_accepted:
            return await shown(request, decision_id, {}, answer.problem, answer.status)
        return go(f"/decisions/{decision_id}#recomputed")

    @post("/decisions/{decision_id:str}/what-if", **COMPUTING_FORM)
    async def what_if(request: AnyRequest, decision_id: FromPath[str]) -> Response[str]:
        fields = await read_fields(request)
        made = await decision_answer(console, decision_id)
        if made is None:
            raise NotFoundException(f"there is no decision {decision_id!r}, or not any more")
        entered = trying.entered_of(fields)
        try:
            body = trying.body_of(entered)
        except BadField as error:
            return await shown(request, decision_id, fields, f"{error}.", _BAD_REQUEST)
        path = f"/pools/{made.decision.pool}/what-if"
        answer = await through_api.send(request, "POST", path, {**body, "decision": decision_id})
        if not answer.is_accepted:
            return await shown(request, decision_id, fields, answer.problem, answer.status)
        given = {name: text for name, text in entered.items() if text}
        return go(f"/decisions/{decision_id}?{urlencode(given)}#what-if")

    return decisions, decision, recompute, what_if
