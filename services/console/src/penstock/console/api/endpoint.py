"""How an endpoint is declared: its path, its scope, and what its answer changes with.

A group of endpoints is one module beside this one with a function ``routes(console)``; it is named
in :mod:`penstock.console.api.router`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from penstock.console.core.series import TIERS
from penstock.console.parts import Console
from penstock.console.past.moments import MAX_TEXT_LENGTH, PARAMETER
from penstock.console.past.past import Past
from penstock.console.read_models.projection import Standing
from penstock.console.web.access import ChangesWith, changes_with, tagged
from penstock.console.web.acting import looks_at_limits, records
from penstock.console.web.entity_tags import TaggedResponse
from penstock.console.web.past_requests import has_past
from penstock.console.web.scopes import Scope, needs

T = TypeVar("T")
Routes = Sequence[HTTPRouteHandler]

MAX_LIMIT = 500
EVENT_STREAM = "text/event-stream"
DEFAULT_LIMIT = 50
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="Entries of a page at most.")]
Cursor = Annotated[str, QueryParameter(max_length=500, description="`next` of the page before.")]
SeriesSeconds = Annotated[
    int,
    QueryParameter(ge=60, le=TIERS[-1].kept_seconds, description="How far back points reach."),
]
AsOfText = Annotated[
    str,
    QueryParameter(
        name=PARAMETER,
        max_length=MAX_TEXT_LENGTH,
        description="A past moment, such as 2026-11-22T12:03:04Z; without it, now.",
    ),
]
InState = Annotated[str, QueryParameter(name="state", description="Only those in this state.")]


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list.

    Attributes:
        items: its entries.
        standing: how current they are.
        next: cursor of the following page; empty where there is none.
        complete: False where the search took too long: ``next`` goes on where it stopped.
        searched_until: of the oldest entry that was looked at; None where all were.
    """

    items: list[T]
    standing: Standing
    next: str = ""
    complete: bool = True
    searched_until: datetime | None = None


def read(
    path: str,
    scope: Scope = Scope.READ,
    source: ChangesWith | None = None,
    action: str = "",
    checks_limits: bool = False,
    answers_as_of: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declares a reading endpoint.

    Args:
        path: below ``/api/v1``.
        scope: that the caller needs.
        source: what the answer is made of, so that it is not sent again while that is unchanged;
            None where that is not known.
        action: what its calls are called in the audit log, for a payload or an export; empty: they
            do not stand there.
        checks_limits: see :func:`penstock.console.web.acting.looks_at_limits`.
        answers_as_of: it can answer for a past moment (parameter :data:`AsOfText`); else one that
            is asked for is refused.
        options: of Litestar's handler.

    An answer without a source has a tag made of its content, where any reader may see it.
    """
    named = needs(scope) | (changes_with(source) if source else {})
    if source is None and scope is Scope.READ and not action and "media_type" not in options:
        named |= tagged()
        options.setdefault("response_class", TaggedResponse)
    named |= records(action) if action else {}
    named |= looks_at_limits() if checks_limits else {}
    named |= has_past() if answers_as_of else {}
    return get(path, opt=named, **options)


def whole(console: Console, items: list[T], past: Past | None = None) -> Listing[T]:
    """A list that is short enough for one page; of now, or of a past moment."""
    return Listing(items=items, standing=past.standing if past else console.standing)
