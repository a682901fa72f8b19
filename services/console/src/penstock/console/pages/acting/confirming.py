"""The page before an act: what will happen, why, and who does it; then the act and its result.

It needs no script: a link leads there, a form sends the act, and the page of what was acted on says
how it went. A form that is sent twice has one effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litestar import MediaType, Response, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.pages.acting import signals, through_api
from penstock.console.pages.acting.buttons import ACTED, AnyRequest, refusal, viewer
from penstock.console.pages.acting.page_act import LONGEST_TEXT, BadField, PageAct
from penstock.console.pages.acting.page_acts import ACTS
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.web.acting import looks_at_limits, records_itself
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import new_id, utc_now

_ONCE = "once"
_MOST_KEY = 200
_BAD_REQUEST, _CONFLICT = 400, 409
_AREAS = {
    "job": "Jobs",
    "bulk action": "Jobs",
    "channel": "Alerts",
    "rule": "Alerts",
    "workflow": "Workflows",
    "batch": "Workflows",
    "schedule": "Workflows",
    "queue": "Pools",
    "host": "Capacity",
    "worker": "Capacity",
    "function": "Failures",
    "pool": "Pools",
}


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    async def shown(
        request: AnyRequest,
        act: PageAct,
        key: str,
        entered: Mapping[str, str],
        problem: str = "",
        status: int = 200,
    ) -> Response[str]:
        awaited = await signals.offered(console, act, key)
        given = {one.name: entered.get(one.name, one.value) for one in act.fields}
        answer = pages.page(
            "act.html",
            _AREAS[act.noun],
            f"{act.label}: {act.noun} {key}",
            act=act,
            key=key,
            entered=given,
            once=entered.get(_ONCE) or new_id(),
            viewer=viewer(request),
            refusal=refusal(console, viewer(request), act.scope),
            problem=problem,
            awaited=awaited,
            sure=entered.get(signals.IS_SURE, ""),
        )
        answer.status_code = status
        return answer

    @page_at("/acts/{action:str}/{key:str}")
    async def confirm(
        request: AnyRequest, action: FromPath[str], key: FromPath[str]
    ) -> Response[str]:
        act = _act(action)
        # A link may fill the form in, which is shown before it is sent.
        linked = {one.name: str(request.query_params.get(one.name, "")) for one in act.fields}
        entered = {name: text[:LONGEST_TEXT] for name, text in linked.items() if text}
        return await shown(request, act, _key(key), entered)

    # The request to the API that it sends is the one that stands in the audit log.
    options = needs(Scope.READ) | records_itself("page.act") | looks_at_limits()

    @post(
        "/acts/{action:str}/{key:str}",
        opt=options,
        include_in_schema=False,
        media_type=MediaType.HTML,
        request_max_body_size=MOST_FORM_BYTES,
    )
    async def do(request: AnyRequest, action: FromPath[str], key: FromPath[str]) -> Response[str]:
        act, key = _act(action), _key(key)
        entered = await read_fields(request)
        try:
            values = act.read(entered, utc_now())
        except BadField as error:
            return await shown(request, act, key, entered, f"{error}.", _BAD_REQUEST)
        awaited = await signals.offered(console, act, key)
        name = str(values.get(signals.NAME, ""))
        if awaited is not None and name not in awaited and entered.get(signals.IS_SURE) != name:
            warned = {**entered, signals.IS_SURE: name}
            problem = signals.doubt(name, awaited)
            return await shown(request, act, key, warned, problem, _CONFLICT)
        once = entered.get(_ONCE, "")
        path, body = act.api_path(key, values), act.api_body(values)
        answer = await through_api.send(request, act.method, path, body, once)
        if not answer.is_accepted:
            # A key is for one request: the next try, perhaps with other fields, takes a new one.
            next_try = {**entered, _ONCE: ""}
            return await shown(request, act, key, next_try, answer.problem, answer.status)
        return go(f"{act.page_path(key)}?{ACTED}={act.name}")

    return confirm, do


def _act(name: str) -> PageAct:
    act = ACTS.get(name)
    if act is None:
        raise NotFoundException(f"there is no act {name[:40]!r} on pages")
    return act


def _key(key: str) -> str:
    if not key or len(key) > _MOST_KEY or "/" in key:
        raise NotFoundException("expected a name of at most 200 characters, without /")
    return key
