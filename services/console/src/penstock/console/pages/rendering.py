"""Templates into pages, and into the fragments of them that change while a page is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler

from penstock.console.api.meta import own_version, state_of
from penstock.console.core.times import instant
from penstock.console.pages.sections import AREAS
from penstock.console.pages.time_travel import Visit, carried
from penstock.console.parts import Console
from penstock.console.web.assets import Assets
from penstock.console.web.past_requests import has_past
from penstock.console.web.scopes import Scope, needs
from penstock.telemetry.lines import printable
from penstock.views import source_state, wording

Values = dict[str, Any]
UNKNOWN = "\N{EN DASH}"
"""Shown in place of a figure that was not measured."""


class Topic(NamedTuple):
    """A part of a page that changes while it is open.

    Attributes:
        name: as it stands in the page's connection.
        sources: what it changes with: ``log``, ``pools``, ``hosts``, ``workers``.
        values: of its templates.
        parts: template of each element, by its id.
    """

    name: str
    sources: Sequence[str]
    values: Callable[[], Awaitable[Values]]
    parts: Mapping[str, str]


class Pages:
    """Renders pages.

    Args:
        console: the parts of the console.
        assets: style sheets and scripts.
    """

    def __init__(self, console: Console, assets: Assets) -> None:
        self._console = console
        self._templates = Environment(
            loader=PackageLoader("penstock.console.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_printable,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {
            "asset": assets.url,
            "areas": AREAS,
            "version": own_version(),
        }
        self._templates.filters |= _FILTERS

    def page(
        self,
        template: str,
        area: str,
        title: str,
        topics: Sequence[str] = (),
        visit: Visit | None = None,
        **values: Any,
    ) -> Response[str]:
        """A whole page.

        Args:
            template: its file.
            area: the area of the navigation that it belongs to.
            title: of the browser's tab.
            topics: what it is sent while it is open; nothing where it is of a past moment.
            visit: of which time it is; None for a page that is only of now.
            values: of its template.
        """
        text = self._templates.get_template(template).render(
            area=area,
            title=title,
            topics=",".join(topics),
            state=self.state(),
            visit=visit,
            then=visit.past if visit else None,
            **values,
        )
        if visit and visit.past:
            text = carried(text, visit.past.moment)
        return Response(text, media_type=MediaType.HTML)

    def plain(self, template: str, title: str, status: int, **values: Any) -> Response[str]:
        """A page without the frame, for callers who are not logged in.

        Args:
            template: its file.
            title: of the page and of the browser's tab.
            status: of the answer.
            values: of its template.
        """
        text = self._templates.get_template(template).render(title=title, **values)
        return Response(text, status_code=status, media_type=MediaType.HTML)

    def state(self) -> Values:
        """How current everything is, as the header of each page says."""
        standing = self._console.standing
        return {
            "state": state_of(standing),
            "position": standing.position,
            "as_of": standing.as_of.isoformat() if standing.as_of else None,
            "behind_seconds": round(standing.behind_seconds, 1),
            "silent_since": standing.silent_since.isoformat() if standing.silent_since else None,
            "firing": self._console.alerts.firing,
        }

    def add_topic(self, topic: Topic) -> None:
        """Has a part of a page sent whenever it changes."""
        templates = {name: self._templates.get_template(path) for name, path in topic.parts.items()}

        async def render() -> str:
            values = await topic.values()
            return "".join(
                f'<hx-partial hx-target="#{name}" hx-swap="innerMorph">'
                f"{template.render(values)}</hx-partial>"
                for name, template in templates.items()
            )

        self._console.hub.topic(topic.name, topic.sources, render)

    def state_json(self) -> str:
        """The same state, for pages that are open."""
        return msgspec.json.encode(self.state()).decode()


def page_at(
    path: str, answers_as_of: bool = False
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declares a page: ``@page_at("/pools")``.

    Args:
        path: of the page.
        answers_as_of: it can be shown as of a past moment; else one that is asked for is refused.
    """
    options = needs(Scope.READ) | (has_past() if answers_as_of else {})
    return get(path, opt=options, include_in_schema=False, media_type=MediaType.HTML)


def time_of_day(at: datetime | None) -> str:
    """UTC; with the day when it is not today."""
    if at is None:
        return UNKNOWN
    is_today = at.date() == datetime.now(UTC).date()
    return at.astimezone(UTC).strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def whole_time(at: datetime | None) -> str:
    """UTC, with milliseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if at else UNKNOWN


def grouped(number: int | None) -> str:
    """``1,204``; a dash when unknown."""
    return UNKNOWN if number is None else f"{number:,}"


def short_id(identifier: str) -> str:
    """The end of a long id, which differs most between ids of the same time."""
    return identifier if len(identifier) <= 14 else f"…{identifier[-12:]}"


def percent(share: float | None, digits: int = 2) -> str:
    """``99.62 %``; a dash when unknown. Never rounded up to 100."""
    if share is None:
        return UNKNOWN
    scale = 10**digits
    return f"{int(share * 100 * scale + 1e-9) / scale:g} %"


def _printable(value: Any) -> Any:
    """What a template prints: texts come from jobs, and must not turn the writing direction."""
    return printable(value) if type(value) is str else value  # markup was made from such


def _dashed(word: Callable[[Any], str]) -> Callable[[Any], str]:
    """With the dash that pages show for what is not known."""
    return lambda value: UNKNOWN if value is None else word(value)


_FILTERS: dict[str, Callable[..., Any]] = {
    "seconds": _dashed(wording.seconds),
    "share": _dashed(wording.share),
    "rate": _dashed(wording.rate),
    "memory": _dashed(wording.memory),
    "ago": wording.ago,
    "error": wording.error,
    "time": time_of_day,
    "whole_time": whole_time,
    "instant": instant,
    "grouped": grouped,
    "short_id": short_id,
    "percent": percent,
    "marked": source_state.marked,
    "remarks": source_state.remarks,
}
