"""Acting on all that match a filter: what it would be, its start, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import MediaType, Response, post
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.acts.bulk import USUAL_PER_SECOND, BulkPreview
from penstock.console.api.bulk import BulkItem, action_or_404, bulk_item
from penstock.console.core.bulk.verbs import VERBS
from penstock.console.core.job_query import JobQuery
from penstock.console.pages import sections
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest, acts, done, refusal, viewer
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_all_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.web.acting import looks_at_limits, records_itself
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import new_id

_AREA = "Jobs"
_SHOWN = 100
_BAD_REQUEST = 400
_TEXTS = ("title", "reason", "tag", "to_queue")


class Wording(NamedTuple):
    """A verb in words.

    Attributes:
        button: where all that match a filter are meant.
        title: of the page that asks.
        effect: what will happen to each.
        term: what its form asks for besides, as name and label; None for nothing.
    """

    button: str
    title: str
    effect: str
    is_grave: bool = False
    term: tuple[str, str] | None = None


WORDINGS: Mapping[str, Wording] = {
    "retry": Wording(
        "Run all again", "Run again", "Each is queued again with all its tries and its arguments."
    ),
    "delete": Wording(
        "Discard all",
        "Discard",
        "The dead letter of each is deleted; the jobs stay dead and keep their history.",
        True,
    ),
    "cancel": Wording(
        "Cancel all",
        "Cancel",
        "None is started any more; those that run are stopped by their workers.",
        True,
    ),
    "move": Wording(
        "Move all",
        "Move",
        "Each waits on the other queue, with its id, its attempts and its time. Running ones stay.",
        term=("to_queue", "To the queue"),
    ),
    "recover": Wording(
        "Recover all that are stuck",
        "Recover",
        "Their hosts judge which are stuck; each of these is asked to stop, else its worker is "
        "ended, and another worker goes on. The others are left.",
    ),
    "tag": Wording(
        "Tag all", "Tag", "Each has this tag from now on; it goes on as it is.", term=("tag", "Tag")
    ),
    "untag": Wording(
        "Untag all",
        "Untag",
        "None has this tag from now on; each goes on as it is.",
        term=("tag", "Tag"),
    ),
}
"""Of what is done to jobs."""


class Offer(NamedTuple):
    """What a page offers to do with all jobs of a filter.

    Attributes:
        filter: of these jobs, as text.
        verbs: name and wording of each.
        refusal: why this viewer may not; empty where nothing is against it.
    """

    filter: str
    verbs: Sequence[tuple[str, Wording]]
    refusal: str


def offer(console: Console, request: AnyRequest, query: JobQuery) -> Offer:
    """What can be done with all jobs of a filter."""
    possible = [
        (verb, WORDINGS[verb])
        for verb, about in VERBS["jobs"].items()
        if not query.state or query.state in about.states
    ]
    return Offer(query.words, possible, refusal(console, viewer(request), Scope.JOBS))


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""
    form: dict[str, Any] = {
        "opt": needs(Scope.READ) | records_itself("page.act") | looks_at_limits(),
        "include_in_schema": False,
        "media_type": MediaType.HTML,
        "request_max_body_size": MOST_FORM_BYTES * 2,
    }

    async def preview_page(
        request: AnyRequest, fields: Mapping[str, list[str]], problem: str = "", status: int = 200
    ) -> Response[str]:
        """The page that says what would be acted on, counted anew."""
        what = _what(fields)
        answer = await through_api.send(request, "POST", "/bulk/preview", what)
        preview = msgspec.json.decode(answer.body, type=BulkPreview) if answer.is_accepted else None
        page = pages.page(
            "bulk/preview.html",
            _AREA,
            f"{WORDINGS[what['verb']].title} many jobs",
            what=what,
            wording=WORDINGS[what["verb"]],
            preview=preview,
            problem=problem or answer.problem,
            entered={name: _one(fields, name) for name in _TEXTS},
            speed=_one(fields, "per_second") or str(USUAL_PER_SECOND),
            viewer=viewer(request),
            once=new_id(),
        )
        page.status_code = status if answer.is_accepted else answer.status
        return page

    @post("/bulk/preview", **form)
    async def preview(request: AnyRequest) -> Response[str]:
        return await preview_page(request, await read_all_fields(request))

    @post("/bulk/start", **form)
    async def start(request: AnyRequest) -> Response[str]:
        fields = await read_all_fields(request)
        try:
            numbers = {name: int(_one(fields, name)) for name in ("count", "per_second")}
        except ValueError:
            return await preview_page(
                request, fields, "Jobs a second: expected a whole number.", _BAD_REQUEST
            )
        texts = {name: _one(fields, name) for name in ("confirm", "title", "reason")}
        body = _what(fields) | texts | numbers | _terms(fields)
        answer = await through_api.send(request, "POST", "/bulk", body, _one(fields, "once"))
        if not answer.is_accepted:
            return await preview_page(
                request, fields, f"Not started. {answer.problem}", answer.status
            )
        return go(f"/bulk/{msgspec.json.decode(answer.body, type=BulkItem).id}")

    @page_at("/bulk")
    async def actions(request: AnyRequest) -> Response[str]:
        newest = zip(console.bulk.directory.newest_first(), range(_SHOWN), strict=False)
        items = [bulk_item(one, viewer(request)) for one, _ in newest]
        return pages.page(
            "bulk/list.html", _AREA, "Bulk actions", sections=sections.JOBS, items=items
        )

    @page_at("/bulk/{action_id:str}")
    async def action(request: AnyRequest, action_id: FromPath[str]) -> Response[str]:
        item = bulk_item(action_or_404(console, action_id), viewer(request))
        possible = {
            "running": ["bulk.pause", "bulk.abort"],
            "paused": ["bulk.resume", "bulk.abort"],
        }
        return pages.page(
            "bulk/action.html",
            _AREA,
            item.title or f"{item.verb} {item.total:,} {item.target}",
            item=item,
            acts=acts(console, request, possible.get(item.state, ()), item.id),
            acted=done(request),
        )

    return preview, start, actions, action


def _what(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Verb and set of a form. Raises HTTPException: the verb is none of the pages'."""
    verb = _one(fields, "verb")
    if verb not in WORDINGS:
        raise HTTPException(f"found the verb {verb[:40]!r}", status_code=_BAD_REQUEST)
    ids = fields.get("ids", [])
    words = "" if ids else _one(fields, "filter")
    return {"verb": verb, "target": "jobs", "filter": words, "ids": ids}


def _terms(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """What the verb of a form needs besides its set; the API checks it."""
    term = WORDINGS[_one(fields, "verb")].term
    if term is None:
        return {}
    name, value = term[0], _one(fields, term[0])
    return {"tags": [value] if value else []} if name == "tag" else {name: value}


def _one(fields: Mapping[str, list[str]], name: str) -> str:
    return fields.get(name, [""])[0].strip()
