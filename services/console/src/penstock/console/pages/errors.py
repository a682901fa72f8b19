"""What a browser is shown where a page cannot be: what happened, whether it passes, where to go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Request, Response
from litestar.types import ExceptionHandlersMap

from penstock.console.pages.rendering import Pages
from penstock.console.pages.time_travel import Visit, refused
from penstock.console.parts import Console
from penstock.console.web.past_requests import NoPast
from penstock.console.web.problems import HANDLERS, Problem

AnyRequest = Request[Any, Any, Any]
_API = "/api/"
_FORBIDDEN, _NOT_FOUND = 403, 404
_NEXT = {
    429: "Wait a moment, then load the page again.",
    500: "The console's log has the reason under the number below. Other pages may work.",
    503: "Jobs go on without the console. The page works again once the broker answers: load it "
    "again, or see what 'penstock health' says.",
}
"""What a person can do, by status."""


def answers(console: Console, pages: Pages) -> ExceptionHandlersMap:
    """The handlers of errors of the whole application: pages for people, problems for programs."""
    return {kind: _shown(console, pages, problem_of) for kind, problem_of in HANDLERS.items()}


def _shown(console: Console, pages: Pages, problem_of: Any) -> Callable[[AnyRequest, Any], Any]:
    def answer(request: AnyRequest, error: Exception) -> Response[Any]:
        response: Response[Any] = problem_of(request, error)
        problem = response.content
        if not isinstance(problem, Problem) or not _is_for_people(request, problem):
            return response
        page = _page(pages, problem, error, refused(console, request))
        page.status_code = response.status_code
        for name, value in response.headers.items():
            page.headers.setdefault(name, value)
        return page

    return answer


def _is_for_people(request: AnyRequest, problem: Problem) -> bool:
    """Whether the answer is a page: for browsers, and for all where a page is missing."""
    accepted = request.headers.get("accept", "*/*")
    is_page = "text/html" in accepted or (problem.status == _NOT_FOUND and "*/*" in accepted)
    return is_page and not request.url.path.startswith(_API)


def _page(pages: Pages, problem: Problem, error: Exception, visit: Visit | None) -> Response[str]:
    if isinstance(error, NoPast) and visit is not None:
        return pages.page("no_past.html", "", "No past", visit=visit)
    detail = problem.detail
    if problem.status == _FORBIDDEN:
        return pages.page("forbidden.html", "", "Not for this role", visit=visit, detail=detail)
    if problem.status == _NOT_FOUND:
        return pages.page("missing.html", "", "Not found", visit=visit, detail=detail)
    advice = _NEXT.get(problem.status, "")
    return pages.page("failed.html", "", problem.title, visit=visit, problem=problem, next=advice)
